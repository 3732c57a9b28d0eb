//! What clients of the wire are told. RabbitMQ keeps it until somebody reads it; our own listener keeps nothing for clients that
//! are not there. So an answer that nobody heard is kept in the store, within bounds of number, bytes and age, and told when
//! somebody listens: whoever asked, went away and comes back finds it.
//!
//! Told may be twice, when it is told by two managers, or one is killed between telling and forgetting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mutirao_core::Problem;

use super::Inner;
use super::people::refused;
use crate::store::Bounds;
use crate::way::Told;

/// Of answers that nobody heard: the newest.
const BOUNDS: Bounds = Bounds { rows_max: 10_000, bytes_max: 64 << 20, age_max: Duration::from_secs(7 * 86_400) };
/// Told at once.
const TOLD_MAX: u32 = 64;

#[derive(Default)]
pub struct Untold {
    /// There may be some: another manager, or we before a restart, may have kept them.
    none: AtomicBool,
    telling: AtomicBool,
}

impl Inner {
    pub(super) async fn tell_answer(&self, text: String) -> Result<(), Problem> {
        if self.tell_everywhere(&text).await? == Told::NobodyListens {
            self.store.keep_answer(self.clock.now(), text, BOUNDS).await.map_err(refused)?;
            self.answers.none.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn tell_everywhere(&self, text: &str) -> Result<Told, Problem> {
        let mut told = Told::NotHere;
        for way in self.ways() {
            told = match (told, way.answer(text).await?) {
                (Told::Safe, _) | (_, Told::Safe) => Told::Safe,
                (Told::NobodyListens, _) | (_, Told::NobodyListens) => Told::NobodyListens,
                (Told::NotHere, Told::NotHere) => Told::NotHere,
            };
        }
        Ok(told)
    }

    /// The oldest first, for as long as somebody listens. One at a time: whoever listens hears them in order.
    pub(super) async fn tell_untold(&self) {
        if self.answers.none.load(Ordering::Relaxed) || self.answers.telling.swap(true, Ordering::Relaxed) {
            return;
        }
        self.tell_some().await;
        self.answers.telling.store(false, Ordering::Relaxed);
    }

    async fn tell_some(&self) {
        // Before they are read: one that is kept meanwhile is looked for.
        self.answers.none.store(true, Ordering::Relaxed);
        let read = self.store.answers(TOLD_MAX).await;
        let kept = self.trouble.told("answers that nobody heard could not be read", read);
        let some = kept.as_ref().is_none_or(|kept| !kept.is_empty());
        let mut told = Vec::new();
        for (number, text) in kept.unwrap_or_default() {
            match self.tell_everywhere(&text).await {
                Ok(Told::Safe) => told.push(number),
                // Never will be: it is none, or too long for everybody.
                Err(problem) if problem.status == 422 => told.push(number),
                _ => break,
            }
        }
        if some {
            self.answers.none.store(false, Ordering::Relaxed);
        }
        if !told.is_empty() {
            let forgotten = self.store.forget_answers(told).await;
            self.trouble.told("answers that were told could not be removed, and are told again", forgotten);
        }
    }
}
