//! Expressions that people write, in CEL: compiled within bounds, asked what they speak of, evaluated on JSON.
//!
//! The parser goes one level of its stack deeper for each bracket and each operator, and its levels are large: what is
//! deeper than it can be trusted with is refused before it sees it, and it runs on a stack of its own. How deep a text is
//! can only be counted where it is plain what is quoted: comments, raw and triple quotes are refused.
//!
//! What an evaluation may cost is bounded too ([`toll`]): loops in loops over long lists, and texts that are doubled again and
//! again, end with a line that says so.
//!
//! ```
//! use mutirao_expression::{Expression, value_of};
//! let sum = Expression::compile("input.a + input.b").unwrap();
//! let seen = [("input", value_of(&serde_json::json!({"a": 1, "b": 2})))];
//! assert_eq!(sum.evaluate(seen), Ok(serde_json::json!(3)));
//! assert!(Expression::compile(&"(".repeat(900)).is_err());
//! ```

mod lately;
mod members;
mod mixed;
mod sight;
pub mod toll;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cel::common::ast::IdedExpr;
use cel::{Context, Program, Value};
pub use sight::Sight;

pub const CHARS_MAX: usize = 1_000;
pub const NESTED_MAX: usize = 12;
pub const SIGNS_MAX: usize = 50;
/// Ten times what twelve brackets were seen to need without optimisation.
const PARSER_STACK_BYTES: usize = 32 << 20;
const TOO_MUCH: &str = "it does too much: shorten its lists, or split it";
/// Of a reason, this much is kept.
const REASON_CHARS_MAX: usize = 300;

/// Why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("it has more than {CHARS_MAX} characters")]
    Long,
    #[error("it has more than {NESTED_MAX} brackets in each other, or {SIGNS_MAX} operators")]
    Deep,
    #[error("it has a comment, or a raw or triple quote; write it without")]
    Veiled,
    #[error("{text} does not compile: {why}")]
    Unparsable { text: String, why: String },
}

/// Why an evaluation came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It would take more than it may this time.
    Costly,
    /// Why it cannot be, in a line.
    Failed(String),
}

pub struct Expression {
    text: String,
    program: Program,
    /// The same, which pays for what it does.
    levied: IdedExpr,
    names: BTreeSet<String>,
}

impl Expression {
    pub fn compile(text: &str) -> Result<Self, Flaw> {
        if text.chars().count() > CHARS_MAX {
            return Err(Flaw::Long);
        }
        if is_veiled(text) {
            return Err(Flaw::Veiled);
        }
        if is_deep(text) {
            return Err(Flaw::Deep);
        }
        let program = parse(text).map_err(|why| Flaw::Unparsable { text: text.into(), why })?;
        let names = members::free(program.expression());
        let levied = toll::levied(program.expression());
        Ok(Self { text: text.into(), program, levied, names })
    }

    /// The same, compiled once for as long as it is asked for again soon: that takes far longer than evaluating it.
    pub fn lately(text: &str) -> Result<Arc<Self>, Flaw> {
        lately::compiled(text)
    }

    /// The same, which finds each member of `name` by itself: `steps.a` and `steps["a"]` are what was made known as `steps.a`.
    pub fn by_members(mut self, name: &str) -> Self {
        let mut named = self.program.expression().clone();
        members::select(&mut named, name);
        self.levied = toll::levied(&named);
        self
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whatever it speaks of that is not its own.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// Of a name that stands for many things, those that it speaks of: `a` and `b` of `steps.a.output + steps["b"].output`.
    /// None if it speaks of them in another way, so that nobody can tell which.
    pub fn members_of(&self, name: &str) -> Option<BTreeSet<String>> {
        members::of(self.program.expression(), name)
    }

    /// Of a name that stands for many things, what it asks of which: `a` and `output` of `steps.a.output.rows`.
    pub fn fields_of(&self, name: &str) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        members::fields_of(self.program.expression(), name, &mut found);
        found
    }

