//! One aggregate of all keys of a jumping window, a cell for each key. Events are added a column at a time: which key each row
//! has was found once, and the loop over rows does nothing else than add.

use super::distinct::Distinct;
use super::exact::{Exact, Moments};
use super::frequent::Frequent;
use super::item::Item;
use super::quantile::Quantiles;
use super::{Function, held, of_rank, part_of, rank, write_counts};
use crate::batch::Column;
use crate::schema::Kind;
use crate::state::{Reader, Stored, Unreadable, Writer};

#[derive(Clone, Debug)]
pub struct Cells {
    function: Function,
    all: All,
    /// What is held beside the cells themselves.
    bytes: usize,
}

#[derive(Clone, Debug)]
enum All {
    /// The window counts its events anyway.
    Count,
    Whole(Vec<i128>),
    Exact(Vec<Exact>),
    Moments(Vec<Moments>),
    /// The least or greatest int or time.
    Int(Vec<i64>),
    /// The least or greatest float, by rank.
    Rank(Vec<i64>),
    Text(Vec<Option<Item>>),
    Quantiles(Vec<Quantiles>),
    /// So many parts for each key.
    Parts(Vec<u64>),
    Distinct(Vec<Distinct>),
    Frequent(Vec<Frequent>),
    /// The first or last, and its time.
    Edge(Vec<Option<(i64, Item)>>),
}

impl Cells {
    /// For a field of this kind, which the function was checked against.
    pub fn of(function: &Function, kind: Option<Kind>) -> Self {
        let float = kind == Some(Kind::Float);
        let all = match function {
            Function::Count => All::Count,
            Function::Sum | Function::Mean if float => All::Exact(Vec::new()),
            Function::Sum | Function::Mean => All::Whole(Vec::new()),
            Function::Variance => All::Moments(Vec::new()),
            Function::Min | Function::Max if kind == Some(Kind::Text) => All::Text(Vec::new()),
            Function::Min | Function::Max if float => All::Rank(Vec::new()),
            Function::Min | Function::Max => All::Int(Vec::new()),
            Function::Percentile(_) => All::Quantiles(Vec::new()),
            Function::Histogram(_) => All::Parts(Vec::new()),
            Function::Distinct => All::Distinct(Vec::new()),
            Function::Frequent(_) => All::Frequent(Vec::new()),
            Function::First | Function::Last => All::Edge(Vec::new()),
        };
        Self { function: function.clone(), all, bytes: 0 }
    }

    /// What an extreme starts from: whatever comes is at least as far.
    fn start(&self) -> i64 {
        if self.function == Function::Min { i64::MAX } else { i64::MIN }
    }

    fn parts(&self) -> usize {
        if let Function::Histogram(bounds) = &self.function { bounds.len() + 1 } else { 0 }
    }

    /// Makes cells for so many keys.
    pub fn resize(&mut self, keys: usize) {
        let (start, parts) = (self.start(), self.parts());
        match &mut self.all {
            All::Count => {}
            All::Whole(all) => all.resize(keys, 0),
            All::Exact(all) => all.resize_with(keys, Exact::default),
            All::Moments(all) => all.resize_with(keys, Moments::default),
            All::Int(all) | All::Rank(all) => all.resize(keys, start),
            All::Text(all) => all.resize(keys, None),
            All::Quantiles(all) => all.resize_with(keys, Quantiles::default),
            All::Parts(all) => all.resize(keys * parts, 0),
            All::Distinct(all) => all.resize_with(keys, Distinct::default),
            All::Frequent(all) => all.resize_with(keys, Frequent::default),
            All::Edge(all) => all.resize(keys, None),
        }
    }

    /// What a cell holds beside itself, about.
    fn held(&self, key: usize) -> usize {
        match &self.all {
            All::Text(all) => all[key].as_ref().map_or(0, Item::bytes),
            All::Edge(all) => all[key].as_ref().map_or(0, |(_, item)| item.bytes()),
            All::Quantiles(all) => all[key].bytes(),
            All::Distinct(all) => all[key].bytes(),
            All::Frequent(all) => all[key].bytes(),
            _ => 0,
        }
    }

