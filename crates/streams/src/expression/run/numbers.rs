//! Steps over numbers and bools, and the answers that they give where arithmetic has none. `exp`, `ln` and their like come
//! from a library in Rust and not from the machine's: those differ in the last bit from one machine to the next.

use super::cells::{Cell, Cells, Scratch, Side};
use crate::batch::Column;
use crate::expression::plan::Compare;
use crate::schema::Kind;

pub fn one<A: Cell, R: Cell>(kind: Kind, of: &[Cells<'_>], scratch: &mut Scratch, step: impl Fn(A) -> R) -> Column {
    let mut out = R::buffer(scratch);
    match A::side(&of[0]) {
        Side::One(a) => out.push(step(a)),
        Side::Each(all) => out.extend(all.iter().map(|a| step(*a))),
    }
    R::column(out, kind)
}

pub fn two<A: Cell, B: Cell, R: Cell>(
    kind: Kind,
    of: &[Cells<'_>],
    scratch: &mut Scratch,
    step: impl Fn(A, B) -> R,
) -> Column {
    let mut out = R::buffer(scratch);
    match (A::side(&of[0]), B::side(&of[1])) {
        (Side::One(a), Side::One(b)) => out.push(step(a, b)),
        (Side::Each(all), Side::One(b)) => out.extend(all.iter().map(|a| step(*a, b))),
        (Side::One(a), Side::Each(all)) => out.extend(all.iter().map(|b| step(a, *b))),
        (Side::Each(left), Side::Each(right)) => out.extend(left.iter().zip(right).map(|(a, b)| step(*a, *b))),
    }
    R::column(out, kind)
}

pub fn compare<T: Cell + PartialOrd>(how: Compare, of: &[Cells<'_>], scratch: &mut Scratch) -> Column {
    match how {
        Compare::Equal => two(Kind::Bool, of, scratch, |a: T, b: T| a == b),
        Compare::NotEqual => two(Kind::Bool, of, scratch, |a: T, b: T| a != b),
        Compare::Less => two(Kind::Bool, of, scratch, |a: T, b: T| a < b),
        Compare::LessOrEqual => two(Kind::Bool, of, scratch, |a: T, b: T| a <= b),
        Compare::Greater => two(Kind::Bool, of, scratch, |a: T, b: T| a > b),
        Compare::GreaterOrEqual => two(Kind::Bool, of, scratch, |a: T, b: T| a >= b),
    }
}

/// `if`: both sides are there, and one of them is taken for each row.
pub fn choose<T: Cell>(kind: Kind, of: &[Cells<'_>], rows: usize, scratch: &mut Scratch) -> Column {
    let mut out = T::buffer(scratch);
    let (this, that) = (T::side(&of[1]), T::side(&of[2]));
    let pick = |holds: bool, a: T, b: T| if holds { a } else { b };
    match bool::side(&of[0]) {
        Side::One(holds) => out.extend((0..rows).map(|row| pick(holds, this.at(row), that.at(row)))),
        Side::Each(holds) => match (this, that) {
            (Side::One(a), Side::One(b)) => out.extend(holds.iter().map(|holds| pick(*holds, a, b))),
            (Side::Each(a), Side::One(b)) => out.extend(holds.iter().zip(a).map(|(holds, a)| pick(*holds, *a, b))),
            (Side::One(a), Side::Each(b)) => out.extend(holds.iter().zip(b).map(|(holds, b)| pick(*holds, a, *b))),
            (Side::Each(a), Side::Each(b)) => {
                out.extend(holds.iter().zip(a.iter().zip(b)).map(|(holds, (a, b))| pick(*holds, *a, *b)));
            }
        },
    }
    T::column(out, kind)
}

/// What is divided by nothing is nothing.
pub fn divide(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.saturating_div(b) }
}

pub fn remainder(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_rem(b) }
}

/// A number before what is none; of equals the first.
pub fn least(a: f64, b: f64) -> f64 {
    if b < a || a.is_nan() { b } else { a }
}

pub fn greatest(a: f64, b: f64) -> f64 {
    if b > a || a.is_nan() { b } else { a }
}
