//! The last message of each topic that asked to be kept, within bounds of count and bytes.

use std::sync::Arc;

use crate::limits::Limits;
use crate::session::Message;
use crate::topics::{TopicFilter, Trie};

#[derive(Debug, Default)]
pub struct Retained {
    messages: Trie<Arc<Message>>,
    bytes: usize,
    refused: u64,
}

impl Retained {
    /// Keeps it in place of the one before. An empty one takes that away. Past a bound it is not kept, and counted: it was
    /// still told to whoever listens now. Then the one before goes too, which would be a lie from now on.
    pub fn keep(&mut self, message: &Arc<Message>, limits: &Limits) {
        self.forget(message);
        if message.payload.is_empty() {
            return;
        }
        let cost = message.cost_bytes();
        if self.messages.len() >= limits.retained_messages_max || self.bytes + cost > limits.retained_bytes_max {
            self.refused += 1;
            return;
        }
        self.bytes += cost;
        self.messages.entry(message.topic.levels(), || message.clone());
    }

    /// As far as `steps` go, which are used up by looking.
    pub fn matched_by(&self, filter: &TopicFilter, steps: &mut usize) -> Vec<Arc<Message>> {
        let mut found = vec![];
        self.messages.matched_by(filter, steps, |message| found.push(message.clone()));
        found
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn forget(&mut self, message: &Message) {
        if let Some(before) = self.messages.change(message.topic.levels(), |_| false) {
            self.bytes -= before.cost_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Qos;
    use crate::topics::tests::{filter, name};

    fn message(topic: &str, payload: &'static str) -> Arc<Message> {
        Arc::new(Message {
            topic: name(topic),
            payload: payload.into(),
            qos: Qos::AtMostOnce,
            retain: true,
            wanted: None,
        })
    }

    fn payloads(retained: &Retained, wanted: &str) -> Vec<String> {
        let mut all: Vec<_> = retained
            .matched_by(&filter(wanted), &mut 1_000)
            .iter()
            .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn the_last_of_each_topic_is_kept_and_an_empty_one_takes_it_away() {
        let (mut retained, limits) = (Retained::default(), Limits::default());
        for (topic, payload) in [("a/x", "1"), ("a/y", "2"), ("a/x", "3"), ("b", "4"), ("a/y", "")] {
            retained.keep(&message(topic, payload), &limits);
        }
        assert_eq!(payloads(&retained, "a/#"), ["3"]);
        assert_eq!(payloads(&retained, "#"), ["3", "4"]);
        retained.keep(&message("a/x", ""), &limits);
        retained.keep(&message("b", ""), &limits);
        assert_eq!((retained.len(), retained.bytes()), (0, 0));
    }

    #[test]
    fn whoever_asks_for_everything_again_and_again_is_not_looked_for_without_end() {
        let (mut retained, limits) = (Retained::default(), Limits::default());
        for number in 0..100 {
            retained.keep(&message(&format!("a/{number}"), "x"), &limits);
        }
        let mut steps = 150;
        let found: Vec<usize> =
            ["#", "+/+", "a/#", "a/7"].iter().map(|one| retained.matched_by(&filter(one), &mut steps).len()).collect();
        assert_eq!((found[0], steps), (100, 0), "{found:?}");
        assert!(found[1] < 50 && found[2..] == [0, 0], "{found:?}");
    }

    #[test]
    fn past_a_bound_the_new_one_is_not_kept_and_an_outdated_one_neither() {
        let one = message("a", "1").cost_bytes();
        let limits = Limits { retained_messages_max: 2, retained_bytes_max: 2 * one, ..Limits::default() };
        let mut retained = Retained::default();
        for (topic, payload) in [("a", "1"), ("b", "2"), ("c", "3")] {
            retained.keep(&message(topic, payload), &limits);
        }
        assert_eq!((payloads(&retained, "#"), retained.refused()), (vec!["1".into(), "2".into()], 1));
        retained.keep(&message("a", "long"), &limits);
        assert_eq!((payloads(&retained, "#"), retained.refused()), (vec!["2".into()], 2));
        assert_eq!(retained.bytes(), one);
    }
}
