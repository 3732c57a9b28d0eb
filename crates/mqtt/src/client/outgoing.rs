//! What a client still has to say, and who waits to hear that it was said. The line itself is a [`Session`], the same that
//! a server keeps for each client; here each message has somebody who waits for it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use mutirao_core::clock::Mono;
use tokio::sync::oneshot;

use super::{Options, Order};
use crate::codec::{Handling, Pid, Publish, Qos};
use crate::limits::Limits;
use crate::session::{Presence, Session};

pub struct Outgoing {
    session: Session,
    limits: Limits,
    /// In the order of the session's line, one for each message in it.
    waiting: VecDeque<(Qos, oneshot::Sender<()>)>,
    sent: HashMap<Pid, oneshot::Sender<()>>,
}

impl Outgoing {
    pub fn new(options: &Options) -> Self {
        let limits = Limits {
            in_flight_max: options.in_flight_max.max(1),
            queue_messages_max: options.messages_max.max(1),
            // Their number is bounded, and each by the size of a packet.
            queue_bytes_max: usize::MAX,
            queue_age_max: Duration::MAX,
            ..Limits::default()
        };
        Self { session: Session::default(), limits, waiting: VecDeque::new(), sent: HashMap::new() }
    }

    pub fn has_room(&self) -> bool {
        self.session.messages() < self.limits.queue_messages_max
    }

    pub fn is_empty(&self) -> bool {
        self.session.messages() == 0
    }

    /// Ask [`Self::has_room`] first; without room it is not taken, and whoever waits is told so.
    pub fn take(&mut self, order: Order, now: Mono) {
        let Order { message, telling, done } = order;
        let offer = self.session.offer(&message, message.qos, telling, Presence::Here, now, &self.limits);
        if offer == crate::session::Offer::Taken {
            self.waiting.push_back((message.qos, done));
        }
    }

    /// What is to be written now. Those of quality 0 are told once `written` is called.
    pub fn pull(&mut self, bytes_max: usize, now: Mono) -> (Vec<Publish>, Written) {
        let out = self.session.pull(bytes_max, now, &self.limits);
        let mut written = Written(vec![]);
        for publish in &out {
            match publish.handling {
                Handling::AtLeastOnce { dup: true, .. } => {}
                Handling::AtLeastOnce { pid, .. } => {
                    if let Some((_, done)) = self.waiting.pop_front() {
                        self.sent.insert(pid, done);
                    }
                }
                _ => written.0.extend(self.waiting.pop_front().map(|(_, done)| done)),
            }
        }
        (out, written)
    }

    pub fn acknowledged(&mut self, pid: Pid) {
        self.session.acknowledged(pid);
        if let Some(done) = self.sent.remove(&pid) {
            // Whoever waited may have gone.
            let _ = done.send(());
        }
    }

    /// The connection broke: quality 0 is lost with it, the rest is said again on the next.
    pub fn parted(&mut self) {
        self.session.parted();
        self.waiting.retain(|(qos, _)| *qos != Qos::AtMostOnce);
    }
}

/// Messages of quality 0 that are being written. Dropped, they were not.
pub struct Written(Vec<oneshot::Sender<()>>);

impl Written {
    pub fn done(self) {
        self.0.into_iter().for_each(|done| {
            let _ = done.send(());
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mutirao_core::clock::SystemClock;
    use mutirao_core::dice::Dice;

    use super::*;
    use crate::session::{Message, Telling};
    use crate::topics::tests::name;

    fn order(qos: Qos) -> (Order, oneshot::Receiver<()>) {
        let (done, said) = oneshot::channel();
        let message = Arc::new(Message { topic: name("t"), payload: "x".into(), qos, retain: false, wanted: None });
        (Order { message, telling: Telling::Live, done }, said)
    }

    #[test]
    fn each_is_told_of_its_own_message_also_when_quality_0_was_lost_between() {
        let options = Options::new("nowhere:1", "c", SystemClock::shared(), Arc::new(Dice::seeded(1)));
        let mut outgoing = Outgoing::new(&Options { in_flight_max: 1, ..options });
        let (first, mut first_said) = order(Qos::AtLeastOnce);
        let (lost, mut lost_said) = order(Qos::AtMostOnce);
        let (last, mut last_said) = order(Qos::AtLeastOnce);
        [first, lost, last].into_iter().for_each(|order| outgoing.take(order, Mono::default()));
        let (out, _) = outgoing.pull(1, Mono::default());
        let Handling::AtLeastOnce { pid, dup: false } = out[0].handling else { panic!("{out:?}") };
        outgoing.parted();
        assert!(lost_said.try_recv().is_err() && first_said.try_recv().is_err());
        let (again, _) = outgoing.pull(usize::MAX, Mono::default());
        assert_eq!(again[0].handling, Handling::AtLeastOnce { pid, dup: true });
        outgoing.acknowledged(pid);
        assert!(first_said.try_recv().is_ok() && last_said.try_recv().is_err());
        let (next, _) = outgoing.pull(usize::MAX, Mono::default());
        let Handling::AtLeastOnce { pid, dup: false } = next[0].handling else { panic!("{next:?}") };
        outgoing.acknowledged(pid);
        assert!(last_said.try_recv().is_ok() && outgoing.is_empty());
    }
}
