//! All aggregates of one key over the events that are in its sliding window now. Each event comes once and goes once, and each
//! costs the same whether the window holds ten or a hundred thousand:
//!
//! - counts, sums, histograms, tallies and buckets take away what goes: all of them are exact, so nothing is left of it;
//! - the least and the greatest are the front of a line in which nobody waits behind somebody who is as good and will stay
//!   longer: each comes to the line once and leaves it once;
//! - first and last are the ends of the window itself.
//!
//! The values of a field are held once, however many aggregates are made of it. Only those are written to a snapshot: the
//! rest follows from them.

mod ring;

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

use self::ring::Ring;
use super::exact::{Exact, Moments};
use super::frequent::Tally;
use super::item::Item;
use super::quantile::{self, Buckets};
use super::{Aggregate, Function, held, part_of, rank, write_counts};
use crate::batch::Column;
use crate::schema::{Kind, Schema};
use crate::state::{Reader, Unreadable, Writer};

/// Which fields are held, and which of those each aggregate is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    fields: Vec<usize>,
    kinds: Vec<Kind>,
    aggregates: Vec<(Function, Option<usize>)>,
}

impl Plan {
    pub fn of(aggregates: &[Aggregate], input: &Schema) -> Self {
        let mut plan = Plan { fields: Vec::new(), kinds: Vec::new(), aggregates: Vec::new() };
        for Aggregate { function, field, .. } in aggregates {
            // A count holds nothing.
            let field = field.filter(|_| *function != Function::Count);
            let at = field.map(|field| {
                plan.fields.iter().position(|held| *held == field).unwrap_or_else(|| {
                    plan.fields.push(field);
                    plan.kinds.push(input.fields[field].kind);
                    plan.fields.len() - 1
                })
            });
            plan.aggregates.push((function.clone(), at));
        }
        plan
    }

    /// The fields of an event that are held.
    pub fn fields(&self) -> &[usize] {
        &self.fields
    }
}

/// What an event takes by itself, beside the values that are held of it.
pub const EVENT_BYTES: usize = 16;

/// What is held of a value.
pub fn cell_bytes(column: &Column, row: usize) -> usize {
    match column {
        Column::Text(all) => 24 + all.get(row).len(),
        Column::Bool(_) | Column::Int(_) | Column::Time(_) | Column::Float(_) => 8,
    }
}

#[derive(Clone, Debug)]
enum Cell {
    Plain,
    Whole(i128),
    Exact(Exact),
    Moments(Moments),
    /// Numbers of events, and their values, each further than all after it.
    Line(VecDeque<(u64, Item)>),
    Buckets(Buckets),
    Parts(Vec<u64>),
    Distinct(HashMap<Item, u64, FixedState>),
    Tally(Tally),
}

#[derive(Clone, Debug)]
pub struct Slide {
    rings: Vec<Ring>,
    cells: Vec<Cell>,
    /// The number of the oldest event that is in, counted from the key's first.
    first: u64,
    count: u64,
}

impl Slide {
    pub fn of(plan: &Plan) -> Self {
        let cell = |(function, field): &(Function, Option<usize>)| {
            let float = field.is_some_and(|field| plan.kinds[field] == Kind::Float);
            match function {
                Function::Count | Function::First | Function::Last => Cell::Plain,
                Function::Sum | Function::Mean if float => Cell::Exact(Exact::default()),
                Function::Sum | Function::Mean => Cell::Whole(0),
                Function::Variance => Cell::Moments(Moments::default()),
                Function::Min | Function::Max => Cell::Line(VecDeque::new()),
                Function::Percentile(_) => Cell::Buckets(Buckets::default()),
                Function::Histogram(bounds) => Cell::Parts(vec![0; bounds.len() + 1]),
                Function::Distinct => Cell::Distinct(HashMap::default()),
                Function::Frequent(_) => Cell::Tally(Tally::default()),
            }
        };
        let rings = plan.kinds.iter().map(|kind| Ring::of(*kind)).collect();
        Self { rings, cells: plan.aggregates.iter().map(cell).collect(), first: 0, count: 0 }
    }

