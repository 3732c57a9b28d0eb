//! The language once more, a value at a time and without kinds known beforehand: slow, plain, and only there to be compared
//! with. It shares the syntax and the calendar with the other, and nothing else.

use super::syntax::{Expr, What};
use crate::batch::{TEXT_BYTES_MAX, Value};
use crate::time;

/// What a checked expression gives for one event.
pub fn value(expr: &Expr, field: &dyn Fn(&str) -> Value) -> Value {
    match &expr.what {
        What::Literal(value) => value.clone(),
        What::Name(name) => field(name),
        What::In(one, of) => {
            let one = value(one, field);
            Value::Bool(of.iter().any(|other| call("==", &[one.clone(), value(other, field)]) == Value::Bool(true)))
        }
        What::Call(name, of) => {
            let of: Vec<Value> = of.iter().map(|one| value(one, field)).collect();
            match (name.as_str(), of.as_slice()) {
                ("least" | "greatest", [first, rest @ ..]) => {
                    rest.iter().fold(first.clone(), |a, b| call(name, &[a, b.clone()]))
                }
                ("clamp", [x, low, high]) => {
                    let raised = call("greatest", &[x.clone(), low.clone()]);
                    call("least", &[raised, high.clone()])
                }
                (name, of) => call(name, of),
            }
        }
    }
}

