//! One figure of many events.
//!
//! **What an aggregate says depends on which events are in the window, and on nothing else**: not on how they were cut into
//! batches, not on when somebody flushed, and (but for the two named below) not on the order in which they came. So replicas
//! agree to the last bit, on machines of different kinds too.
//!
//! - Sums of floats are kept exactly ([`exact`]) and rounded once, when they are read; means and variances are made of such
//!   sums. There is no order of addition that could matter, and taking an event out of a sliding window leaves no dust.
//! - Sums of ints are kept in 128 bits; one beyond an int is held at the greatest or least int.
//! - Not a number is one value, whatever its bits were, and greater than all others; minus zero is less than zero.
//! - `first` and `last` follow the number of an event, in windows by time its time and then its number.
//! - `frequent` in a jumping window that saw more than [`frequent::KEPT`] different values follows the order of events.
//!
//! Memory is bounded for each key:
//!
//! | aggregate | jumping window | sliding window, which holds its events anyway |
//! |---|---|---|
//! | `percentile` | exact up to [`quantile::EXACT_MAX`] events, beyond right to within [`quantile::ERROR`] of the value | the same |
//! | `distinct` | exact up to [`distinct::KEPT`] values, beyond with a standard error of 2.2 % | exact |
//! | `frequent` | exact up to [`frequent::KEPT`] values, beyond each count too low by at most one in [`frequent::KEPT`] events | exact |
//!
//! [`cells`] holds one aggregate of all keys as columns, for windows that jump; [`slide`] holds all aggregates of one key,
//! for windows that slide, at a cost for each event that does not grow with the window.

pub mod cells;
pub mod distinct;
pub mod exact;
pub mod frequent;
pub mod item;
pub mod quantile;
pub mod slide;

use serde::{Deserialize, Serialize};

use crate::schema::Kind;

/// The most values that `frequent` names.
pub const FREQUENT_MAX: usize = 100;
/// The most bounds of a histogram.
pub const BOUNDS_MAX: usize = 100;

/// What is made of many events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    /// The mean squared distance from the mean of all events in the window, not of a sample: nought for one event.
    Variance,
    /// The least value that this share of all, from 0 to 1, does not exceed.
    Percentile(f64),
    /// How many values are at most the first bound, at most the second but not the first, …, and above the last, as a text
    /// `[3,0,9]`. Bounds grow.
    Histogram(Vec<f64>),
    /// How many different values there are.
    Distinct,
    /// The values that come most often, as a text `[["a",10],["b",3]]`: by how often, then by value.
    Frequent(usize),
    First,
    Last,
}

/// A function, of which field, and what the result is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aggregate {
    pub name: String,
    pub function: Function,
    /// Which field of the event; `count` needs none.
    pub field: Option<usize>,
}

