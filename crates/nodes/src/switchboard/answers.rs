//! What clients of the wire are told. RabbitMQ keeps it until somebody reads it; our own listener keeps nothing for clients that
//! are not there. So an answer that nobody heard is kept in the store, within bounds of number, bytes and age, and told when
//! somebody listens: whoever asked, went away and comes back finds it. Where it is known who asked, it is told to that one.
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
/// Told at once, to each client.
const TOLD_MAX: u32 = 64;
const UNREAD: &str = "answers that nobody heard could not be read";

#[derive(Default)]
pub struct Untold {
    /// There may be some: another manager, or we before a restart, may have kept them.
    none: AtomicBool,
    telling: AtomicBool,
}

impl Inner {
    pub(super) async fn tell_answer(&self, text: String, client: Option<&str>) -> Result<(), Problem> {
        if self.tell_everywhere(&text, client).await? == Told::NobodyListens {
            let client = client.map(str::to_owned);
            self.store.keep_answer(self.clock.now(), client, text, BOUNDS).await.map_err(refused)?;
            self.answers.none.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn tell_everywhere(&self, text: &str, client: Option<&str>) -> Result<Told, Problem> {
        let mut told = Told::NotHere;
        for way in self.ways() {
            told = match (told, way.answer(text, client).await?) {
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
        let clients = self.trouble.told(UNREAD, self.store.answered_clients().await);
        let some = clients.as_ref().is_none_or(|clients| !clients.is_empty());
        for client in clients.unwrap_or_default() {
            // Of one that does not listen no more is read than one.
            if self.tell_to(&client, 1).await {
                self.tell_to(&client, TOLD_MAX).await;
            }
        }
        if some {
            self.answers.none.store(false, Ordering::Relaxed);
        }
    }

    /// Whether it listens, or may.
    async fn tell_to(&self, client: &Option<String>, most: u32) -> bool {
        let kept = self.trouble.told(UNREAD, self.store.answers(client.clone(), most).await);
        let mut told = Vec::new();
        let mut listens = true;
        for (number, text) in kept.unwrap_or_default() {
            match self.tell_everywhere(&text, client.as_deref()).await {
                Ok(Told::Safe) => told.push(number),
                // Never will be: it is none, or too long for everybody.
                Err(problem) if problem.status == 422 => told.push(number),
                _ => {
                    listens = false;
                    break;
                }
            }
        }
        if !told.is_empty() {
            let forgotten = self.store.forget_answers(told).await;
            self.trouble.told("answers that were told could not be removed, and are told again", forgotten);
        }
        listens
    }
}