fn call(name: &str, of: &[Value]) -> Value {
    use Value::{Bool, Float, Int, Text, Time};
    let capped = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let whole = |a: i64, b: i64, name: &str| {
        let (a, b) = (i128::from(a), i128::from(b));
        capped(match name {
            "+" => a + b,
            "-" => a - b,
            "*" => a * b,
            "div" | "%" if b == 0 => 0,
            "div" => a / b,
            "%" => a % b,
            "least" => a.min(b),
            "greatest" => a.max(b),
            other => panic!("{other} of ints"),
        })
    };
    let widened: Vec<f64> = of.iter().filter_map(number).collect();
    match (name, of) {
        ("if", [Bool(holds), this, that]) => {
            let taken = if *holds { this } else { that };
            match (taken, this, that) {
                (Int(value), Float(_), _) | (Int(value), _, Float(_)) => Float(*value as f64),
                _ => taken.clone(),
            }
        }
        ("and", [Bool(a), Bool(b)]) => Bool(*a && *b),
        ("or", [Bool(a), Bool(b)]) => Bool(*a || *b),
        ("not", [Bool(a)]) => Bool(!a),
        ("==" | "!=" | "<" | "<=" | ">" | ">=", [a, b]) => Bool(compared(name, a, b)),

        ("-", [Int(a)]) => Int(capped(-i128::from(*a))),
        ("abs", [Int(a)]) => Int(capped(i128::from(*a).abs())),
        ("+" | "-" | "*" | "%" | "div" | "least" | "greatest", [Int(a), Int(b)]) => Int(whole(*a, *b, name)),
        ("-", [Time(a), Time(b)]) => Int(whole(*a, *b, name)),
        ("+" | "-", [Time(a), Int(b)]) => Time(whole(*a, *b, name)),
        ("+", [Int(a), Time(b)]) => Time(whole(*a, *b, name)),
        ("least" | "greatest", [Time(a), Time(b)]) => Time(whole(*a, *b, name)),

        ("+", [Text(a), Text(b)]) => Text(bounded(format!("{a}{b}"))),
        ("length", [Text(t)]) => Int(t.chars().count() as i64),
        ("lower", [Text(t)]) => Text(bounded(t.chars().flat_map(char::to_lowercase).collect())),
        ("upper", [Text(t)]) => Text(bounded(t.chars().flat_map(char::to_uppercase).collect())),
        ("trim", [Text(t)]) => Text(t.trim().to_owned()),
        ("contains", [Text(t), Text(piece)]) => Bool(t.contains(piece.as_str())),
        ("starts_with", [Text(t), Text(piece)]) => Bool(t.starts_with(piece.as_str())),
        ("ends_with", [Text(t), Text(piece)]) => Bool(t.ends_with(piece.as_str())),
        ("replace", [Text(t), Text(piece), Text(_)]) if piece.is_empty() => Text(t.clone()),
        ("replace", [Text(t), Text(piece), Text(by)]) => Text(bounded(t.replace(piece.as_str(), by))),
        ("part", [Text(t), Int(from), Int(count)]) => {
            let (from, count) = ((*from).max(0) as usize, (*count).max(0) as usize);
            Text(t.chars().skip(from).take(count).collect())
        }
        ("split", [Text(_), Text(_), Int(n)]) if *n < 0 => Text(String::new()),
        ("split", [Text(t), Text(separator), Int(n)]) => {
            let pieces: Vec<&str> = if separator.is_empty() { vec![t] } else { t.split(separator.as_str()).collect() };
            Text(pieces.get(*n as usize).copied().unwrap_or_default().to_owned())
        }

        ("year", [Time(at)]) => Int(time::date(*at).year),
        ("month", [Time(at)]) => Int(time::date(*at).month),
        ("day", [Time(at)]) => Int(time::date(*at).day),
        ("hour", [Time(at)]) => Int(time::hour(*at)),
        ("minute", [Time(at)]) => Int(time::minute(*at)),
        ("second", [Time(at)]) => Int(time::second(*at)),
        ("weekday", [Time(at)]) => Int(time::weekday(*at)),
        ("truncate", [Time(at), Int(step)]) => Time(time::truncate(*at, *step)),

        ("int", [Int(value) | Time(value)]) => Int(*value),
        ("int", [Float(value)]) => Int(*value as i64),
        ("int", [Bool(value)]) => Int(i64::from(*value)),
        ("int", [Text(t), Int(otherwise)]) => Int(t.trim().parse().unwrap_or(*otherwise)),
        ("float", [Text(t), otherwise]) => Float(t.trim().parse().ok().or_else(|| number(otherwise)).unwrap()),
        ("float", [value]) => Float(number(value).unwrap()),
        ("text", [Text(t)]) => Text(t.clone()),
        ("text", [Int(value)]) => Text(value.to_string()),
        ("text", [Float(value)]) => Text(format!("{value:?}")),
        ("text", [Bool(value)]) => Text(value.to_string()),
        ("text", [Time(at)]) => Text(time::format(*at).unwrap_or_else(|| at.to_string())),
        ("time", [Int(value) | Time(value)]) => Time(*value),
        ("time", [Text(t), Time(otherwise)]) => Time(time::parse(t.trim()).unwrap_or(*otherwise)),

        ("is_nan", [_]) => Bool(widened[0].is_nan()),
        (name, _) => Float(float(name, &widened)),
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn float(name: &str, of: &[f64]) -> f64 {
    match (name, of) {
        ("-", [a]) => -a,
        ("+", [a, b]) => a + b,
        ("-", [a, b]) => a - b,
        ("*", [a, b]) => a * b,
        ("/", [a, b]) => a / b,
        ("abs", [a]) => a.abs(),
        ("least", [a, b]) if a.is_nan() || b < a => *b,
        ("least", [a, _]) => *a,
        ("greatest", [a, b]) if a.is_nan() || b > a => *b,
        ("greatest", [a, _]) => *a,
        ("floor", [a]) => a.floor(),
        ("ceil", [a]) => a.ceil(),
        ("round", [a]) => a.round(),
        ("trunc", [a]) => a.trunc(),
        ("sqrt", [a]) => a.sqrt(),
        ("exp", [a]) => libm::exp(*a),
        ("ln", [a]) => libm::log(*a),
        ("log10", [a]) => libm::log10(*a),
        ("pow", [a, b]) => libm::pow(*a, *b),
        ("sin", [a]) => libm::sin(*a),
        ("cos", [a]) => libm::cos(*a),
        ("atan2", [a, b]) => libm::atan2(*a, *b),
        (name, of) => panic!("{name} of {of:?}"),
    }
}

fn compared(name: &str, a: &Value, b: &Value) -> bool {
    let order = match (a, b) {
        (Value::Int(a), Value::Int(b)) | (Value::Time(a), Value::Time(b)) => Some(a.cmp(b)),
        (Value::Text(a), Value::Text(b)) => Some(a.chars().cmp(b.chars())),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (a, b) => number(a).unwrap().partial_cmp(&number(b).unwrap()),
    };
    match name {
        "==" => order.is_some_and(|order| order.is_eq()),
        "!=" => order.is_none_or(|order| order.is_ne()),
        "<" => order.is_some_and(|order| order.is_lt()),
        "<=" => order.is_some_and(|order| order.is_le()),
        ">" => order.is_some_and(|order| order.is_gt()),
        _ => order.is_some_and(|order| order.is_ge()),
    }
}

fn bounded(text: String) -> String {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
