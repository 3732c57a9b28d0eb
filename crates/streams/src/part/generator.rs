//! Events that are made and not read: by a table of rates, each the same whenever it is made again.

use std::sync::Arc;
use std::time::Duration;

use crate::batch::{Batch, Column};
use crate::definition::rate::Rate;
use crate::expression::{Expression, Scratch};
use crate::graph::generator_schema;
use crate::hash;
use crate::schema::Schema;

pub struct Generator {
    rate: Rate,
    seed: u64,
    fields: Vec<Expression>,
    schema: Arc<Schema>,
    given: Arc<Schema>,
    scratch: Scratch,
}

impl Generator {
    pub fn of(rate: Rate, seed: u64, fields: Vec<Expression>, schema: Arc<Schema>) -> Self {
        Self { rate, seed, fields, schema, given: Arc::new(generator_schema()), scratch: Scratch::default() }
    }

    /// How many events are due in all, so long after the start.
    pub fn due(&self, since: Duration) -> u64 {
        self.rate.due(since)
    }

    /// How long after the start an event is due. Nothing, if it never is.
    pub fn due_at(&self, n: u64) -> Option<Duration> {
        self.rate.due_at(n)
    }

    /// How many there will ever be.
    pub fn total(&self) -> Option<u64> {
        (!self.rate.repeat).then(|| self.rate.due(self.rate.length()))
    }

    /// The events from this number on, so many, of a table that began at this time.
    pub fn make(&mut self, from: u64, count: usize, began_us: i64) -> Batch {
        let numbers: Vec<i64> = (from..from + count as u64).map(|n| n as i64).collect();
        let at = |n: &i64| {
            let after = self.rate.due_at(*n as u64).unwrap_or_default();
            began_us.saturating_add(i64::try_from(after.as_micros()).unwrap_or(i64::MAX))
        };
        let times = numbers.iter().map(at).collect();
        let figures = |which: i64| Column::Float(numbers.iter().map(|n| figure(self.seed, *n, which)).collect());
        let random = [figures(1), figures(2), figures(3)];
        let columns = [Column::Int(numbers), Column::Time(times)].into_iter().chain(random).collect();
        let given = match Batch::of(self.given.clone(), columns) {
            Ok(given) => given,
            Err(why) => unreachable!("what is given to a generator fits: {why}"),
        };
        let made = self.fields.iter().map(|field| field.run(&given, &mut self.scratch)).collect();
        match Batch::of(self.schema.clone(), made) {
            Ok(batch) => batch,
            Err(why) => unreachable!("what a generator makes was checked against its schema: {why}"),
        }
    }
}

/// From 0 to 1, the same for the same event everywhere.
fn figure(seed: u64, n: i64, which: i64) -> f64 {
    let bits = hash::int((hash::int(n) ^ hash::int((seed ^ which as u64) as i64)) as i64);
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_the_same_whenever_it_is_made() {
        let made =
            ["n", "at", "random1 + random2 * random3"].map(|text| Expression::compile(text, &generator_schema()));
        let fields: Vec<Expression> = made.into_iter().map(Result::unwrap).collect();
        let schema = Schema::of([("n", crate::Kind::Int), ("at", crate::Kind::Time), ("x", crate::Kind::Float)]);
        let mut one = Generator::of(Rate::steady(3.0), 7, fields.clone(), schema.clone().into());
        let whole = one.make(0, 100, 5_000_000);
        assert_eq!(whole.slice(40..60), one.make(40, 20, 5_000_000));
        assert_eq!(whole.column(1).ints().unwrap()[2], 6_000_000, "three a second");
        let mut other = Generator::of(Rate::steady(3.0), 8, fields, schema.into());
        assert_ne!(whole.column(2), other.make(0, 100, 5_000_000).column(2), "another seed");
        let spread = whole.column(2).floats().unwrap();
        assert!(spread.iter().any(|x| *x < 0.5) && spread.iter().any(|x| *x > 1.0));
    }
}
