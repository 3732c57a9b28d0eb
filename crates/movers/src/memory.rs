//! What is remembered of each part: its messages of the last while, one for each second, in their order. They may come late,
//! twice, in any order, or not at all.

use std::collections::BTreeMap;

use mutirao_streams::wire::Part;

use crate::message::Message;
use crate::scene::Scene;

/// How far back anything is remembered, and how far ahead of us a host's clock may be.
pub const KEPT_MS: u64 = 30_000;
const AHEAD_MS: u64 = 5_000;
/// More than a message each half second is no second's message.
const MESSAGES_MAX: usize = 80;

#[derive(Clone, Debug, Default)]
pub struct Memory {
    parts: BTreeMap<Part, BTreeMap<u64, Message>>,
}

impl Memory {
    pub fn hear(&mut self, now_ms: u64, message: Message) {
        let (at, part) = (message.at_ms, message.part.clone());
        if at > now_ms + AHEAD_MS || at + KEPT_MS < now_ms || !message.is_sound() {
            return;
        }
        let heard = self.parts.entry(part).or_default();
        // What was said first stays, so that hearing it twice changes nothing.
        heard.entry(at).or_insert(message);
        while heard.len() > MESSAGES_MAX || heard.first_key_value().is_some_and(|(at, _)| at + KEPT_MS < now_ms) {
            heard.pop_first();
        }
    }

    /// Only of parts that there still are.
    pub fn tidy(&mut self, scene: &Scene) {
        let there: std::collections::BTreeSet<&Part> = scene.parts.iter().map(|seated| &seated.part).collect();
        self.parts.retain(|part, _| there.contains(part));
    }

    /// Of the last `length_ms` until `now_ms`, oldest first, wherever the part was.
    pub fn of<'a>(&'a self, part: &Part, now_ms: u64, length_ms: u64) -> impl Iterator<Item = &'a Message> {
        let from = (now_ms + 1).saturating_sub(length_ms);
        self.parts.get(part).into_iter().flat_map(move |heard| heard.range(from..=now_ms)).map(|(_, message)| message)
    }
}
