mod equal;

use crate::batch::{Batch, Value};
use crate::expression::functions::{FUNCTIONS, OPERATORS};
use crate::expression::{Expression, Flaw, Scratch};
use crate::schema::{Kind, Schema};

fn schema() -> Schema {
    Schema::of([
        ("n", Kind::Int),
        ("x", Kind::Float),
        ("yes", Kind::Bool),
        ("who", Kind::Text),
        ("at", Kind::Time),
        ("volts", Kind::Float),
    ])
}

fn flaws(text: &str) -> Vec<Flaw> {
    Expression::compile(text, &schema()).expect_err(text)
}

/// What it gives for an event with 7, 2.5, true, "Ana", 2026-11-16T15:50:34Z and 219.5.
fn given(text: &str) -> Value {
    let expression = Expression::compile(text, &schema()).unwrap_or_else(|flaws| panic!("{text}: {flaws:?}"));
    let mut batch = Batch::new(schema().into());
    let at = crate::time::parse("2026-11-16T15:50:34Z").unwrap();
    let row = [7.into(), 2.5.into(), true.into(), "Ana".into(), Value::Time(at), 219.5.into()];
    (0..3).for_each(|_| batch.push_row(&row).unwrap());
    let column = expression.run(&batch, &mut Scratch::default());
    assert_eq!((column.len(), column.kind()), (3, expression.kind()), "{text}");
    column.get(2)
}

#[test]
fn operators_bind_as_one_expects() {
    for (text, value) in [
        ("1 + 2 * 3", Value::Int(7)),
        ("(1 + 2) * n", Value::Int(21)),
        ("10 - 2 - 3", Value::Int(5)),
        ("-n + 1", Value::Int(-6)),
        ("2 - -n", Value::Int(9)),
        ("n / 2", Value::Float(3.5)),
        ("div(n, 2)", Value::Int(3)),
        ("-7 % 4", Value::Int(-3)),
        ("not yes or n == 7 and x > 2", Value::Bool(true)),
        ("!(yes && n == 7) || x < 2", Value::Bool(false)),
        ("n in [1, 7]", Value::Bool(true)),
        ("not who in ['Eva', \"Ana\"]", Value::Bool(false)),
        ("n + x", Value::Float(9.5)),
        ("n == 7.0", Value::Bool(true)),
        ("if(n > 5, 'many', who)", "many".into()),
        ("if(yes, n, x)", Value::Float(7.0)),
        ("least(n, 3, 5) + greatest(1, 2)", Value::Int(5)),
        ("clamp(x, 0, 1)", Value::Float(1.0)),
    ] {
        assert_eq!(given(text), value, "{text}");
    }
}

/// A plan is as long as what it is made of, also where lists stand in each other.
#[test]
fn what_is_looked_for_in_a_list_is_worked_out_once() {
    let schema = Schema::of([("yes", Kind::Bool)]);
    let text = (0..45).fold("yes".to_owned(), |inner, _| format!("({inner} in [true, false])"));
    let made = Expression::compile(&text, &schema).unwrap();
    assert!(format!("{:?}", made.node()).len() < 20_000);
}

#[test]
fn functions_give_what_the_reference_says() {
    for (text, value) in [
        ("who + '-' + text(n)", "Ana-7".into()),
        ("lower(who) + upper(who)", "anaANA".into()),
        ("length('héllo')", Value::Int(5)),
        ("part('héllo', 1, 2)", "él".into()),
        ("split('a/b/c', '/', 1)", "b".into()),
        ("split('a/b/c', '/', 9)", "".into()),
        ("replace(who, 'n', 'nn')", "Anna".into()),
        ("contains(who, 'na') and starts_with(who, 'A') and ends_with(trim(who + ' '), 'a')", Value::Bool(true)),
        ("int('12', 0) + int('twelve', 30)", Value::Int(42)),
        ("float(' 1.5 ', 0) + float('', 1)", Value::Float(2.5)),
        ("int(2.9) + int(-2.9) + int(yes)", Value::Int(1)),
        ("text(x) + text(yes)", "2.5true".into()),
        ("text(at)", "2026-11-16T15:50:34Z".into()),
        ("text(truncate(at, 1h) + 90s)", "2026-11-16T15:01:30Z".into()),
        ("at - time('2026-11-16T15:50:00Z', at)", Value::Int(34_000_000)),
        ("at >= time('2026-11-16T00:00:00Z', at)", Value::Bool(true)),
        ("year(at) * 10000 + month(at) * 100 + day(at)", Value::Int(20_261_116)),
        ("hour(at) + minute(at) + second(at) + weekday(at)", Value::Int(100)),
        ("time(int(at)) == at", Value::Bool(true)),
        ("1.5s + 1ms + 1us", Value::Int(1_501_001)),
        ("sqrt(16) + floor(2.7) + ceil(2.1) + round(2.5) + trunc(-2.7)", Value::Float(10.0)),
        ("pow(2, 10) + exp(0) + ln(1) + log10(1000)", Value::Float(1028.0)),
        ("sin(0) + cos(0) + atan2(0, 1) + abs(-1.0)", Value::Float(2.0)),
        ("is_nan(0.0 / 0) and not is_nan(x)", Value::Bool(true)),
        ("1_000 + 1e3", Value::Float(2000.0)),
    ] {
        assert_eq!(given(text), value, "{text}");
    }
}