/// Why something cannot be made of a field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unaggregable {
    #[error("{0} needs a field")]
    NoField(&'static str),
    #[error("there is no {0} of {1}")]
    Kind(&'static str, Kind),
    #[error("{0} is no percentile: write a share from 0 to 1, such as 0.95")]
    Share(f64),
    #[error("a histogram needs 1 to {BOUNDS_MAX} bounds that are numbers and grow")]
    Bounds,
    #[error("frequent names 1 to {FREQUENT_MAX} values, not {0}")]
    Top(usize),
}

impl Function {
    pub fn name(&self) -> &'static str {
        match self {
            Function::Count => "count",
            Function::Sum => "sum",
            Function::Mean => "mean",
            Function::Min => "min",
            Function::Max => "max",
            Function::Variance => "variance",
            Function::Percentile(_) => "percentile",
            Function::Histogram(_) => "histogram",
            Function::Distinct => "distinct",
            Function::Frequent(_) => "frequent",
            Function::First => "first",
            Function::Last => "last",
        }
    }

    /// The kind of what comes out, given the kind of the field.
    pub fn result(&self, of: Option<Kind>) -> Result<Kind, Unaggregable> {
        self.check()?;
        let Some(kind) = of else {
            return if *self == Function::Count { Ok(Kind::Int) } else { Err(Unaggregable::NoField(self.name())) };
        };
        let number = || if kind.is_number() { Ok(kind) } else { Err(Unaggregable::Kind(self.name(), kind)) };
        match self {
            Function::Count | Function::Distinct => Ok(Kind::Int),
            Function::Sum => number(),
            Function::Mean | Function::Variance | Function::Percentile(_) => number().map(|_| Kind::Float),
            Function::Histogram(_) => number().map(|_| Kind::Text),
            Function::Min | Function::Max if kind == Kind::Bool => Err(Unaggregable::Kind(self.name(), kind)),
            Function::Frequent(_) => Ok(Kind::Text),
            Function::Min | Function::Max | Function::First | Function::Last => Ok(kind),
        }
    }

    fn check(&self) -> Result<(), Unaggregable> {
        match self {
            Function::Percentile(share) if !(0.0..=1.0).contains(share) => Err(Unaggregable::Share(*share)),
            Function::Histogram(bounds) => {
                let grow = bounds.windows(2).all(|pair| pair[0] < pair[1]) && bounds.iter().all(|b| b.is_finite());
                let fine = grow && (1..=BOUNDS_MAX).contains(&bounds.len());
                if fine { Ok(()) } else { Err(Unaggregable::Bounds) }
            }
            Function::Frequent(top) if !(1..=FREQUENT_MAX).contains(top) => Err(Unaggregable::Top(*top)),
            _ => Ok(()),
        }
    }
}

/// Not a number is one value, whatever its bits were: processors of different kinds make different ones.
pub(crate) fn tidy(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

/// In the order of all floats, as a number: for maps and sorting.
pub(crate) fn rank(value: f64) -> i64 {
    let bits = tidy(value).to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

/// The float of a [`rank`].
pub(crate) fn of_rank(rank: i64) -> f64 {
    f64::from_bits((rank ^ (((rank >> 63) as u64) >> 1) as i64) as u64)
}

/// In which part of a histogram a value is.
pub(crate) fn part_of(bounds: &[f64], value: f64) -> usize {
    bounds.partition_point(|bound| rank(*bound) < rank(value))
}

/// `[3,0,9]`
pub(crate) fn write_counts(counts: &[u64], to: &mut String) {
    to.push('[');
    for (n, count) in counts.iter().enumerate() {
        if n > 0 {
            to.push(',');
        }
        to.push_str(&count.to_string());
    }
    to.push(']');
}

/// A sum of ints as an int.
pub(crate) fn held(sum: i128) -> i64 {
    sum.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_makes_no_sense_is_refused() {
        let of = |function: Function, kind| function.result(kind);
        assert_eq!(of(Function::Sum, None), Err(Unaggregable::NoField("sum")));
        assert_eq!(of(Function::Sum, Some(Kind::Text)), Err(Unaggregable::Kind("sum", Kind::Text)));
        assert_eq!(of(Function::Min, Some(Kind::Bool)), Err(Unaggregable::Kind("min", Kind::Bool)));
        assert_eq!(of(Function::Percentile(95.0), Some(Kind::Int)), Err(Unaggregable::Share(95.0)));
        assert_eq!(of(Function::Histogram(vec![2.0, 1.0]), Some(Kind::Int)), Err(Unaggregable::Bounds));
        assert_eq!(of(Function::Frequent(0), Some(Kind::Int)), Err(Unaggregable::Top(0)));
        assert_eq!(of(Function::Count, None), Ok(Kind::Int));
        assert_eq!(of(Function::Mean, Some(Kind::Int)), Ok(Kind::Float));
        assert_eq!(of(Function::Last, Some(Kind::Text)), Ok(Kind::Text));
    }

    proptest! {
        #[test]
        fn ranks_are_in_the_order_of_floats(one in any::<f64>(), other in any::<f64>()) {
            prop_assert_eq!(rank(one).cmp(&rank(other)), tidy(one).total_cmp(&tidy(other)));
            prop_assert_eq!(of_rank(rank(one)).to_bits(), tidy(one).to_bits());
        }
    }
}