    /// How many events are in.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many events were ever in.
    pub fn seen(&self) -> u64 {
        self.first + self.count
    }

    /// An event comes in, by the columns of the plan's fields.
    pub fn push(&mut self, plan: &Plan, columns: &[&Column], row: usize) {
        self.rings.iter_mut().zip(columns).for_each(|(ring, column)| ring.push(column, row));
        self.came(plan);
    }

    /// What the newest value in each ring changes.
    fn came(&mut self, plan: &Plan) {
        let (at, number) = (self.count as usize, self.first + self.count);
        self.count += 1;
        for (cell, (function, field)) in self.cells.iter_mut().zip(&plan.aggregates) {
            let Some(ring) = field.map(|field| &self.rings[field]) else { continue };
            match (cell, ring) {
                (Cell::Plain, _) => {}
                (Cell::Whole(sum), Ring::Whole(ring)) => *sum += i128::from(ring[at]),
                (Cell::Exact(sum), ring) => sum.add(ring.number(at)),
                (Cell::Moments(moments), Ring::Whole(ring)) => moments.add_int(ring[at]),
                (Cell::Moments(moments), ring) => moments.add(ring.number(at)),
                (Cell::Line(line), ring) => {
                    let item = ring.item(at);
                    let greatest = *function == Function::Max;
                    while line.back().is_some_and(|(_, last)| if greatest { *last <= item } else { *last >= item }) {
                        line.pop_back();
                    }
                    line.push_back((number, item));
                }
                (Cell::Buckets(buckets), ring) => buckets.add(ring.number(at)),
                (Cell::Parts(parts), ring) => {
                    let Function::Histogram(bounds) = function else { continue };
                    parts[part_of(bounds, ring.number(at))] += 1;
                }
                (Cell::Distinct(counts), ring) => *counts.entry(ring.item(at)).or_default() += 1,
                (Cell::Tally(tally), ring) => tally.add(&ring.item(at)),
                (cell, _) => unreachable!("{cell:?} of something else"),
            }
        }
    }

    /// What is held of the oldest event.
    pub fn first_bytes(&self) -> usize {
        if self.count == 0 { 0 } else { self.event_bytes(0) }
    }

    fn event_bytes(&self, at: usize) -> usize {
        EVENT_BYTES + self.rings.iter().map(|ring| ring.bytes(at)).sum::<usize>()
    }

    /// What is held of all that are in.
    pub fn bytes(&self) -> usize {
        match self.rings.is_empty() {
            true => EVENT_BYTES.saturating_mul(self.count as usize),
            false => (0..self.count as usize).map(|at| self.event_bytes(at)).sum(),
        }
    }

    /// The oldest event goes.
    pub fn pop(&mut self, plan: &Plan) {
        if self.count == 0 {
            return;
        }
        for (cell, (function, field)) in self.cells.iter_mut().zip(&plan.aggregates) {
            let Some(ring) = field.map(|field| &self.rings[field]) else { continue };
            match (cell, ring) {
                (Cell::Plain, _) => {}
                (Cell::Whole(sum), Ring::Whole(ring)) => *sum -= i128::from(ring[0]),
                (Cell::Exact(sum), ring) => sum.remove(ring.number(0)),
                (Cell::Moments(moments), Ring::Whole(ring)) => moments.remove_int(ring[0]),
                (Cell::Moments(moments), ring) => moments.remove(ring.number(0)),
                (Cell::Line(line), _) => {
                    if line.front().is_some_and(|(number, _)| *number == self.first) {
                        line.pop_front();
                    }
                }
                (Cell::Buckets(buckets), ring) => buckets.remove(ring.number(0)),
                (Cell::Parts(parts), ring) => {
                    let Function::Histogram(bounds) = function else { continue };
                    parts[part_of(bounds, ring.number(0))] -= 1;
                }
                (Cell::Distinct(counts), ring) => {
                    let item = ring.item(0);
                    if let Some(count) = counts.get_mut(&item) {
                        *count -= 1;
                        if *count == 0 {
                            counts.remove(&item);
                        }
                    }
                }
                (Cell::Tally(tally), ring) => tally.remove(&ring.item(0)),
                (cell, _) => unreachable!("{cell:?} of something else"),
            }
        }
        self.rings.iter_mut().for_each(Ring::pop);
        self.first += 1;
        self.count -= 1;
    }