    /// What it comes to where `context`, one that [`context`] made, says what it speaks of. Why it cannot be, in a line.
    pub fn value_in(&self, context: &Context<'_, '_>) -> Result<Value, String> {
        // Whoever asks may look after much else, and would ask the same again.
        let resolved = || catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.levied, context)));
        match toll::within_budget(toll::BUDGET, resolved) {
            Some(Ok(value)) => value.map_err(|error| short(&error.to_string())),
            Some(Err(_)) => Err("it cannot be worked out".into()),
            None => Err(TOO_MUCH.into()),
        }
    }

    /// Where much of what it looks at is shared with others; what is its `own` is turned into values for it alone, and it pays
    /// for that. It may spend `units`; with all of [`toll::BUDGET`], what is too costly has failed.
    pub fn evaluate_at<'n>(
        &self,
        shared: &[(&'n str, &'n Sight)],
        own: &[(&'n str, &serde_json::Value)],
        units: u64,
    ) -> Result<serde_json::Value, Stop> {
        let resolved = toll::within_budget(units, || {
            own.iter().try_for_each(|(_, json)| toll::charge_json(json)).ok()?;
            let own: Vec<(&str, Sight)> = own.iter().map(|(name, json)| (*name, Sight::of(json))).collect();
            let names: Vec<(&str, &Sight)> =
                shared.iter().copied().chain(own.iter().map(|(name, sight)| (*name, sight))).collect();
            let names = sight::Names(&names);
            let mut context = context();
            context.set_variable_resolver(&names);
            Some(catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.levied, &context))))
        });
        match resolved.flatten() {
            Some(Ok(Ok(value))) => value.json().map_err(|error| Stop::Failed(short(&error.to_string()))),
            Some(Ok(Err(error))) => Err(Stop::Failed(short(&error.to_string()))),
            Some(Err(_)) => Err(Stop::Failed("it cannot be worked out".into())),
            None if units < toll::BUDGET => Err(Stop::Costly),
            None => Err(Stop::Failed(TOO_MUCH.into())),
        }
    }

    /// Why it cannot be, in a line.
    pub fn evaluate<'n>(&self, seen: impl IntoIterator<Item = (&'n str, Value)>) -> Result<serde_json::Value, String> {
        let mut context = context();
        seen.into_iter().for_each(|(name, value)| context.add_variable_from_value(name, value));
        self.value_in(&context)?.json().map_err(|error| short(&error.to_string()))
    }
}

/// Where expressions are evaluated: what they speak of is to be added.
pub fn context<'v>() -> Context<'static, 'v> {
    Context::with_env(toll::ENV.clone())
}

/// In a line. It has parts of what was looked at, and not every store and terminal takes all of that.
fn short(why: &str) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    why.chars().take(REASON_CHARS_MAX).map(plain).collect()
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// JSON as expressions see it. Whole numbers are CEL's plain ones, so that `input.n + 1` is what people mean.
pub fn value_of(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(truth) => Value::Bool(*truth),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(large)) => Value::UInt(large),
            (None, None) => Value::Float(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => text.as_str().into(),
        serde_json::Value::Array(items) => items.iter().map(value_of).collect::<Vec<_>>().into(),
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), value_of(value))).collect::<HashMap<_, _>>().into()
        }
    }
}

fn parse(text: &str) -> Result<Program, String> {
    let owned = text.to_owned();
    let parsed = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES).spawn(move || {
        let first = |errors: cel::ParseErrors| errors.to_string().lines().next().unwrap_or_default().trim().to_owned();
        Program::compile(&owned).map_err(first)
    });
    let parsed = parsed.map_err(|error| error.to_string())?.join();
    parsed.unwrap_or_else(|_| Err("the parser cannot read it".into()))
}

/// Whether something in it makes it hard to tell what is quoted.
fn is_veiled(text: &str) -> bool {
    let (mut before, mut quote) = (' ', None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), _) => {
                quote = (c != open).then_some(open);
                // Two quotes and a third: an empty text, and then another.
                if quote.is_none() && chars.peek() == Some(&open) {
                    return true;
                }
            }
            (None, '"' | '\'') if matches!(before, 'r' | 'R') => return true,
            (None, '"' | '\'') => quote = Some(c),
            (None, '/') if chars.peek() == Some(&'/') => return true,
            _ => {}
        }
        before = c;
    }
    false
}

