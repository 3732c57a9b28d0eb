//! Which functions and operators there are, what they take and what they give. The reference in docs/streams.md is held
//! against this table by a test.

use super::plan::{Compare, Op};
use crate::schema::Kind::{self, Bool, Float, Int, Text, Time};

/// One way to call something.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub takes: &'static [Kind],
    pub gives: Kind,
    pub op: Op,
}

pub struct Function {
    pub name: &'static str,
    /// How it is written.
    pub like: &'static str,
    pub ways: &'static [Way],
}

macro_rules! table {
    ($($name:literal, $like:literal: $([$($takes:ident),*] $gives:ident $op:expr),+;)+) => {
        &[$(Function { name: $name, like: $like, ways: &[$(Way { takes: &[$($takes),*], gives: $gives, op: $op }),+] }),+]
    };
}

pub const OPERATORS: &[Function] = table! {
    "+", "a + b": [Int, Int] Int Op::IntAdd, [Float, Float] Float Op::FloatAdd, [Text, Text] Text Op::Concat,
        [Time, Int] Time Op::IntAdd, [Int, Time] Time Op::IntAdd;
    "-", "a - b": [Int] Int Op::IntNegate, [Float] Float Op::FloatNegate, [Int, Int] Int Op::IntSubtract,
        [Float, Float] Float Op::FloatSubtract, [Time, Int] Time Op::IntSubtract, [Time, Time] Int Op::IntSubtract;
    "*", "a * b": [Int, Int] Int Op::IntMultiply, [Float, Float] Float Op::FloatMultiply;
    "/", "a / b": [Float, Float] Float Op::FloatDivide;
    "%", "a % b": [Int, Int] Int Op::IntRemainder;
    "and", "a and b": [Bool, Bool] Bool Op::And;
    "or", "a or b": [Bool, Bool] Bool Op::Or;
    "not", "not a": [Bool] Bool Op::Not;
    "==", "a == b": [Int, Int] Bool Op::IntCompare(Compare::Equal), [Float, Float] Bool Op::FloatCompare(Compare::Equal),
        [Text, Text] Bool Op::TextCompare(Compare::Equal), [Bool, Bool] Bool Op::BoolCompare(Compare::Equal),
        [Time, Time] Bool Op::IntCompare(Compare::Equal);
    "!=", "a != b": [Int, Int] Bool Op::IntCompare(Compare::NotEqual),
        [Float, Float] Bool Op::FloatCompare(Compare::NotEqual), [Text, Text] Bool Op::TextCompare(Compare::NotEqual),
        [Bool, Bool] Bool Op::BoolCompare(Compare::NotEqual), [Time, Time] Bool Op::IntCompare(Compare::NotEqual);
    "<", "a < b": [Int, Int] Bool Op::IntCompare(Compare::Less), [Float, Float] Bool Op::FloatCompare(Compare::Less),
        [Text, Text] Bool Op::TextCompare(Compare::Less), [Time, Time] Bool Op::IntCompare(Compare::Less);
    "<=", "a <= b": [Int, Int] Bool Op::IntCompare(Compare::LessOrEqual),
        [Float, Float] Bool Op::FloatCompare(Compare::LessOrEqual),
        [Text, Text] Bool Op::TextCompare(Compare::LessOrEqual), [Time, Time] Bool Op::IntCompare(Compare::LessOrEqual);
    ">", "a > b": [Int, Int] Bool Op::IntCompare(Compare::Greater),
        [Float, Float] Bool Op::FloatCompare(Compare::Greater), [Text, Text] Bool Op::TextCompare(Compare::Greater),
        [Time, Time] Bool Op::IntCompare(Compare::Greater);
    ">=", "a >= b": [Int, Int] Bool Op::IntCompare(Compare::GreaterOrEqual),
        [Float, Float] Bool Op::FloatCompare(Compare::GreaterOrEqual),
        [Text, Text] Bool Op::TextCompare(Compare::GreaterOrEqual),
        [Time, Time] Bool Op::IntCompare(Compare::GreaterOrEqual);
};

