//! Steps over texts. What they make is cut where it gets longer than a text may be.

use super::cells::{Cell, Cells, Scratch, TextSide};
use crate::batch::{Column, TEXT_BYTES_MAX};
use crate::expression::plan::Compare;
use crate::schema::Kind;

/// A text for each row.
pub fn write(rows: usize, scratch: &mut Scratch, write: impl Fn(usize, &mut String)) -> Column {
    let mut out = scratch.texts();
    (0..rows).for_each(|row| out.push_with(|all| write(row, all)));
    Column::Text(out)
}

/// A number or bool of each text.
pub fn read<R: Cell>(kind: Kind, rows: usize, scratch: &mut Scratch, read: impl Fn(usize) -> R) -> Column {
    let mut out = R::buffer(scratch);
    out.extend((0..rows).map(read));
    R::column(out, kind)
}

pub fn compare(how: Compare, of: &[Cells<'_>], scratch: &mut Scratch) -> Column {
    match how {
        Compare::Equal => two(of, scratch, |a, b| a == b),
        Compare::NotEqual => two(of, scratch, |a, b| a != b),
        Compare::Less => two(of, scratch, |a, b| a < b),
        Compare::LessOrEqual => two(of, scratch, |a, b| a <= b),
        Compare::Greater => two(of, scratch, |a, b| a > b),
        Compare::GreaterOrEqual => two(of, scratch, |a, b| a >= b),
    }
}

/// The bytes of texts stand in the order of their characters.
fn two(of: &[Cells<'_>], scratch: &mut Scratch, step: impl Fn(&[u8], &[u8]) -> bool) -> Column {
    let mut out = bool::buffer(scratch);
    match (of[0].texts(), of[1].texts()) {
        (TextSide::One(a), TextSide::One(b)) => out.push(step(a.as_bytes(), b.as_bytes())),
        (TextSide::Each(all), TextSide::One(b)) => out.extend(all.iter_bytes().map(|a| step(a, b.as_bytes()))),
        (TextSide::One(a), TextSide::Each(all)) => out.extend(all.iter_bytes().map(|b| step(a.as_bytes(), b))),
        (TextSide::Each(left), TextSide::Each(right)) => {
            out.extend(left.iter_bytes().zip(right.iter_bytes()).map(|(a, b)| step(a, b)));
        }
    }
    Column::Bool(out)
}

pub fn lower(text: &str, out: &mut String) {
    match text.is_ascii() {
        true => out.extend(text.bytes().map(|b| b.to_ascii_lowercase() as char)),
        false => out.extend(text.chars().flat_map(char::to_lowercase)),
    }
}

pub fn upper(text: &str, out: &mut String) {
    match text.is_ascii() {
        true => out.extend(text.bytes().map(|b| b.to_ascii_uppercase() as char)),
        false => out.extend(text.chars().flat_map(char::to_uppercase)),
    }
}

/// Where there is no piece to look for, nothing is replaced. Stops where the text would be cut anyway.
pub fn replace(text: &str, piece: &str, by: &str, out: &mut String) {
    if piece.is_empty() {
        out.push_str(text);
        return;
    }
    let (start, mut done) = (out.len(), 0);
    for (at, found) in text.match_indices(piece) {
        out.push_str(&text[done..at]);
        out.push_str(by);
        done = at + found.len();
        if out.len() - start > TEXT_BYTES_MAX {
            return;
        }
    }
    out.push_str(&text[done..]);
}

/// So many characters from there on; the first is 0.
pub fn part(text: &str, from: i64, count: i64) -> &str {
    let (from, count) = (usize::try_from(from).unwrap_or(0), usize::try_from(count).unwrap_or(0));
    let place = |text: &str, n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let rest = &text[place(text, from)..];
    &rest[..place(rest, count)]
}

/// The piece of this number between separators; the first is 0. No text where there is no such piece.
pub fn split<'a>(text: &'a str, separator: &str, n: i64) -> &'a str {
    let Ok(n) = usize::try_from(n) else { return "" };
    match (separator, n) {
        ("", 0) => text,
        ("", _) => "",
        (separator, n) => text.split(separator).nth(n).unwrap_or(""),
    }
}
