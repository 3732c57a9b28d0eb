//! What a foreman asks for, carried out.

use std::time::Duration;

use mutirao_core::id::Attempt;
use mutirao_nodes::errand::Errand;
use mutirao_nodes::routing::Ended;
use mutirao_nodes::wire::TaskRequest;
use serde_json::json;

use super::Word;
use super::drive::{News, PAUSE, Post, now};
use crate::answer::Told;
use crate::foreman::reckoning::Reckoning;
use crate::foreman::words::{Because, Dispatch, Effect, Input, StepKey};
use crate::view::RunState;
use crate::wire::{Reply, RequestId};
use crate::{meters, wire};

/// A larger answer cannot travel: its client is told where to read it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What is done in one go, before what has come meanwhile is heard, and others of this process have their turn.
pub(super) const STINT: Duration = Duration::from_millis(5);

/// What is left to be done.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Left {
    Nothing,
    More,
}

impl Post {
    pub(super) fn work(&mut self) -> Left {
        let now = now(&self.bench);
        let mut left = Left::Nothing;
        while let Some(effect) = self.foreman.poll(now) {
            match effect {
                Effect::Reckon(reckoning) => self.reckon(*reckoning),
                Effect::Dispatch(dispatch) => self.send(dispatch),
                Effect::Recall { key, attempt, because } => {
                    let how = if because == Because::Overdue { Ended::Badly } else { Ended::Recalled };
                    self.ended(key, attempt, how);
                }
                Effect::Write(batch) => {
                    self.batch = Some(batch.clone());
                    let (store, fence, tell) = (self.bench.store.clone(), self.fence.clone(), self.tell.clone());
                    let clock = self.bench.clock.clone();
                    self.beside.spawn(async move {
                        let (number, begun) = (batch.number, clock.monotonic());
                        let written = store.write(fence, batch).await;
                        meters::written(clock.monotonic().since(begun));
                        let _ = tell.send(News::Written(number, written)).await;
                    });
                }
                Effect::Acknowledge(mark) => self.acknowledge(mark),
                Effect::Announce(told) => self.announce(*told),
            }
            if self.bench.clock.monotonic().since(now.mono) >= STINT {
                left = Left::More;
                break;
            }
        }
        self.show();
        left
    }

    /// On a thread of its own, and so many at a time: others go on.
    fn reckon(&mut self, reckoning: Reckoning) {
        let (heads, tell) = (self.bench.heads.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let Ok(head) = heads.acquire_owned().await else { return };
            let broken = reckoning.broken();
            let worked_out = tokio::task::spawn_blocking(move || {
                let reckoned = reckoning.reckon();
                drop(head);
                reckoned
            });
            let reckoned = worked_out.await.unwrap_or(broken);
            let _ = tell.send(News::Reckoned(Box::new(reckoned))).await;
        });
    }

    /// What came of a report is durable, or it has no meaning.
    pub(super) fn acknowledge(&mut self, mark: u64) {
        if let Some(reporter) = self.reporters.remove(&mark) {
            let _ = reporter.send(());
        }
    }

    /// How much is under way here, for whoever asks whether there is room.
    fn show(&mut self) {
        let (runs, bytes) = (self.foreman.runs(), self.foreman.bytes());
        if (runs, bytes) != (self.runs_shown, self.bytes_shown) {
            meters::open(runs as f64 - self.runs_shown as f64);
            meters::held(bytes as f64 - self.bytes_shown as f64);
            self.bench.doors.count(self.fence.shard, runs, bytes);
            (self.runs_shown, self.bytes_shown) = (runs, bytes);
        }
    }

    pub(super) fn request(&self, key: StepKey, attempt: Attempt) -> String {
        RequestId { key, attempt }.sealed(&self.bench.secret)
    }

    /// A task is out no more: its node may have room for another, whoever waits.
    pub(super) fn ended(&self, key: StepKey, attempt: Attempt, how: Ended) {
        self.bench.reach.ended(&self.request(key, attempt), how);
        let Some(action) = self.foreman.action_of(key) else { return };
        if let Some(door) = self.bench.queues.next(&action).and_then(|shard| self.bench.doors.of(shard)) {
            // One that does not hear it looks by itself.
            let _ = door.try_send(Word::Room(action));
        }
    }

    fn send(&mut self, dispatch: Dispatch) {
        let Dispatch { key, attempt, action, input, place, timeout, not } = dispatch;
        let request = self.request(key, attempt);
        let (reach, tell) = (self.bench.reach.clone(), self.tell.clone());
        let (shards, fence) = (self.bench.shards.clone(), self.fence.clone());
        self.beside.spawn(async move {
            // Whoever was frozen since sends nothing.
            if shards.tenure(fence.shard).is_some_and(|tenure| tenure.generation == fence.generation) {
                let errand = Errand { request, action: action.clone(), data: input.to_string(), place, timeout, not };
                let sent = reach.send(errand).await;
                let _ = tell.send(News::Sent(key, attempt, action, sent)).await;
            }
        });
    }

    /// Whoever waits here is told; a client of the wire until its answer is where it looks for it.
    fn announce(&mut self, told: Told) {
        let run = told.key();
        meters::ended(RunState::from(&told.end).as_str());
        let _ = self.bench.ended.send(run);
        let Some(Reply { task, client }) = self.replies.remove(&run) else {
            if !told.is_light() {
                // To let go of much takes a while too.
                tokio::task::spawn_blocking(move || drop(told));
            }
            return self.tell_foreman(Input::Announced(run));
        };
        let (reach, clock, tell) = (self.bench.reach.clone(), self.bench.clock.clone(), self.tell.clone());
        self.beside.spawn(async move {
            let Some(text) = answered(task, told).await else {
                return tracing::error!(
                    run = run.0,
                    "an answer could not be put together; whoever owns the run next tries"
                );
            };
            while let Err(problem) = reach.answer(text.clone(), client.as_deref()).await {
                if (400..500).contains(&problem.status) && problem.status != 429 {
                    tracing::warn!(run = run.0, problem = problem.line(), "an answer is refused, and not sent again");
                    break;
                }
                tracing::debug!(run = run.0, problem = problem.line(), "an answer could not leave; trying again");
                clock.sleep(PAUSE).await;
            }
            let _ = tell.send(News::Answered(run)).await;
        });
    }
}

/// None: this program broke in it.
async fn answered(task: TaskRequest, told: Told) -> Option<String> {
    let run = told.key();
    let too_large = move |bytes: usize| {
        let reason = format!("its answer of {bytes} bytes is too large to travel; read it at /v1/runs/{}", run.0);
        json!({"run": run, "state": "failed", "reason": reason})
    };
    let light = told.is_light();
    let text = move || {
        let text = wire::answer_of(&task, &told.answer());
        if text.len() > ANSWER_BYTES_MAX { wire::answer_of(&task, &too_large(text.len())) } else { text }
    };
    if light {
        return Some(text());
    }
    tokio::task::spawn_blocking(text).await.ok()
}