/// Whether it is deeper than the parser can be trusted with. Counted from the text, quoted parts left out.
fn is_deep(text: &str) -> bool {
    let (mut nested, mut deepest, mut signs, mut quote) = (0usize, 0, 0, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => drop(chars.next()),
            (Some(open), _) => quote = (c != open).then_some(open),
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => {
                nested += 1;
                deepest = deepest.max(nested);
                signs += 1;
            }
            (None, ')' | ']' | '}') => nested = nested.saturating_sub(1),
            (None, '+' | '-' | '*' | '/' | '%' | '!' | '?' | '.' | '<' | '>' | '=' | '&' | '|') => signs += 1,
            _ => {}
        }
    }
    deepest > NESTED_MAX || signs > SIGNS_MAX
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn evaluated(text: &str, input: serde_json::Value) -> Result<serde_json::Value, String> {
        Expression::compile(text).unwrap_or_else(|flaw| panic!("{flaw}")).evaluate([("input", value_of(&input))])
    }

    #[test]
    fn json_goes_in_and_comes_out() {
        assert_eq!(evaluated("input.n + 1", json!({"n": 41})), Ok(json!(42)));
        assert_eq!(evaluated("input.list.map(x, x * 2)", json!({"list": [1, 2]})), Ok(json!([2, 4])));
        assert_eq!(evaluated("{'a': input.b, 'n': null}", json!({"b": "x"})), Ok(json!({"a": "x", "n": null})));
        assert_eq!(evaluated("input", json!({"f": 1.5, "t": true})), Ok(json!({"f": 1.5, "t": true})));
        assert_eq!(evaluated("input.big", json!({"big": u64::MAX})), Ok(json!(u64::MAX)));
    }

    #[test]
    fn what_hides_how_deep_it_is_is_refused() {
        let deep = "(".repeat(400);
        for veiled in [format!("//'\n{deep}"), format!("r'\\' + {deep}"), format!("'''a'b''' + {deep}")] {
            assert_eq!(Expression::compile(&veiled).err(), Some(Flaw::Veiled), "{veiled}");
        }
        for plain in ["'https://a/b' == \"it's\"", "input.r == 'x'", "'' + \"\"", "4 / 2", r"'a\'//b'"] {
            assert!(Expression::compile(plain).is_ok(), "{plain}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_says_why() {
        assert!(evaluated("input.missing", json!({})).unwrap_err().contains("missing"));
        assert!(evaluated("1 / input.n", json!({"n": 0})).is_err());
        let why = evaluated("input.m[input.k]", json!({"m": {}, "k": "a\u{0}\u{1b}[2J\nb"})).unwrap_err();
        assert!(why.contains('b') && !why.contains(char::is_control), "{why:?}");
    }

    /// What breaks within the evaluator is the failure of one expression, never of whoever asked.
    #[test]
    fn what_breaks_is_a_failure_of_the_expression() {
        assert_eq!(evaluated("break_down(input)", json!(1)), Err("it cannot be worked out".into()));
        let input = json!({"min": i64::MIN, "f": 1e308, "s": "é€𝄞", "date": "9999-12-31T23:59:59Z"});
        let terms = [
            "input.min",
            "input.f",
            "input.s",
            "-1",
            "0",
            "0u",
            "duration('1000000h')",
            "timestamp(input.date)",
            "[1]",
            "optional.none()",
        ];
        for a in terms {
            for b in terms {
                for op in ["+", "-", "*", "/", "%", "<", "in"] {
                    let text = format!("{a} {op} {b}");
                    assert_ne!(evaluated(&text, input.clone()), Err("it cannot be worked out".into()), "{text}");
                }
            }
        }
    }

    #[test]
    fn however_deep_it_goes_it_is_refused_and_nothing_breaks() {
        for text in ["(".repeat(900), "-".repeat(900), "[".repeat(900), format!("1{}", "+1".repeat(450))] {
            assert_eq!(Expression::compile(&text).unwrap_err(), Flaw::Deep);
        }
        assert_eq!(Expression::compile(&"a".repeat(1_001)).unwrap_err(), Flaw::Long);
        assert!(Expression::compile("1 +").unwrap_err().to_string().starts_with("1 + does not compile: "));
        assert!(!is_deep(&format!("body.contains('{}')", "(".repeat(500))), "what is quoted is no depth");
    }

    #[test]
    fn what_would_keep_a_machine_busy_ends_when_its_budget_is_spent() {
        let list: Vec<u32> = (0..10_000).collect();
        let input = json!({"l": list, "s": "x".repeat(200_000)});
        let doubled = format!("[input.s]{}", ".map(a, a + a)".repeat(15));
        let copied = format!("[[1]]{}", ".map(a, [a,a,a,a,a,a,a,a,a,a])".repeat(15));
        for text in [
            "input.l.map(a, input.l.map(b, a * b))",
            "input.l.map(a, input.l.filter(b, a == b).map(c, c))",
            "input.l.exists(a, input.l.exists(b, a + b < 0))",
            "input.l.all(a, a in input.l)",
            "input.l.map(a, input.l)",
            "input.l.map(a, {'k': input.l})",
            "input.l.exists(a, input.s.contains('y'))",
            "input.l.exists(a, 'abc'.matches('(a{50}){50}'))",
            "input.l.exists(a, input.s.matches('y'))",
            "input.l.all(a, input.s == input.s + 'a' || true)",
            doubled.as_str(),
            copied.as_str(),
        ] {
            let ended = evaluated(text, input.clone());
            assert_eq!(ended, Err("it does too much: shorten its lists, or split it".into()), "{text}");
        }
    }

    #[test]
    fn what_people_write_is_within_budget_and_means_what_it_did() {
        let list: Vec<u32> = (0..10_000).collect();
        let input = json!({"l": list, "s": "x".repeat(200_000), "rows": [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}]});
        for (text, value) in [
            ("input.l.filter(x, x % 2 == 0).map(x, x * 2).size()", json!(5_000)),
            ("input.l.all(x, x >= 0)", json!(true)),
            ("input.rows.map(r, input.rows.exists(q, q.n > r.n))", json!([true, false])),
            ("input.rows.exists_one(r, r.t.matches('^[ab]$') && r.n == 2)", json!(true)),
            ("input.s.size() + input.l[9999]", json!(209_999)),
            ("has(input.rows[0].t) ? {'a': [input.rows[1].t + 'c']} : {}", json!({"a": ["bc"]})),
            ("optional.of(input.rows[0].n).orValue(7)", json!(1)),
            ("2 in [1, 2] && !('z' in input)", json!(true)),
        ] {
            assert_eq!(evaluated(text, input.clone()), Ok(value), "{text}");
        }
    }

    #[test]
    fn the_deepest_that_is_taken_is_evaluated_on_a_small_stack() {
        let sum = format!("1{}", "+1".repeat(SIGNS_MAX));
        let lists = format!("{}1{}", "[".repeat(NESTED_MAX), "]".repeat(NESTED_MAX));
        let loops = format!("[1]{}{}", ".map(x, [x]".repeat(NESTED_MAX / 2), ")".repeat(NESTED_MAX / 2));
        let run = move || [sum, lists, loops].iter().all(|text| evaluated(text, json!({})).is_ok());
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
        assert!(thread.join().unwrap());
    }

    #[test]
    fn what_is_shared_is_looked_at_by_name_and_what_is_its_own_is_paid_for() {
        let whole = toll::BUDGET;
        let step = |output: serde_json::Value| {
            Sight::map([("output", Sight::of(&output)), ("skipped", Sight::of(&json!(false)))])
        };
        let (a, dashed) = (step(json!({"rows": [1, 2.5, "x", null], "big": u64::MAX})), step(json!(["y"])));
        let (all, input) = (Sight::of(&json!({"a": true, "b-c": true})), Sight::of(&json!({"n": 41})));
        let shared = [("steps.a", &a), ("steps.b-c", &dashed), ("steps", &all), ("input", &input)];
        let at = |text: &str, item: &serde_json::Value, units| {
            let expression = Expression::compile(text).unwrap().by_members("steps");
            expression.evaluate_at(&shared, &[("item", item)], units)
        };
        for (text, value) in [
            ("input.n + 1", json!(42)),
            ("steps.a.output.rows", json!([1, 2.5, "x", null])),
            ("steps['a'].output.big", json!(u64::MAX)),
            ("steps['b-c'].output[0] + steps[\"b-c\"].output[0]", json!("yy")),
            ("size(steps.a.output.rows) + steps.a.output.rows.size()", json!(8)),
            ("steps.a.skipped ? 1 : item", json!(7)),
            ("has(steps.a.output.rows) && has(steps.a) && !has(steps.a.output.x)", json!(true)),
            ("input.n > 1 ? [item].map(steps, steps + 1) : []", json!([8])),
            ("steps.a", json!({"output": {"rows": [1, 2.5, "x", null], "big": u64::MAX}, "skipped": false})),
        ] {
            assert_eq!(at(text, &json!(7), whole), Ok(value), "{text}");
        }
        let long = json!("x".repeat(200_000));
        assert_eq!(at("size(item)", &long, 1_000), Err(Stop::Costly), "as much as making it a value costs");
        assert_eq!(at("size(item)", &long, whole), Ok(json!(200_000)));
        assert!(matches!(at("steps.a.output.none", &json!(1), 1_000), Err(Stop::Failed(_))));
        let busy = "[1,2,3,4].map(a, [1,2,3,4].map(b, a * b))";
        assert_eq!((at(busy, &json!(1), 20), at(busy, &json!(1), whole).is_ok()), (Err(Stop::Costly), true));
    }

    /// A list of a million is as long as it is for whoever asks, however often.
    #[test]
    fn how_long_a_list_is_costs_no_more_for_a_long_one() {
        let list = Sight::of(&json!(vec![0; 100_000]));
        let expression = Expression::compile("input.size() + size(input)").unwrap();
        assert_eq!(expression.evaluate_at(&[("input", &list)], &[], 100), Ok(json!(200_000)));
    }

    #[test]
    fn it_says_what_it_speaks_of() {
        let of = |text: &str| Expression::compile(text).unwrap().members_of("steps");
        let set = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>());
        assert_eq!(of("steps.a.output + steps['b-c'].output"), set(&["a", "b-c"]));
        assert_eq!(of("input.list.map(x, x + steps.a.output)"), set(&["a"]));
        assert_eq!(of("{'k': [steps.a.output, steps.b]}"), set(&["a", "b"]));
        assert_eq!(of("has(steps.a.output.x)"), set(&["a"]));
        assert_eq!(of("input.steps"), set(&[]));
        assert_eq!(of("steps[input.which]"), None);
        assert_eq!(of("size(steps)"), None);
        let asked = |text: &str| {
            let asked = Expression::compile(text).unwrap().fields_of("steps");
            asked.into_iter().map(|(member, field)| format!("{member}:{field}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(asked("steps.a.output.rows.map(r, r.n + steps['b-c'].outptu)"), "a:output b-c:outptu");
        assert_eq!(asked("{'k': [steps.a['x'], size(steps.b)]}"), "a:x");
        assert_eq!(asked("has(steps.a.x) && input.steps.a.x && steps.a.skipped"), "a:skipped");
        let sum = Expression::compile("a.b + c").unwrap();
        assert_eq!(sum.names().iter().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn what_a_loop_goes_by_is_its_own_and_only_there() {
        let of = |text: &str| Expression::compile(text).unwrap().names().iter().cloned().collect::<Vec<_>>();
        assert_eq!(of("input.rows.filter(r, r.n > limit).map(r, r.n)"), ["input", "limit"]);
        assert_eq!(of("input.l.exists(a, input.m.all(b, a == b && c))"), ["c", "input"]);
        assert_eq!(of("input.l.map(x, x) == [x]"), ["input", "x"], "out of its loop it is another's");
        assert_eq!(of("x.map(x, x)"), ["x"]);
        assert_eq!(of("input.l.exists_one(y, {y: [y]} == z)"), ["input", "z"]);
        assert_eq!(of("optional.of(input.a).orValue(1)"), ["input"]);
    }
}