#[test]
fn what_arithmetic_has_no_answer_for_is_defined() {
    let most = i64::MAX;
    for (text, value) in [
        (format!("{most} + 1"), Value::Int(i64::MAX)),
        (format!("-{most} - 2"), Value::Int(i64::MIN)),
        (format!("{most} * -2"), Value::Int(i64::MIN)),
        (format!("-(-{most} - 1)"), Value::Int(i64::MAX)),
        (format!("abs(-{most} - 1)"), Value::Int(i64::MAX)),
        (format!("div(-{most} - 1, -1)"), Value::Int(i64::MAX)),
        (format!("(-{most} - 1) % -1"), Value::Int(0)),
        ("div(n, 0) + n % 0".into(), Value::Int(0)),
        ("n / 0".into(), Value::Float(f64::INFINITY)),
        ("int(n / 0)".into(), Value::Int(i64::MAX)),
        ("int(0.0 / 0)".into(), Value::Int(0)),
        ("text(sqrt(-1))".into(), "NaN".into()),
        ("least(0.0 / 0, x)".into(), Value::Float(2.5)),
        ("text(at + 9223372036854775807)".into(), i64::MAX.to_string().as_str().into()),
    ] {
        assert_eq!(given(&text), value, "{text}");
    }
}

#[test]
fn a_flaw_says_where_and_what_to_do() {
    for (text, at, words) in [
        ("volt > 1", 0, "there is no field \"volt\"; did you mean \"volts\"?"),
        ("1 + temperature", 4, "there is no field \"temperature\"; there is n, x, yes, who, at, volts"),
        ("lenght(who)", 0, "there is no function \"lenght\"; did you mean \"length\"?"),
        ("who + n", 4, "this is text and int; text(x) makes a text of anything"),
        ("n and yes", 2, "a and b takes bool and bool, and this is int and bool; compare it: x != 0"),
        ("int(who)", 0, "say what it is when the text is none: int(t, 0)"),
        ("yes < yes", 4, "this is bool and bool"),
        ("who == 7", 4, "this is text and int"),
        ("if(yes, who, 1)", 0, "both answers must be of one kind"),
        ("n = 7", 2, "\"=\" means nothing here; to compare, write =="),
        ("yes & yes", 4, "write and"),
        ("yes ? 1 : 2", 4, "write if(condition, this, that)"),
        ("1 < n < 3", 6, "comparisons do not follow each other; write a < b and b < c"),
        ("n + ", 3, "it ends where a value is expected"),
        ("n 7", 2, "\"7\" is not expected here; an operator"),
        ("(n", 2, "the end stands where \")\" is expected"),
        ("n)", 1, "one \")\" too many"),
        ("n in []", 2, "nothing is in an empty list"),
        ("'abc", 0, "this text does not end"),
        ("'a\\q'", 2, "means nothing in a text"),
        ("7x", 0, "\"7x\" is no number"),
        ("9223372036854775808", 0, "too large for 64 bits"),
        ("", 0, "there is nothing here"),
        ("x § 1", 2, "\"§\" means nothing here"),
        ("length", 0, "the function is written length(t)"),
        ("length(who, who)", 0, "length(t) takes text, and this is text and text"),
    ] {
        let flaw = &flaws(text)[0];
        assert!(flaw.at == at && flaw.to_string().contains(words), "{text} gave {} at {}", flaw, flaw.at);
    }
}

#[test]
fn all_flaws_of_an_expression_are_told() {
    let all: Vec<usize> = flaws("volt + amp > lenght(whom)").iter().map(|flaw| flaw.at).collect();
    assert_eq!(all, [0, 7, 13, 20]);
}

#[test]
fn what_is_too_deep_or_too_long_is_refused() {
    let deep = ["(".repeat(4_000), "(".repeat(60) + "n", "-".repeat(4_000), "not ".repeat(400) + "("];
    let long = ["n+".repeat(2_000) + "n", "x".repeat(9_000)];
    deep.iter().chain(&long).for_each(|text| drop(flaws(text)));
    let long = "n + ".repeat(240) + "n";
    assert_eq!(given(&long), Value::Int(7 * 241));
}

#[test]
fn what_reads_nothing_is_worked_out_at_definition() {
    let of = |text: &str| Expression::compile(text, &schema()).unwrap();
    assert_eq!(of("1h + 2 * 3").always(), Some(&Value::Int(3_600_000_006)));
    assert_eq!(of("n + 0").always(), None);
    assert_eq!(of("n + volts * n").fields(), [0, 5]);
    assert_eq!((of("volts").field(), of("float(volts)").field(), of("-volts").field()), (Some(5), Some(5), None));
}

#[test]
fn rows_are_selected_by_columns_and_by_constants() {
    let mut batch = Batch::new(schema().into());
    for n in 0..10 {
        let row = [n.into(), 0.5.into(), (n % 2 == 0).into(), "a".into(), Value::Time(n), 1.0.into()];
        batch.push_row(&row).unwrap();
    }
    let (mut scratch, mut rows) = (Scratch::default(), vec![99]);
    for (text, kept) in [
        ("n > 6", vec![7, 8, 9]),
        ("yes", vec![0, 2, 4, 6, 8]),
        ("1 < 2", (0..10).collect()),
        ("1 > 2", vec![]),
        ("if(1 > 2, yes, n == 3)", vec![3]),
    ] {
        Expression::compile(text, &schema()).unwrap().select(&batch, &mut scratch, &mut rows);
        assert_eq!(rows, kept, "{text}");
    }
}

/// Each function and operator stands in the reference, as it is written.
#[test]
fn the_reference_lists_every_function() {
    let page = include_str!("../../../../docs/streams.md");
    for function in OPERATORS.iter().chain(FUNCTIONS) {
        let ways = if function.name == "or" { vec![function.like] } else { function.like.split(" or ").collect() };
        for like in ways {
            assert!(page.contains(&format!("`{like}`")), "docs/streams.md does not say `{like}`");
        }
    }
}