pub const FUNCTIONS: &[Function] = table! {
    "if", "if(condition, this, that)": [Bool, Int, Int] Int Op::If, [Bool, Float, Float] Float Op::If,
        [Bool, Bool, Bool] Bool Op::If, [Bool, Text, Text] Text Op::If, [Bool, Time, Time] Time Op::If;
    "least", "least(a, b, …)": [Int, Int] Int Op::IntLeast, [Float, Float] Float Op::FloatLeast,
        [Time, Time] Time Op::IntLeast;
    "greatest", "greatest(a, b, …)": [Int, Int] Int Op::IntGreatest, [Float, Float] Float Op::FloatGreatest,
        [Time, Time] Time Op::IntGreatest;
    "clamp", "clamp(x, low, high)": [Int, Int, Int] Int Op::IntLeast, [Float, Float, Float] Float Op::FloatLeast,
        [Time, Time, Time] Time Op::IntLeast;

    "abs", "abs(x)": [Int] Int Op::IntAbsolute, [Float] Float Op::FloatAbsolute;
    "div", "div(a, b)": [Int, Int] Int Op::IntDivide;
    "floor", "floor(x)": [Float] Float Op::Floor;
    "ceil", "ceil(x)": [Float] Float Op::Ceil;
    "round", "round(x)": [Float] Float Op::Round;
    "trunc", "trunc(x)": [Float] Float Op::Truncate;
    "sqrt", "sqrt(x)": [Float] Float Op::Root;
    "exp", "exp(x)": [Float] Float Op::Exp;
    "ln", "ln(x)": [Float] Float Op::Ln;
    "log10", "log10(x)": [Float] Float Op::Log10;
    "pow", "pow(x, y)": [Float, Float] Float Op::Power;
    "sin", "sin(x)": [Float] Float Op::Sine;
    "cos", "cos(x)": [Float] Float Op::Cosine;
    "atan2", "atan2(y, x)": [Float, Float] Float Op::Arctangent2;
    "is_nan", "is_nan(x)": [Float] Bool Op::IsNan;

    "length", "length(t)": [Text] Int Op::Length;
    "lower", "lower(t)": [Text] Text Op::Lower;
    "upper", "upper(t)": [Text] Text Op::Upper;
    "trim", "trim(t)": [Text] Text Op::Trim;
    "contains", "contains(t, piece)": [Text, Text] Bool Op::Contains;
    "starts_with", "starts_with(t, start)": [Text, Text] Bool Op::StartsWith;
    "ends_with", "ends_with(t, end)": [Text, Text] Bool Op::EndsWith;
    "replace", "replace(t, piece, by)": [Text, Text, Text] Text Op::Replace;
    "part", "part(t, from, count)": [Text, Int, Int] Text Op::Part;
    "split", "split(t, separator, n)": [Text, Text, Int] Text Op::Split;

    "year", "year(at)": [Time] Int Op::Year;
    "month", "month(at)": [Time] Int Op::Month;
    "day", "day(at)": [Time] Int Op::Day;
    "hour", "hour(at)": [Time] Int Op::Hour;
    "minute", "minute(at)": [Time] Int Op::Minute;
    "second", "second(at)": [Time] Int Op::Second;
    "weekday", "weekday(at)": [Time] Int Op::Weekday;
    "truncate", "truncate(at, step)": [Time, Int] Time Op::TimeTruncate;

    "int", "int(x) or int(t, otherwise)": [Int] Int Op::Relabel, [Float] Int Op::FloatToInt, [Bool] Int Op::BoolToInt,
        [Time] Int Op::Relabel, [Text, Int] Int Op::TextToInt;
    "float", "float(x) or float(t, otherwise)": [Float] Float Op::Relabel, [Int] Float Op::IntToFloat,
        [Text, Float] Float Op::TextToFloat;
    "text", "text(x)": [Int] Text Op::IntToText, [Float] Text Op::FloatToText, [Bool] Text Op::BoolToText,
        [Time] Text Op::TimeToText, [Text] Text Op::Relabel;
    "time", "time(micros) or time(t, otherwise)": [Int] Time Op::Relabel, [Time] Time Op::Relabel,
        [Text, Time] Time Op::TextToTime;
};

pub fn operator(name: &str) -> Option<&'static Function> {
    OPERATORS.iter().find(|function| function.name == name)
}

pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

impl Function {
    /// The way that takes exactly these kinds; else one that takes floats where there are ints.
    pub fn way(&self, given: &[Kind]) -> Option<&'static Way> {
        let fits =
            |way: &&Way, widens: bool| {
                way.takes.len() == given.len()
                    && way.takes.iter().zip(given).all(|(takes, given)| {
                        takes == given || (widens && *takes == Kind::Float && *given == Kind::Int)
                    })
            };
        let exact = self.ways.iter().find(|way| fits(way, false));
        exact.or_else(|| self.ways.iter().find(|way| fits(way, true)))
    }

    /// What it takes, for whoever gave something else: `int and int, or float and float`.
    pub fn takes(&self) -> String {
        let ways: Vec<String> = self.ways.iter().map(|way| kinds(way.takes)).collect();
        ways.join(", or ")
    }
}

pub fn kinds(kinds: &[Kind]) -> String {
    match kinds {
        [] => "nothing".into(),
        kinds => kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" and "),
    }
}
