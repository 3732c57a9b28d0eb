//! How far time is. A watermark of an input says: everything before this instant has come. Of several inputs the one that is
//! furthest behind counts.
//!
//! Watermarks are records of the log like events, and stand between two events; where, the events themselves say
//! ([`Pacer`]), and not the clock of whoever sends them. So it makes no difference how events were cut into batches.

use crate::batch::Batch;
use crate::state::{Reader, Unreadable, Writer};

/// Before any instant: nothing is known of time yet.
pub const BEGINNING: i64 = i64::MIN;
/// After all: an input that will say no more.
pub const END: i64 = i64::MAX;

/// Of several inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watermarks {
    inputs: Vec<i64>,
    least: i64,
}

impl Watermarks {
    pub fn of(inputs: usize) -> Self {
        Self { inputs: vec![BEGINNING; inputs.max(1)], least: BEGINNING }
    }

    /// An input says how far it is. The time of all together, if that moved it. Time does not go back, so a word that came
    /// twice, or late, changes nothing.
    pub fn tell(&mut self, input: usize, time: i64) -> Option<i64> {
        let place = self.inputs.get_mut(input)?;
        *place = time.max(*place);
        let least = self.inputs.iter().copied().min().unwrap_or(BEGINNING);
        (std::mem::replace(&mut self.least, least) < least).then_some(least)
    }

    pub fn now(&self) -> i64 {
        self.least
    }

    pub fn store(&self, to: &mut Writer) {
        to.count(self.inputs.len());
        self.inputs.iter().for_each(|time| to.i64(*time));
    }

    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Unreadable> {
        if from.count()? != self.inputs.len() {
            return Err(Unreadable::Other);
        }
        for place in &mut self.inputs {
            *place = from.i64()?;
        }
        self.least = self.inputs.iter().copied().min().unwrap_or(BEGINNING);
        Ok(())
    }
}

/// Makes the watermarks of a source from the times of its events: the greatest so far, less how much events may be out of order
/// (`behind`), each time that this passes another multiple of `every`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pacer {
    behind_us: i64,
    every_us: i64,
    greatest: i64,
    said: i64,
}

impl Pacer {
    pub fn of(behind_us: i64, every_us: i64) -> Self {
        Self { behind_us: behind_us.max(0), every_us: every_us.max(1), greatest: BEGINNING, said: BEGINNING }
    }

    pub fn store(&self, to: &mut Writer) {
        to.i64(self.greatest);
        to.i64(self.said);
    }

    pub fn load(&mut self, from: &mut Reader<'_>) -> Result<(), Unreadable> {
        (self.greatest, self.said) = (from.i64()?, from.i64()?);
        Ok(())
    }

    /// Watermarks, each with how many of these events come before it.
    pub fn see(&mut self, times: &[i64]) -> Vec<(usize, i64)> {
        let mut found = Vec::new();
        for (row, time) in times.iter().enumerate() {
            if *time <= self.greatest {
                continue;
            }
            self.greatest = *time;
            let passed = self.greatest.saturating_sub(self.behind_us);
            let mark = passed.saturating_sub(passed.rem_euclid(self.every_us));
            if mark > self.said {
                self.said = mark;
                found.push((row + 1, mark));
            }
        }
        found
    }
}

/// Events with watermarks between them, cut where those are. A watermark at nought comes before the first event.
pub fn interleave<E>(
    batch: &Batch,
    marks: &[(usize, i64)],
    mut each: impl FnMut(Step<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut from = 0;
    for (before, time) in marks {
        if *before > from {
            each(Step::Events(&batch.slice(from..*before)))?;
            from = *before;
        }
        each(Step::Watermark(*time))?;
    }
    match from {
        0 if !batch.is_empty() => each(Step::Events(batch)),
        from if from < batch.rows() => each(Step::Events(&batch.slice(from..batch.rows()))),
        _ => Ok(()),
    }
}

/// What comes next.
#[derive(Debug)]
pub enum Step<'a> {
    Events(&'a Batch),
    Watermark(i64),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_input_that_is_furthest_behind_counts_and_time_does_not_go_back() {
        let mut both = Watermarks::of(2);
        assert_eq!(both.tell(0, 10), None);
        assert_eq!(both.tell(1, 5), Some(5));
        assert_eq!(both.tell(1, 3), None);
        assert_eq!(both.tell(1, 20), Some(10));
        assert_eq!(both.tell(7, 90), None);
        assert_eq!(both.now(), 10);
    }

    proptest! {
        #[test]
        fn where_a_watermark_stands_does_not_depend_on_cuts(times in prop::collection::vec(-50i64..200, 0..60), cut in 0..60usize) {
            let whole = Pacer::of(7, 10).see(&times);
            let cut = cut.min(times.len());
            let mut pacer = Pacer::of(7, 10);
            let mut parts = pacer.see(&times[..cut]);
            parts.extend(pacer.see(&times[cut..]).into_iter().map(|(before, mark)| (before + cut, mark)));
            prop_assert_eq!(whole, parts);
        }
    }
}
