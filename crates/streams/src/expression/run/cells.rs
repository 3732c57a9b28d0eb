//! What a step is given: a value for all rows, or one for each; and the buffers that it fills.

use crate::batch::{Column, Texts, Value};
use crate::schema::Kind;

/// The most buffers of a kind that are kept for later.
const KEPT_MAX: usize = 16;

pub enum Cells<'b> {
    /// The same for all rows.
    One(Value),
    /// A column of the batch.
    Lent(&'b Column),
    /// What another step made.
    Own(Column),
}

impl Cells<'_> {
    pub fn column(&self) -> Option<&Column> {
        match self {
            Cells::One(_) => None,
            Cells::Lent(column) => Some(column),
            Cells::Own(column) => Some(column),
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Cells::One(value) => value.kind(),
            Cells::Lent(column) => column.kind(),
            Cells::Own(column) => column.kind(),
        }
    }

    fn stray(&self, wanted: &str) -> ! {
        unreachable!("a checked step that takes {wanted} was given {}", self.kind())
    }

    pub fn texts(&self) -> TextSide<'_> {
        match (self, self.column()) {
            (_, Some(Column::Text(all))) => TextSide::Each(all),
            (Cells::One(Value::Text(text)), _) => TextSide::One(text),
            _ => self.stray("texts"),
        }
    }
}

/// Numbers and bools: what is copied and kept in slices.
pub enum Side<'a, T> {
    One(T),
    Each(&'a [T]),
}

impl<T: Copy> Side<'_, T> {
    /// For steps whose other operands make them slow anyway.
    pub fn at(&self, row: usize) -> T {
        match self {
            Side::One(value) => *value,
            Side::Each(all) => all[row],
        }
    }
}

pub enum TextSide<'a> {
    One(&'a str),
    Each(&'a Texts),
}

impl<'a> TextSide<'a> {
    pub fn at(&self, row: usize) -> &'a str {
        match self {
            TextSide::One(text) => text,
            TextSide::Each(all) => all.get(row),
        }
    }
}

pub trait Cell: Copy {
    fn side<'a>(cells: &'a Cells<'_>) -> Side<'a, Self>;
    fn buffer(scratch: &mut Scratch) -> Vec<Self>;
    fn column(filled: Vec<Self>, kind: Kind) -> Column;
}

impl Cell for i64 {
    fn side<'a>(cells: &'a Cells<'_>) -> Side<'a, i64> {
        match (cells, cells.column()) {
            (_, Some(Column::Int(all) | Column::Time(all))) => Side::Each(all),
            (Cells::One(Value::Int(value) | Value::Time(value)), _) => Side::One(*value),
            _ => cells.stray("ints"),
        }
    }

    fn buffer(scratch: &mut Scratch) -> Vec<i64> {
        scratch.ints.pop().unwrap_or_default()
    }

    fn column(filled: Vec<i64>, kind: Kind) -> Column {
        if kind == Kind::Time { Column::Time(filled) } else { Column::Int(filled) }
    }
}

impl Cell for f64 {
    fn side<'a>(cells: &'a Cells<'_>) -> Side<'a, f64> {
        match (cells, cells.column()) {
            (_, Some(Column::Float(all))) => Side::Each(all),
            (Cells::One(Value::Float(value)), _) => Side::One(*value),
            _ => cells.stray("floats"),
        }
    }

    fn buffer(scratch: &mut Scratch) -> Vec<f64> {
        scratch.floats.pop().unwrap_or_default()
    }

    fn column(filled: Vec<f64>, _: Kind) -> Column {
        Column::Float(filled)
    }
}

impl Cell for bool {
    fn side<'a>(cells: &'a Cells<'_>) -> Side<'a, bool> {
        match (cells, cells.column()) {
            (_, Some(Column::Bool(all))) => Side::Each(all),
            (Cells::One(Value::Bool(value)), _) => Side::One(*value),
            _ => cells.stray("bools"),
        }
    }

    fn buffer(scratch: &mut Scratch) -> Vec<bool> {
        scratch.bools.pop().unwrap_or_default()
    }

    fn column(filled: Vec<bool>, _: Kind) -> Column {
        Column::Bool(filled)
    }
}

/// Buffers between their uses. Each of those is empty.
#[derive(Debug, Default)]
pub struct Scratch {
    ints: Vec<Vec<i64>>,
    floats: Vec<Vec<f64>>,
    bools: Vec<Vec<bool>>,
    texts: Vec<Texts>,
}

impl Scratch {
    pub(super) fn texts(&mut self) -> Texts {
        self.texts.pop().unwrap_or_default()
    }

    /// Takes back what a step made and nobody needs any more.
    pub(super) fn give(&mut self, cells: Cells<'_>) {
        if let Cells::Own(column) = cells {
            self.recycle(column);
        }
    }

    /// Takes a column whose buffer may be used again.
    pub fn recycle(&mut self, column: Column) {
        fn keep<T>(kept: &mut Vec<T>, buffer: T) {
            if kept.len() < KEPT_MAX {
                kept.push(buffer);
            }
        }
        let mut column = column;
        column.clear();
        match column {
            Column::Int(buffer) | Column::Time(buffer) => keep(&mut self.ints, buffer),
            Column::Float(buffer) => keep(&mut self.floats, buffer),
            Column::Bool(buffer) => keep(&mut self.bools, buffer),
            Column::Text(buffer) => keep(&mut self.texts, buffer),
        }
    }

    pub(super) fn copy(&mut self, column: &Column) -> Column {
        fn copied<T: Cell>(scratch: &mut Scratch, all: &[T], kind: Kind) -> Column {
            let mut buffer = T::buffer(scratch);
            buffer.extend_from_slice(all);
            T::column(buffer, kind)
        }
        match column {
            Column::Int(all) | Column::Time(all) => copied(self, all, column.kind()),
            Column::Float(all) => copied(self, all, Kind::Float),
            Column::Bool(all) => copied(self, all, Kind::Bool),
            Column::Text(all) => {
                let mut buffer = self.texts();
                buffer.append(all, 0..all.len());
                Column::Text(buffer)
            }
        }
    }

    pub(super) fn filled(&mut self, value: &Value, kind: Kind, rows: usize) -> Column {
        fn filled<T: Cell>(scratch: &mut Scratch, value: T, kind: Kind, rows: usize) -> Column {
            let mut buffer = T::buffer(scratch);
            buffer.resize(rows, value);
            T::column(buffer, kind)
        }
        match value {
            Value::Int(value) | Value::Time(value) => filled(self, *value, kind, rows),
            Value::Float(value) => filled(self, *value, kind, rows),
            Value::Bool(value) => filled(self, *value, kind, rows),
            Value::Text(value) => {
                let mut buffer = self.texts();
                (0..rows).for_each(|_| buffer.push(value));
                Column::Text(buffer)
            }
        }
    }
}