    /// Puts the result of each aggregate at the end of its column. There is at least one event.
    pub fn read(&self, plan: &Plan, to: &mut [Column]) {
        let last = self.count as usize - 1;
        for ((cell, (function, field)), to) in self.cells.iter().zip(&plan.aggregates).zip(to) {
            let ring = field.map(|field| &self.rings[field]);
            match (cell, ring, to) {
                (Cell::Plain, None, Column::Int(to)) => to.push(held(i128::from(self.count))),
                (Cell::Plain, Some(ring), to) => {
                    let at = if *function == Function::First { 0 } else { last };
                    ring.item(at).push_to(to);
                }
                (Cell::Whole(sum), _, Column::Int(to)) => to.push(held(*sum)),
                (Cell::Whole(sum), _, Column::Float(to)) => to.push(*sum as f64 / self.count as f64),
                (Cell::Exact(sum), _, Column::Float(to)) if *function == Function::Mean => {
                    to.push(sum.mean(self.count))
                }
                (Cell::Exact(sum), _, Column::Float(to)) => to.push(sum.value()),
                (Cell::Moments(moments), _, Column::Float(to)) => to.push(moments.variance(self.count)),
                (Cell::Line(line), _, to) => {
                    if let Some((_, item)) = line.front() {
                        item.push_to(to);
                    }
                }
                (Cell::Buckets(buckets), Some(ring), Column::Float(to)) => {
                    let Function::Percentile(share) = function else { continue };
                    to.push(self.percentile(*share, buckets, ring));
                }
                (Cell::Parts(parts), _, Column::Text(to)) => to.push_with(|to| write_counts(parts, to)),
                (Cell::Distinct(counts), _, Column::Int(to)) => to.push(counts.len() as i64),
                (Cell::Tally(tally), _, Column::Text(to)) => {
                    let Function::Frequent(top) = function else { continue };
                    to.push_with(|to| tally.write_top(*top, to));
                }
                (cell, _, to) => unreachable!("{cell:?} as {}", to.kind()),
            }
        }
    }

    fn percentile(&self, share: f64, buckets: &Buckets, ring: &Ring) -> f64 {
        if self.count as usize > quantile::EXACT_MAX {
            return buckets.quantile(share, self.count);
        }
        let mut ranks = [0; quantile::EXACT_MAX];
        let ranks = &mut ranks[..self.count as usize];
        ranks.iter_mut().enumerate().for_each(|(at, to)| *to = rank(ring.number(at)));
        quantile::exact(ranks, share)
    }

    pub fn store(&self, to: &mut Writer) {
        to.u64(self.first);
        to.u64(self.count);
        for at in 0..self.count as usize {
            self.rings.iter().for_each(|ring| ring.store(at, to));
        }
    }

    pub fn load(plan: &Plan, from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let mut slide = Slide { first: from.u64()?, ..Slide::of(plan) };
        // Without fields nothing follows for an event, so this count is not bounded by what is left to read.
        let count = from.u64()?;
        if plan.fields.is_empty() {
            slide.count = count;
            return Ok(slide);
        }
        for _ in 0..count {
            slide.rings.iter_mut().try_for_each(|ring| ring.load(from))?;
            slide.came(plan);
        }
        Ok(slide)
    }
}
