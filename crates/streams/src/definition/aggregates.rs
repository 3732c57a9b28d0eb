//! Aggregates as they are written: `mean(watts)`.

use super::Fault;
use super::fields::short;
use super::yaml::Word;
use crate::aggregate::{Aggregate, Function};
use crate::batch::Value;
use crate::expression::syntax::{self, Expr, What};
use crate::schema::Schema;

/// How aggregates are written.
pub const AGGREGATES: [(&str, &str); 12] = [
    ("count", "count()"),
    ("sum", "sum(x)"),
    ("mean", "mean(x)"),
    ("min", "min(x)"),
    ("max", "max(x)"),
    ("variance", "variance(x)"),
    ("percentile", "percentile(x, 0.95)"),
    ("histogram", "histogram(x, 10, 100)"),
    ("distinct", "distinct(x)"),
    ("frequent", "frequent(x, 5)"),
    ("first", "first(x)"),
    ("last", "last(x)"),
];

/// `mean(watts)`, for events of this schema.
pub fn read(name: &Word, word: &Word, schema: &Schema, faults: &mut Vec<Fault>) -> Option<Aggregate> {
    let tree = match syntax::parse(&word.text) {
        Ok(tree) => tree,
        Err(flaw) => {
            let fault = Fault::new(word.place_of(flaw.at), flaw.what);
            faults.push(Fault { hint: flaw.hint, ..fault });
            return None;
        }
    };
    let nothing = Vec::new();
    let (function, of) = match &tree.what {
        What::Call(name, of) => (name.as_str(), of),
        What::Name(name) => (name.as_str(), &nothing),
        _ => ("", &nothing),
    };
    let Some((function, like)) = AGGREGATES.iter().find(|(known, _)| *known == function) else {
        let fault = Fault::new(word.place_of(tree.at), format!("\"{}\" is no aggregate", short(&word.text)));
        faults.push(fault.instead(function, AGGREGATES.iter().map(|(name, _)| *name)));
        return None;
    };
    let field = match of.first() {
        None => None,
        Some(Expr { what: What::Name(field), at }) => match schema.index(field) {
            Some(field) => Some(field),
            None => {
                let fault = Fault::new(word.place_of(*at), format!("there is no field \"{field}\""));
                faults.push(fault.instead(field, schema.names()));
                return None;
            }
        },
        Some(other) => {
            let fault = Fault::new(word.place_of(other.at), "aggregates are made of fields, not of expressions");
            faults.push(fault.hint("make it a field first, in an operator with add"));
            return None;
        }
    };
    let figures = of.iter().skip(1).map(figure).collect::<Option<Vec<f64>>>();
    let function = match (*function, figures.as_deref()) {
        ("count", Some([])) => Function::Count,
        ("sum", Some([])) => Function::Sum,
        ("mean", Some([])) => Function::Mean,
        ("min", Some([])) => Function::Min,
        ("max", Some([])) => Function::Max,
        ("variance", Some([])) => Function::Variance,
        ("percentile", Some([share])) => Function::Percentile(*share),
        ("histogram", Some(bounds)) => Function::Histogram(bounds.to_vec()),
        ("distinct", Some([])) => Function::Distinct,
        ("frequent", Some([top])) if *top >= 0.0 && top.fract() == 0.0 => Function::Frequent(*top as usize),
        ("first", Some([])) => Function::First,
        ("last", Some([])) => Function::Last,
        _ => {
            faults.push(Fault::new(word.place, format!("\"{}\" is written {like}", short(&word.text))));
            return None;
        }
    };
    if let Err(why) = function.result(field.map(|field| schema.fields[field].kind)) {
        faults.push(Fault::new(word.place, why.to_string()).hint(format!("it is written {like}")));
        return None;
    }
    Some(Aggregate { name: name.text.clone(), function, field })
}

fn figure(expr: &Expr) -> Option<f64> {
    match &expr.what {
        What::Literal(Value::Int(figure)) => Some(*figure as f64),
        What::Literal(Value::Float(figure)) => Some(*figure),
        What::Call(sign, of) if sign == "-" && of.len() == 1 => Some(-figure(&of[0])?),
        _ => None,
    }
}
