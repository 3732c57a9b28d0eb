//! Arithmetic of whole numbers with fractions. JSON has one kind of number and CEL has two: a sensor that says 4.5 now and 5 then
//! would make an expression fail now and then. So where one side is a fraction, the other is taken for one too. Two whole
//! numbers stay as CEL has them: `7 / 2` is 3.

use cel::common::ast::operators::{ADD, DIVIDE, MULTIPLY, SUBSTRACT};
use cel::common::ast::{CallExpr, Expr};
use cel::common::functions::Function;
use cel::common::types::{CelDouble, CelInt, CelUInt};
use cel::common::value::{CowVal, Val};
use cel::{ExecutionError, Value};

/// Of each operator what stands in its place, a name that nobody can write.
pub const OPERATORS: [(&str, &str, Function); 4] =
    [(ADD, "@add", add), (SUBSTRACT, "@sub", sub), (MULTIPLY, "@mul", mul), (DIVIDE, "@div", div)];

/// The name that a call goes by; its own, where it is no such arithmetic.
pub fn named(call: &CallExpr) -> String {
    // A loop that gathers a list is known by its `+`.
    let gathers = matches!(call.args.first().map(|one| &one.expr), Some(Expr::Ident(name)) if name.starts_with('@'));
    let own = OPERATORS.iter().find(|(operator, ..)| *operator == call.func_name && call.target.is_none() && !gathers);
    own.map_or(&*call.func_name, |(_, name, _)| name).to_owned()
}

type Came<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn add<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Came<'b, 'v> {
    let (left, right) = alike(args)?;
    let of = left.as_adder().ok_or_else(|| unsupported("add", &left, &right))?;
    Ok(CowVal::Owned(of.add(right.as_ref())?.into_owned()))
}

fn sub<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Came<'b, 'v> {
    let (left, right) = alike(args)?;
    let of = left.as_subtractor().ok_or_else(|| unsupported("sub", &left, &right))?;
    Ok(CowVal::Owned(of.sub(right.as_ref())?.into_owned()))
}

fn mul<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Came<'b, 'v> {
    let (left, right) = alike(args)?;
    let of = left.as_multiplier().ok_or_else(|| unsupported("mul", &left, &right))?;
    Ok(CowVal::Owned(of.mul(right.as_ref())?.into_owned()))
}

fn div<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Came<'b, 'v> {
    let (left, right) = alike(args)?;
    let of = left.as_divider().ok_or_else(|| unsupported("div", &left, &right))?;
    Ok(CowVal::Owned(of.div(right.as_ref())?.into_owned()))
}

/// Both sides; both as fractions where one is.
fn alike<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Result<(CowVal<'b, 'v>, CowVal<'b, 'v>), ExecutionError> {
    let mut args = args.into_iter();
    let (Some(left), Some(right)) = (args.next(), args.next()) else {
        return Err(ExecutionError::MissingArgumentOrTarget);
    };
    let is_fraction = |one: &CowVal<'_, '_>| one.downcast_ref::<CelDouble>().is_some();
    Ok(match (is_fraction(&left), is_fraction(&right)) {
        (true, false) => (left, as_fraction(right)),
        (false, true) => (as_fraction(left), right),
        _ => (left, right),
    })
}

/// What is no number stays what it is.
fn as_fraction<'b, 'v>(one: CowVal<'b, 'v>) -> CowVal<'b, 'v> {
    let whole = one.downcast_ref::<CelInt>().map(|whole| *whole.inner() as f64);
    match whole.or_else(|| one.downcast_ref::<CelUInt>().map(|whole| *whole.inner() as f64)) {
        Some(fraction) => CowVal::owned(CelDouble::from(fraction)),
        None => one,
    }
}

fn unsupported(operator: &'static str, left: &CowVal<'_, '_>, right: &CowVal<'_, '_>) -> ExecutionError {
    let shown = |one: &dyn Val| Value::try_from(one).unwrap_or(Value::Null);
    ExecutionError::UnsupportedBinaryOperator(operator, shown(left.as_ref()), shown(right.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Expression, value_of};

    fn evaluated(text: &str, input: Value) -> Result<Value, String> {
        Expression::compile(text).unwrap().evaluate([("input", value_of(&input))])
    }

    /// Of a device that leaves the `.0` out.
    #[test]
    fn a_whole_number_meets_a_fraction_as_one() {
        let power = "input.watts / (input.volts * input.amperes)";
        for (watts, volts) in [(json!(900), json!(200)), (json!(900.0), json!(200)), (json!(900), json!(200.0))] {
            let read = json!({"watts": watts, "volts": volts, "amperes": 4.5});
            assert_eq!(evaluated(power, read), Ok(json!(1.0)));
        }
        let input = json!({"f": 0.5, "n": 3, "big": u64::MAX});
        for (text, comes) in [
            ("input.n + input.f", json!(3.5)),
            ("input.f - input.n", json!(-2.5)),
            ("input.n * 0.5 + 1", json!(2.5)),
            ("1 / input.f", json!(2.0)),
            ("input.big * 0.0", json!(0.0)),
            ("[1, 2.5].map(x, x * 2.0)", json!([2.0, 5.0])),
            ("[0.5].map(x, [x + 1, x])[0][0]", json!(1.5)),
        ] {
            assert_eq!(evaluated(text, input.clone()), Ok(comes), "{text}");
        }
    }

    #[test]
    fn everything_else_is_as_it_is_in_cel() {
        for (text, comes) in [
            ("7 / 2", json!(3)),
            ("7 - 2 + 1", json!(6)),
            ("'a' + 'b'", json!("ab")),
            ("[1] + [2]", json!([1, 2])),
            ("[1, 2, 3].filter(x, x > 1.5).map(x, x + 1)", json!([3, 4])),
            ("7 % 2", json!(1)),
        ] {
            assert_eq!(evaluated(text, json!({})), Ok(comes), "{text}");
        }
        for text in ["'a' + 1", "1.5 + 'a'", "1 / 0", "{} - 1", "true * 2"] {
            assert!(evaluated(text, json!({})).is_err(), "{text}");
        }
    }
}
