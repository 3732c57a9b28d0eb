//! What a consumer behind a connection has received and not settled, for every broker that can lose its connection.
//! Pure: no sockets, no waiting.
//!
//! The tags that users see are the inbox's own and never start again, so a tag from a lost connection matches nothing on
//! the next one: a stale acknowledgement cannot settle a new message.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Delivery;

/// Characters of a rejection's reason that travel.
pub(crate) const REASON_CHARS_MAX: usize = 1_000;

/// `T` is what the other side needs to hear to settle a delivery.
pub(crate) struct Inbox<T> {
    /// Not yet seen by the user.
    arrived: Vec<Delivery>,
    /// Unsettled on this connection, by growing tag. Bounded by the consumer's credit.
    held: VecDeque<(u64, T)>,
    last_tag: u64,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { arrived: Vec::new(), held: VecDeque::new(), last_tag: 0 }
    }
}

impl<T> Inbox<T> {
    pub fn deliver(&mut self, theirs: T, body: Bytes, redelivered: bool) {
        let tag = self.hold(theirs);
        self.arrived.push(Delivery { tag, body, redelivered });
    }

    /// To be settled, without the user seeing it.
    pub fn hold(&mut self, theirs: T) -> u64 {
        self.last_tag += 1;
        self.held.push_back((self.last_tag, theirs));
        self.last_tag
    }

    pub fn take(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.arrived)
    }

    pub fn has_arrived(&self) -> bool {
        !self.arrived.is_empty()
    }

    pub fn unsettled(&self) -> usize {
        self.held.len()
    }

    /// Settles everything up to `tag`; gives the last of it, `None` when there was nothing.
    pub fn ack_through(&mut self, tag: u64) -> Option<T> {
        let settled = self.held.partition_point(|(ours, _)| *ours <= tag);
        self.held.drain(..settled).next_back().map(|(_, theirs)| theirs)
    }

    pub fn get(&self, tag: u64) -> Option<&T> {
        self.held.binary_search_by_key(&tag, |(ours, _)| *ours).ok().map(|at| &self.held[at].1)
    }

    pub fn remove(&mut self, tag: u64) -> Option<T> {
        let at = self.held.binary_search_by_key(&tag, |(ours, _)| *ours).ok()?;
        self.held.remove(at).map(|(_, theirs)| theirs)
    }

    /// Settles these. Gives the last of those before which nothing is left, which one word settles together, and the others.
    pub fn remove_each(&mut self, tags: &[u64]) -> (Option<T>, Vec<T>) {
        let mut tags = tags.to_vec();
        tags.sort_unstable();
        let settled: Vec<(u64, T)> = tags.into_iter().filter_map(|tag| Some((tag, self.remove(tag)?))).collect();
        let left = self.held.front().map_or(u64::MAX, |(ours, _)| *ours);
        let (together, apart): (Vec<_>, Vec<_>) = settled.into_iter().partition(|(ours, _)| *ours < left);
        (
            together.into_iter().next_back().map(|(_, theirs)| theirs),
            apart.into_iter().map(|(_, theirs)| theirs).collect(),
        )
    }

    /// Gives back what came after `seen`, seen by the user or not.
    pub fn give_back(&mut self, seen: u64) -> Vec<T> {
        self.arrived.retain(|delivery| delivery.tag <= seen);
        let kept = self.held.partition_point(|(ours, _)| *ours <= seen);
        self.held.drain(kept..).map(|(_, theirs)| theirs).collect()
    }

    /// The connection is gone, and the other side has put back what was not settled, also what was not seen yet.
    pub fn lost(&mut self) {
        self.arrived.clear();
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(theirs: &[u64]) -> Inbox<u64> {
        let mut inbox = Inbox::default();
        theirs.iter().for_each(|tag| inbox.deliver(*tag, Bytes::new(), false));
        inbox
    }

    #[test]
    fn a_group_is_settled_by_its_last_and_only_once() {
        let mut inbox = inbox(&[7, 8, 9]);
        assert_eq!(inbox.remove(2), Some(8));
        assert_eq!((inbox.ack_through(2), inbox.ack_through(2)), (Some(7), None));
        assert_eq!((inbox.unsettled(), inbox.get(3)), (1, Some(&9)));
    }

    #[test]
    fn those_before_which_nothing_is_left_are_settled_by_one_word() {
        let mut inbox = inbox(&[7, 8, 9, 10, 11]);
        assert_eq!(inbox.remove_each(&[3, 1, 2, 5]), (Some(9), vec![11]));
        assert_eq!(inbox.remove_each(&[5, 3]), (None, vec![]), "a second time changes nothing");
        assert_eq!(inbox.remove_each(&[4]), (Some(10), vec![]));
        assert_eq!(inbox.unsettled(), 0);
    }

    #[test]
    fn a_tag_from_before_a_loss_settles_nothing_after_it() {
        let mut inbox = inbox(&[1, 2]);
        let stale = inbox.take()[1].tag;
        inbox.lost();
        inbox.deliver(1, Bytes::new(), true);
        assert_eq!((inbox.ack_through(stale), inbox.remove(stale)), (None, None));
        assert_eq!(inbox.unsettled(), 1);
    }
}
