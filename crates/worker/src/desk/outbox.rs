//! Reports on their way to the manager, in order. Pure.
//!
//! What was taken out stays counted as held until it is confirmed: a heartbeat made in between must not let the manager
//! believe that the task vanished.
//!
//! Every message names the parcels in which what it speaks of came, not only the first: were the word of their taking lost
//! or late, the manager would not know whose the outcomes are.

use std::collections::VecDeque;
use std::sync::Arc;

use mutirao_core::envelope::{Done, ParcelId, Reports, Started};
use mutirao_core::{SessionId, WorkerId};

use super::task::Try;

/// Reports that travel in one message.
const MESSAGE_REPORTS_MAX: usize = 1_024;
/// Bytes of output that travel in one message, before base64 makes them a third longer.
const MESSAGE_OUTPUT_BYTES_MAX: usize = 2 << 20;

#[derive(Debug)]
pub(crate) enum Report {
    Taken(ParcelId),
    Started(Started),
    /// And the parcel that it came in.
    Done(Box<Done>, ParcelId),
}

impl Report {
    fn output_bytes(&self) -> usize {
        match self {
            Report::Done(done, _) => done.outcome.stdout.tail.len() + done.outcome.stderr.tail.len(),
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Outbox {
    session: SessionId,
    worker: WorkerId,
    waiting: VecDeque<(Arc<str>, Report)>,
    output_bytes: usize,
    in_flight: Vec<Try>,
    /// Messages of this session so far.
    messages: u64,
}

impl Outbox {
    pub fn new(session: SessionId, worker: WorkerId) -> Self {
        Self { session, worker, waiting: VecDeque::new(), output_bytes: 0, in_flight: Vec::new(), messages: 0 }
    }

    pub fn push(&mut self, to: Arc<str>, report: Report) {
        self.output_bytes += report.output_bytes();
        self.waiting.push_back((to, report));
    }

    /// An empty message with the next number. Whoever takes it sends it, before any other is taken.
    pub fn message(&mut self) -> Reports {
        self.messages += 1;
        Reports { number: Some(self.messages), ..Reports::new(self.session.clone(), self.worker.clone()) }
    }

    /// The next message: as many reports as fit and go to the same place. The one before must be confirmed.
    pub fn take(&mut self) -> Option<(Arc<str>, Reports)> {
        debug_assert!(self.in_flight.is_empty());
        let to = self.waiting.front()?.0.clone();
        let mut reports = self.message();
        let mut output_bytes = 0;
        for taken in 0..MESSAGE_REPORTS_MAX {
            let Some((place, report)) = self.waiting.front() else { break };
            let grown = output_bytes + report.output_bytes();
            if *place != to || (taken > 0 && grown > MESSAGE_OUTPUT_BYTES_MAX) {
                break;
            }
            output_bytes = grown;
            match self.waiting.pop_front() {
                Some((_, Report::Taken(parcel))) => reports.taken.push(parcel),
                Some((_, Report::Started(started))) => reports.started.push(started),
                Some((_, Report::Done(done, parcel))) => {
                    self.in_flight.push((done.task, done.attempt));
                    reports.done.push(*done);
                    // Tasks of a parcel mostly end together.
                    if reports.taken.last() != Some(&parcel) {
                        reports.taken.push(parcel);
                    }
                }
                None => {}
            }
        }
        each_once(&mut reports.taken);
        self.output_bytes -= output_bytes;
        Some((to, reports))
    }

    /// The message taken last has arrived.
    pub fn confirm(&mut self) {
        self.in_flight.clear();
    }

    pub fn len(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    pub fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Tries whose outcome the manager may not have yet.
    pub fn unconfirmed(&self) -> impl Iterator<Item = Try> {
        let waiting = self.waiting.iter().filter_map(|(_, report)| match report {
            Report::Done(done, _) => Some((done.task, done.attempt)),
            _ => None,
        });
        self.in_flight.iter().copied().chain(waiting)
    }

    /// The parcels of outcomes that wait.
    pub fn parcels(&self) -> impl Iterator<Item = ParcelId> {
        self.waiting.iter().filter_map(|(_, report)| match report {
            Report::Done(_, parcel) => Some(*parcel),
            _ => None,
        })
    }
}

pub(super) fn each_once(parcels: &mut Vec<ParcelId>) {
    parcels.sort_unstable();
    parcels.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutirao_core::{Attempt, JobKey, Outcome, TaskKey, Timestamp, Verdict};

    fn done(index: u32, output_bytes: usize) -> Report {
        let mut outcome = Outcome::new(Verdict::Ok, Timestamp(0));
        outcome.stdout.tail = vec![0; output_bytes];
        let task = TaskKey { job: JobKey(1), index };
        let done = Done { task, attempt: Attempt::default(), trace: String::new(), outcome };
        Report::Done(Box::new(done), ParcelId { generation: 1, n: u64::from(index / 2) })
    }

    fn outbox() -> Outbox {
        Outbox::new(SessionId("s".into()), WorkerId("w".into()))
    }

    #[test]
    fn reports_leave_in_order_and_a_message_goes_to_one_place() {
        let mut outbox = outbox();
        for (place, index) in [("a", 1), ("a", 2), ("b", 3), ("a", 4)] {
            outbox.push(place.into(), done(index, 0));
        }
        let mut left = Vec::new();
        while let Some((to, reports)) = outbox.take() {
            left.push((to.to_string(), reports.done.iter().map(|done| done.task.index).collect::<Vec<_>>()));
            outbox.confirm();
        }
        assert_eq!(outbox.message().number, Some(4), "each has its number");
        assert_eq!(left, [("a".into(), vec![1, 2]), ("b".into(), vec![3]), ("a".into(), vec![4])]);
    }

    #[test]
    fn a_message_names_the_parcels_of_what_it_speaks_of_once() {
        let mut outbox = outbox();
        for index in [4, 5, 0, 1, 4] {
            outbox.push("a".into(), done(index, 0));
        }
        let (_, reports) = outbox.take().unwrap();
        assert_eq!(reports.taken.iter().map(|parcel| parcel.n).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn a_message_stays_below_its_bounds_and_what_is_not_confirmed_is_held() {
        let mut outbox = outbox();
        for index in 0..40 {
            outbox.push("a".into(), done(index, 128 << 10));
        }
        let (_, reports) = outbox.take().unwrap();
        assert_eq!(reports.done.len(), 16);
        assert_eq!(outbox.unconfirmed().count(), 40);
        outbox.confirm();
        assert_eq!(outbox.unconfirmed().count(), 24);
        assert_eq!(outbox.output_bytes(), 24 * (128 << 10));
    }
}
