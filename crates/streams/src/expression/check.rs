//! Whether an expression means something for events of a schema: from what was written to a plan, or to all that is wrong.

use super::functions::{Function, Way, function, kinds, operator};
use super::plan::{Node, Op};
use super::syntax::{Expr, What};
use super::{Flaw, nearest, run};
use crate::batch::Value;
use crate::schema::{Kind, Schema};

/// The most that are told at once of one expression.
const FLAWS_MAX: usize = 10;

#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    pub node: Node,
    pub kind: Kind,
}

pub fn check(tree: &Expr, schema: &Schema) -> Result<Typed, Vec<Flaw>> {
    let mut checker = Checker { schema, flaws: Vec::new() };
    let typed = checker.expr(tree);
    let Checker { mut flaws, .. } = checker;
    match typed {
        Some(typed) if flaws.is_empty() => Ok(typed),
        _ => {
            flaws.sort_by_key(|flaw| flaw.at);
            flaws.truncate(FLAWS_MAX);
            Err(flaws)
        }
    }
}

struct Checker<'a> {
    schema: &'a Schema,
    flaws: Vec<Flaw>,
}

impl Checker<'_> {
    /// Nothing where something is wrong; what, has been said then. Both sides of an operator are looked at all the same.
    fn expr(&mut self, expr: &Expr) -> Option<Typed> {
        match &expr.what {
            What::Literal(value) => Some(Typed { kind: value.kind(), node: Node::One(value.clone()) }),
            What::Name(name) => self.field(name, expr.at),
            What::Call(name, of) => {
                let given: Vec<Option<Typed>> = of.iter().map(|one| self.expr(one)).collect();
                let function = self.function(name, expr.at)?;
                let given = given.into_iter().collect::<Option<Vec<Typed>>>()?;
                self.call(function, given, expr.at)
            }
            What::In(one, of) => {
                let one = self.expr(one);
                let of: Vec<Option<Typed>> = of.iter().map(|one| self.expr(one)).collect();
                let (one, of) = (one?, of.into_iter().collect::<Option<Vec<Typed>>>()?);
                let equal = operator("==")?;
                let mut nodes = vec![one.node];
                for other in of {
                    let found = [one.kind, other.kind];
                    if equal.way(&found).is_none() {
                        self.flaws.push(unfit(equal, &found, expr.at));
                        return None;
                    }
                    nodes.push(other.node);
                }
                Some(Typed { node: made(Op::In, Kind::Bool, nodes), kind: Kind::Bool })
            }
        }
    }

    fn field(&mut self, name: &str, at: usize) -> Option<Typed> {
        if let Some(field) = self.schema.index(name) {
            return Some(Typed { node: Node::Field(field), kind: self.schema.fields[field].kind });
        }
        let flaw = Flaw::new(at, format!("there is no field \"{name}\""));
        let near = nearest(name, self.schema.names());
        self.flaws.push(match (near, function(name)) {
            (Some(near), _) => flaw.hint(format!("did you mean \"{near}\"?")),
            (None, Some(function)) => flaw.hint(format!("the function is written {}", function.like)),
            (None, None) => flaw.hint(format!("there is {}", self.schema.names().collect::<Vec<_>>().join(", "))),
        });
        None
    }

    fn function(&mut self, name: &str, at: usize) -> Option<&'static Function> {
        if let Some(known) = operator(name).or_else(|| function(name)) {
            return Some(known);
        }
        let flaw = Flaw::new(at, format!("there is no function \"{name}\""));
        self.flaws.push(match nearest(name, super::functions::FUNCTIONS.iter().map(|one| one.name)) {
            Some(near) => flaw.hint(format!("did you mean \"{near}\"?")),
            None => flaw.hint("docs/streams.md lists those there are"),
        });
        None
    }

    fn call(&mut self, function: &'static Function, mut given: Vec<Typed>, at: usize) -> Option<Typed> {
        // More than two of these are a chain of two.
        if matches!(function.name, "least" | "greatest") && given.len() > 2 {
            let last = given.pop()?;
            let first = self.call(function, given, at)?;
            return self.call(function, vec![first, last], at);
        }
        let found: Vec<Kind> = given.iter().map(|typed| typed.kind).collect();
        let Some(way) = function.way(&found) else {
            self.flaws.push(unfit(function, &found, at));
            return None;
        };
        if function.name == "clamp" {
            let [x, low, high] = <[Typed; 3]>::try_from(given).ok()?;
            let raised = self.call(super::functions::function("greatest")?, vec![x, low], at)?;
            return self.call(super::functions::function("least")?, vec![raised, high], at);
        }
        Some(step(way, given))
    }
}

fn unfit(function: &Function, found: &[Kind], at: usize) -> Flaw {
    let flaw = Flaw::new(at, format!("{} takes {}, and this is {}", function.like, function.takes(), kinds(found)));
    match (function.name, found) {
        ("+", [Kind::Text, _] | [_, Kind::Text]) => flaw.hint("text(x) makes a text of anything"),
        ("int" | "float" | "time", [Kind::Text]) => {
            flaw.hint("say what it is when the text is none: int(t, 0)".replace("int", function.name))
        }
        ("%", _) => flaw.hint("int(x) makes a whole number"),
        ("and" | "or" | "not", found) if found.contains(&Kind::Int) => flaw.hint("compare it: x != 0"),
        ("if", [Kind::Bool, this, that]) if this != that => flaw.hint("both answers must be of one kind"),
        _ => flaw,
    }
}

/// One step of the plan, worked out at once where it reads nothing.
fn step(way: &Way, mut given: Vec<Typed>) -> Typed {
    if way.op == Op::Relabel && given[0].kind == way.gives {
        return given.remove(0);
    }
    let widened = |(typed, takes): (Typed, &Kind)| match (typed.kind, takes) {
        (Kind::Int, Kind::Float) => made(Op::IntToFloat, Kind::Float, vec![typed.node]),
        _ => typed.node,
    };
    let of: Vec<Node> = given.into_iter().zip(way.takes).map(widened).collect();
    Typed { node: made(way.op, way.gives, of), kind: way.gives }
}

fn made(op: Op, kind: Kind, mut of: Vec<Node>) -> Node {
    if op == Op::If
        && let Node::One(Value::Bool(holds)) = of[0]
    {
        return of.swap_remove(if holds { 1 } else { 2 });
    }
    if of.iter().all(|node| matches!(node, Node::One(_))) {
        let values: Vec<Value> =
            of.into_iter().filter_map(|node| if let Node::One(value) = node { Some(value) } else { None }).collect();
        return Node::One(run::once(op, kind, values));
    }
    Node::Step { op, kind, of }
}