    /// What all of them hold, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Back to what it was before the key's first event.
    pub fn reset(&mut self, key: usize) {
        self.bytes -= self.held(key);
        let (start, parts) = (self.start(), self.parts());
        match &mut self.all {
            All::Count => {}
            All::Whole(all) => all[key] = 0,
            All::Exact(all) => all[key] = Exact::default(),
            All::Moments(all) => all[key] = Moments::default(),
            All::Int(all) | All::Rank(all) => all[key] = start,
            All::Text(all) => all[key] = None,
            All::Quantiles(all) => all[key] = Quantiles::default(),
            All::Parts(all) => all[key * parts..(key + 1) * parts].fill(0),
            All::Distinct(all) => all[key] = Distinct::default(),
            All::Frequent(all) => all[key] = Frequent::default(),
            All::Edge(all) => all[key] = None,
        }
    }

    /// Adds rows, in their order, each to the cell of its key. `times` is given where the window is by time.
    pub fn add(&mut self, keys: &[u32], column: Option<&Column>, times: Option<&[i64]>, rows: std::ops::Range<usize>) {
        let Some(column) = column else { return };
        let keys = keys[rows.clone()].iter().map(|key| *key as usize);
        let greatest = self.function == Function::Max;
        let bytes = &mut self.bytes;
        match (&mut self.all, column) {
            (All::Count, _) => {}
            (All::Whole(all), Column::Int(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key] += i128::from(*value));
            }
            (All::Exact(all), Column::Float(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key].add(*value));
            }
            (All::Moments(all), Column::Float(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key].add(*value));
            }
            (All::Moments(all), Column::Int(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key].add_int(*value));
            }
            (All::Int(all), Column::Int(values) | Column::Time(values)) if greatest => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key] = all[key].max(*value));
            }
            (All::Int(all), Column::Int(values) | Column::Time(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key] = all[key].min(*value));
            }
            (All::Rank(all), Column::Float(values)) if greatest => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key] = all[key].max(rank(*value)));
            }
            (All::Rank(all), Column::Float(values)) => {
                keys.zip(&values[rows]).for_each(|(key, value)| all[key] = all[key].min(rank(*value)));
            }
            (All::Text(all), Column::Text(values)) => {
                for (key, row) in keys.zip(rows) {
                    let text = values.get(row);
                    let further = |now: &Item| match now {
                        Item::Text(now) if greatest => text > &**now,
                        Item::Text(now) => text < &**now,
                        _ => true,
                    };
                    if all[key].as_ref().is_none_or(further) {
                        let before = all[key].replace(Item::Text(text.into()));
                        *bytes += 16 + text.len();
                        *bytes -= before.as_ref().map_or(0, Item::bytes);
                    }
                }
            }
            (All::Quantiles(all), column) => {
                for (key, row) in keys.zip(rows) {
                    *bytes -= all[key].bytes();
                    all[key].add(number(column, row));
                    *bytes += all[key].bytes();
                }
            }
            (All::Parts(all), column) => {
                let Function::Histogram(bounds) = &self.function else { return };
                let parts = bounds.len() + 1;
                keys.zip(rows).for_each(|(key, row)| all[key * parts + part_of(bounds, number(column, row))] += 1);
            }
            (All::Distinct(all), column) => {
                for (key, row) in keys.zip(rows) {
                    *bytes -= all[key].bytes();
                    all[key].add(Item::hash_of(column, row));
                    *bytes += all[key].bytes();
                }
            }
            (All::Frequent(all), column) => {
                for (key, row) in keys.zip(rows) {
                    *bytes -= all[key].bytes();
                    all[key].add(Item::of(column, row));
                    *bytes += all[key].bytes();
                }
            }
            (All::Edge(all), column) => {
                let last = self.function == Function::Last;
                for (key, row) in keys.zip(rows) {
                    let time = times.map_or(0, |times| times[row]);
                    let closer = |(at, _): &(i64, Item)| if last { time >= *at } else { time < *at };
                    if all[key].as_ref().is_none_or(closer) {
                        let item = Item::of(column, row);
                        *bytes += item.bytes();
                        let before = all[key].replace((time, item));
                        *bytes -= before.map_or(0, |(_, item)| item.bytes());
                    }
                }
            }
            (_, column) => unreachable!("no {} of {}", self.function.name(), column.kind()),
        }
    }

    /// Puts the result for a key, which has had so many events and at least one, at the end of a column.
    pub fn read(&self, key: usize, count: u64, to: &mut Column) {
        match (&self.all, to) {
            (All::Count, Column::Int(to)) => to.push(held(i128::from(count))),
            (All::Whole(all), Column::Int(to)) => to.push(held(all[key])),
            (All::Whole(all), Column::Float(to)) => to.push(all[key] as f64 / count as f64),
            (All::Exact(all), Column::Float(to)) if self.function == Function::Mean => to.push(all[key].mean(count)),
            (All::Exact(all), Column::Float(to)) => to.push(all[key].value()),
            (All::Moments(all), Column::Float(to)) => to.push(all[key].variance(count)),
            (All::Int(all), Column::Int(to) | Column::Time(to)) => to.push(all[key]),
            (All::Rank(all), Column::Float(to)) => to.push(of_rank(all[key])),
            (All::Quantiles(all), Column::Float(to)) => {
                let Function::Percentile(share) = self.function else { return };
                to.push(all[key].quantile(share, count));
            }
            (All::Parts(all), Column::Text(to)) => {
                let parts = self.parts();
                to.push_with(|to| write_counts(&all[key * parts..(key + 1) * parts], to));
            }
            (All::Distinct(all), Column::Int(to)) => to.push(all[key].count()),
            (All::Frequent(all), Column::Text(to)) => {
                let Function::Frequent(top) = self.function else { return };
                to.push_with(|to| all[key].write_top(top, to));
            }
            (All::Text(all), to) => {
                if let Some(item) = &all[key] {
                    item.push_to(to);
                }
            }
            (All::Edge(all), to) => {
                if let Some((_, item)) = &all[key] {
                    item.push_to(to);
                }
            }
            (_, to) => unreachable!("no {} as {}", self.function.name(), to.kind()),
        }
    }

    pub fn store(&self, key: usize, to: &mut Writer) {
        match &self.all {
            All::Count => {}
            All::Whole(all) => all[key].store(to),
            All::Exact(all) => all[key].store(to),
            All::Moments(all) => all[key].store(to),
            All::Int(all) | All::Rank(all) => all[key].store(to),
            All::Text(all) => all[key].store(to),
            All::Quantiles(all) => all[key].store(to),
            All::Parts(all) => all[key * self.parts()..(key + 1) * self.parts()].iter().for_each(|n| n.store(to)),
            All::Distinct(all) => all[key].store(to),
            All::Frequent(all) => all[key].store(to),
            All::Edge(all) => all[key].store(to),
        }
    }

    /// Of the next key.
    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Unreadable> {
        let parts = self.parts();
        match &mut self.all {
            All::Count => {}
            All::Whole(all) => all.push(i128::load(from)?),
            All::Exact(all) => all.push(Exact::load(from)?),
            All::Moments(all) => all.push(Moments::load(from)?),
            All::Int(all) | All::Rank(all) => all.push(i64::load(from)?),
            All::Text(all) => all.push(Option::load(from)?),
            All::Quantiles(all) => all.push(Quantiles::load(from)?),
            All::Parts(all) => {
                for _ in 0..parts {
                    all.push(u64::load(from)?);
                }
            }
            All::Distinct(all) => all.push(Distinct::load(from)?),
            All::Frequent(all) => all.push(Frequent::load(from)?),
            All::Edge(all) => all.push(Option::load(from)?),
        }
        self.bytes += self.newest();
        Ok(())
    }

    /// What the last cell holds.
    fn newest(&self) -> usize {
        let cells = match &self.all {
            All::Text(all) => all.len(),
            All::Edge(all) => all.len(),
            All::Quantiles(all) => all.len(),
            All::Distinct(all) => all.len(),
            All::Frequent(all) => all.len(),
            _ => 0,
        };
        cells.checked_sub(1).map_or(0, |last| self.held(last))
    }
}

/// An int counts as the float that is next to it.
fn number(column: &Column, row: usize) -> f64 {
    match column {
        Column::Float(values) => values[row],
        Column::Int(values) => values[row] as f64,
        column => unreachable!("no number of {}", column.kind()),
    }
}

impl Stored for (i64, Item) {
    fn store(&self, to: &mut Writer) {
        to.i64(self.0);
        self.1.store(to);
    }

    fn load(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok((from.i64()?, Item::load(from)?))
    }
}
