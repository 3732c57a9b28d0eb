//! One process that stays. For each task it is given a line `{"id": "7", "input": …}` and answers, in any order, with
//! `{"id": "7", "output": …}` or `{"id": "7", "error": "why"}`.
//!
//! It is started when it is first needed, and again, after a pause that grows, when it has died: the tasks that were with it
//! fail, those that wait are given to the next. One that answers nothing that anybody still waits for hangs, and is ended.
//! When its action is replaced or removed it finishes what it has, and is ended.

mod talk;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::{Clock, Dice, Mono};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::Surroundings;
use super::process::Program;
use crate::Action;
use talk::{Parted, Talk};

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// One that lived this long died of something else than its start.
const LIVED: Duration = Duration::from_secs(10);

pub struct Lines {
    orders: mpsc::Sender<Order>,
    /// What it is given at once. Held until it has answered, or is dead, or nobody waits any more.
    turns: Semaphore,
}

struct Order {
    data: String,
    done: oneshot::Sender<Result<String, String>>,
}

impl Lines {
    pub fn new(program: Program, at_once: usize, around: &Surroundings) -> Self {
        let (orders, taken) = mpsc::channel(at_once);
        tokio::spawn(keep(program, taken, around.clock.clone(), around.dice.clone()));
        Self { orders, turns: Semaphore::new(at_once) }
    }
}

#[async_trait]
impl Action for Lines {
    async fn run(&self, data: &str) -> Result<String, String> {
        let gone = || "the program is being replaced; try again".to_owned();
        let _turn = self.turns.acquire().await.map_err(|_| gone())?;
        let (done, answer) = oneshot::channel();
        self.orders.send(Order { data: data.into(), done }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// Starts it, again and again, for as long as somebody may need it.
async fn keep(program: Program, mut orders: mpsc::Receiver<Order>, clock: Arc<dyn Clock>, dice: Arc<Dice>) {
    let mut pause = PAUSE_MIN;
    let mut not_before: Option<Mono> = None;
    while let Some(first) = orders.recv().await {
        if let Some(at) = not_before {
            clock.sleep(at.since(clock.monotonic())).await;
        }
        if first.done.is_closed() {
            continue;
        }
        let began = clock.monotonic();
        let parted = match program.start() {
            Ok(running) => {
                Talk::new(running, program.output_bytes_max, HashMap::new()).run(first, &mut orders, &*clock).await
            }
            Err(why) => {
                // Nobody waits any more, or is told why.
                let _ = first.done.send(Err(why));
                Parted::Died
            }
        };
        let now = clock.monotonic();
        match parted {
            Parted::NotNeeded => return,
            Parted::Died if now.since(began) < LIVED => {
                not_before = Some(now.plus(dice.jitter(pause)));
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Parted::Died => (not_before, pause) = (None, PAUSE_MIN),
        }
    }
}
