//! Which loop a step is.

use std::fmt::Write;

use super::cells::{Cell, Cells, Scratch};
use super::numbers::{self, choose, compare, one, two};
use super::texts;
use crate::batch::Column;
use crate::expression::plan::Op;
use crate::schema::Kind;
use crate::time;

/// The operands are of the kinds that the step was checked for. With `rows` 1, each may be a single value; else one of them
/// is a column of as many rows.
pub fn apply(op: Op, kind: Kind, of: &[Cells<'_>], rows: usize, scratch: &mut Scratch) -> Column {
    match op {
        Op::IntNegate => one(kind, of, scratch, i64::saturating_neg),
        Op::IntAdd => two(kind, of, scratch, i64::saturating_add),
        Op::IntSubtract => two(kind, of, scratch, i64::saturating_sub),
        Op::IntMultiply => two(kind, of, scratch, i64::saturating_mul),
        Op::IntDivide => two(kind, of, scratch, numbers::divide),
        Op::IntRemainder => two(kind, of, scratch, numbers::remainder),
        Op::IntAbsolute => one(kind, of, scratch, i64::saturating_abs),
        Op::IntLeast => two(kind, of, scratch, |a: i64, b: i64| a.min(b)),
        Op::IntGreatest => two(kind, of, scratch, |a: i64, b: i64| a.max(b)),
        Op::IntCompare(how) => compare::<i64>(how, of, scratch),

        Op::FloatNegate => one(kind, of, scratch, |a: f64| -a),
        Op::FloatAdd => two(kind, of, scratch, |a: f64, b: f64| a + b),
        Op::FloatSubtract => two(kind, of, scratch, |a: f64, b: f64| a - b),
        Op::FloatMultiply => two(kind, of, scratch, |a: f64, b: f64| a * b),
        Op::FloatDivide => two(kind, of, scratch, |a: f64, b: f64| a / b),
        Op::FloatAbsolute => one(kind, of, scratch, f64::abs),
        Op::FloatLeast => two(kind, of, scratch, numbers::least),
        Op::FloatGreatest => two(kind, of, scratch, numbers::greatest),
        Op::FloatCompare(how) => compare::<f64>(how, of, scratch),
        Op::Floor => one(kind, of, scratch, f64::floor),
        Op::Ceil => one(kind, of, scratch, f64::ceil),
        Op::Round => one(kind, of, scratch, f64::round),
        Op::Truncate => one(kind, of, scratch, f64::trunc),
        Op::Root => one(kind, of, scratch, f64::sqrt),
        Op::Exp => one(kind, of, scratch, libm::exp),
        Op::Ln => one(kind, of, scratch, libm::log),
        Op::Log10 => one(kind, of, scratch, libm::log10),
        Op::Power => two(kind, of, scratch, libm::pow),
        Op::Sine => one(kind, of, scratch, libm::sin),
        Op::Cosine => one(kind, of, scratch, libm::cos),
        Op::Arctangent2 => two(kind, of, scratch, libm::atan2),
        Op::IsNan => one(kind, of, scratch, f64::is_nan),

        Op::And => two(kind, of, scratch, |a: bool, b: bool| a & b),
        Op::Or => two(kind, of, scratch, |a: bool, b: bool| a | b),
        Op::Not => one(kind, of, scratch, |a: bool| !a),
        Op::BoolCompare(how) => compare::<bool>(how, of, scratch),
        Op::If => match kind {
            Kind::Int | Kind::Time => choose::<i64>(kind, of, rows, scratch),
            Kind::Float => choose::<f64>(kind, of, rows, scratch),
            Kind::Bool => choose::<bool>(kind, of, rows, scratch),
            Kind::Text => {
                let (holds, this, that) = (bool::side(&of[0]), of[1].texts(), of[2].texts());
                texts::write(rows, scratch, |row, out| {
                    out.push_str(if holds.at(row) { this.at(row) } else { that.at(row) });
                })
            }
        },

        Op::In => is_in(of, rows, scratch),

        Op::TextCompare(how) => texts::compare(how, of, scratch),
        Op::Length => with_text(kind, of, rows, scratch, |text| text.chars().count() as i64),
        Op::Contains | Op::StartsWith | Op::EndsWith => {
            let (text, piece) = (of[0].texts(), of[1].texts());
            let holds: fn(&str, &str) -> bool = match op {
                Op::Contains => |text, piece| text.contains(piece),
                Op::StartsWith => |text, piece| text.starts_with(piece),
                _ => |text, piece| text.ends_with(piece),
            };
            texts::read(kind, rows, scratch, |row| holds(text.at(row), piece.at(row)))
        }
        Op::Concat => {
            let (a, b) = (of[0].texts(), of[1].texts());
            texts::write(rows, scratch, |row, out| {
                out.push_str(a.at(row));
                out.push_str(b.at(row));
            })
        }
        Op::Lower => to_text(of, rows, scratch, texts::lower),
        Op::Upper => to_text(of, rows, scratch, texts::upper),
        Op::Trim => to_text(of, rows, scratch, |text, out| out.push_str(text.trim())),
        Op::Replace => {
            let (text, piece, by) = (of[0].texts(), of[1].texts(), of[2].texts());
            texts::write(rows, scratch, |row, out| texts::replace(text.at(row), piece.at(row), by.at(row), out))
        }
        Op::Part => {
            let (text, from, count) = (of[0].texts(), i64::side(&of[1]), i64::side(&of[2]));
            texts::write(rows, scratch, |row, out| {
                out.push_str(texts::part(text.at(row), from.at(row), count.at(row)));
            })
        }
        Op::Split => {
            let (text, separator, n) = (of[0].texts(), of[1].texts(), i64::side(&of[2]));
            texts::write(rows, scratch, |row, out| {
                out.push_str(texts::split(text.at(row), separator.at(row), n.at(row)));
            })
        }

        Op::Year => one(kind, of, scratch, |at: i64| time::date(at).year),
        Op::Month => one(kind, of, scratch, |at: i64| time::date(at).month),
        Op::Day => one(kind, of, scratch, |at: i64| time::date(at).day),
        Op::Hour => one(kind, of, scratch, time::hour),
        Op::Minute => one(kind, of, scratch, time::minute),
        Op::Second => one(kind, of, scratch, time::second),
        Op::Weekday => one(kind, of, scratch, time::weekday),
        Op::TimeTruncate => two(kind, of, scratch, time::truncate),

        Op::Relabel => one(kind, of, scratch, |value: i64| value),
        Op::IntToFloat => one(kind, of, scratch, |value: i64| value as f64),
        Op::FloatToInt => one(kind, of, scratch, |value: f64| value as i64),
        Op::BoolToInt => one(kind, of, scratch, |value: bool| i64::from(value)),
        Op::IntToText => number_text::<i64>(of, rows, scratch, |value, out| write!(out, "{value}")),
        Op::FloatToText => number_text::<f64>(of, rows, scratch, |value, out| write!(out, "{value:?}")),
        Op::BoolToText => number_text::<bool>(of, rows, scratch, |value, out| write!(out, "{value}")),
        Op::TimeToText => number_text::<i64>(of, rows, scratch, |value, out| match time::format(value) {
            Some(text) => out.write_str(&text),
            None => write!(out, "{value}"),
        }),
        Op::TextToInt => from_text::<i64>(kind, of, rows, scratch, |text| text.trim().parse().ok()),
        Op::TextToFloat => from_text::<f64>(kind, of, rows, scratch, |text| text.trim().parse().ok()),
        Op::TextToTime => from_text::<i64>(kind, of, rows, scratch, |text| time::parse(text.trim())),
    }
}

fn with_text<R: Cell>(
    kind: Kind,
    of: &[Cells<'_>],
    rows: usize,
    scratch: &mut Scratch,
    step: impl Fn(&str) -> R,
) -> Column {
    let text = of[0].texts();
    texts::read(kind, rows, scratch, |row| step(text.at(row)))
}

fn to_text(of: &[Cells<'_>], rows: usize, scratch: &mut Scratch, step: impl Fn(&str, &mut String)) -> Column {
    let text = of[0].texts();
    texts::write(rows, scratch, |row, out| step(text.at(row), out))
}

fn number_text<A: Cell>(
    of: &[Cells<'_>],
    rows: usize,
    scratch: &mut Scratch,
    step: impl Fn(A, &mut String) -> std::fmt::Result,
) -> Column {
    let value = A::side(&of[0]);
    texts::write(rows, scratch, |row, out| {
        // A text takes whatever is written to it.
        let _ = step(value.at(row), out);
    })
}

/// A number of each text, or the second operand where it is none.
fn from_text<R: Cell>(
    kind: Kind,
    of: &[Cells<'_>],
    rows: usize,
    scratch: &mut Scratch,
    step: impl Fn(&str) -> Option<R>,
) -> Column {
    let (text, otherwise) = (of[0].texts(), R::side(&of[1]));
    texts::read(kind, rows, scratch, |row| step(text.at(row)).unwrap_or_else(|| otherwise.at(row)))
}

/// Whether the first equals one of the others, row by row.
fn is_in(of: &[Cells<'_>], rows: usize, scratch: &mut Scratch) -> Column {
    fn either(found: &mut [bool], same: impl Fn(usize) -> bool) {
        found.iter_mut().enumerate().for_each(|(row, found)| *found |= same(row));
    }
    let mut found = bool::buffer(scratch);
    found.resize(rows, false);
    let one = &of[0];
    for other in &of[1..] {
        match (one.kind(), other.kind()) {
            (Kind::Text, _) => {
                let (a, b) = (one.texts(), other.texts());
                either(&mut found, |row| a.at(row) == b.at(row));
            }
            (Kind::Bool, _) => {
                let (a, b) = (bool::side(one), bool::side(other));
                either(&mut found, |row| a.at(row) == b.at(row));
            }
            (Kind::Float, Kind::Float) => {
                let (a, b) = (f64::side(one), f64::side(other));
                either(&mut found, |row| a.at(row) == b.at(row));
            }
            (Kind::Float, _) => {
                let (a, b) = (f64::side(one), i64::side(other));
                either(&mut found, |row| a.at(row) == b.at(row) as f64);
            }
            (_, Kind::Float) => {
                let (a, b) = (i64::side(one), f64::side(other));
                either(&mut found, |row| a.at(row) as f64 == b.at(row));
            }
            (Kind::Int | Kind::Time, _) => {
                let (a, b) = (i64::side(one), i64::side(other));
                either(&mut found, |row| a.at(row) == b.at(row));
            }
        }
    }
    bool::column(found, Kind::Bool)
}
