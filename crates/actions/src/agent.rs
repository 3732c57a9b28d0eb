//! A node on a machine or a device's neighbour: registers, takes messages, runs their actions, and sends what came of them
//! until somebody has it. What it speaks, a [`Line`] knows; here is everything that is the same over all of them.
//!
//! A message is acknowledged once its result is on disk ([`spool`]) or with somebody else, so a power cut loses neither: what
//! was not finished comes again, what was finished is sent after the start. A result is sent at once, and is written to the file as it
//! is: whoever asked waits for no disk, and what is taken within a moment costs none. A message that comes twice is run once, and each of its copies is
//! acknowledged when that run is safe, not before ([`desk`]).
//!
//! In hand is what runs or waits for a slot; what has ended is the spool's, within the spool's bounds, and takes no room of
//! what is in hand, nor does what is left from before a start. So results that nobody takes stop new work only when the
//! spool is full, and never what is heard from managers.
//!
//! What is *not* here: which manager it talks to, and what it may do ([`Table`]).

pub mod amqp;
mod desk;
pub mod http;
pub mod mqtt;
mod registering;
mod results;
pub mod spool;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice};
use mutirao_nodes::enrolment::Event;
use mutirao_nodes::errand::End;
use mutirao_nodes::wire::{Ack, Heartbeat, Message, Register, Word};
use mutirao_nodes::{ActionName, Layer, Namespace, NodeId, Offer};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

use crate::Table;
use desk::{Desk, Turn};
use registering::Registering;
use results::Results;
use spool::Spool;

/// Messages in hand, those that wait for a slot included. Whoever sends more is left waiting.
const IN_HAND_MAX: usize = 256;
const TICK: Duration = Duration::from_secs(1);
/// How long running tasks, and then their results, may take when the node is asked to stop.
const STOP_MAX: Duration = Duration::from_secs(15);

/// How a node speaks with its managers.
#[async_trait]
pub trait Line: Send + Sync {
    async fn register(&self, text: String) -> Result<(), String>;
    /// Ok once it is safe with somebody else. Why not, in a line.
    async fn result(&self, text: String) -> Result<(), String>;
}

/// What comes over a line.
pub enum Heard {
    Connected,
    Disconnected,
    ManagerUp,
    ManagerDown,
    Beat(Bytes),
    Ack(Bytes),
    /// And what to call once it need not come again.
    Message(Bytes, Accept),
}

pub type Accept = Box<dyn FnOnce() + Send>;

/// Who a node is.
#[derive(Clone, Debug)]
pub struct Me {
    pub node: NodeId,
    pub layer: Layer,
    pub namespace: Namespace,
    /// Where it answers HTTP; empty if it does not.
    pub endpoint: String,
    pub labels: BTreeMap<String, String>,
    /// Tasks that it runs at once.
    pub slots: usize,
}

impl Me {
    pub fn register(&self, table: &Table) -> Register {
        Register {
            endpoint: self.endpoint.clone(),
            layer: self.layer,
            kind: "mutirao".into(),
            node: self.node.clone(),
            force_register: true,
            actions: table.offers().iter().map(Offer::to_string).collect(),
            parameters: table.declared(),
            labels: self.labels.clone(),
            slots: u32::try_from(self.slots).ok(),
        }
    }
}

pub struct Agent {
    me: Me,
    table: Arc<Table>,
    clock: Arc<dyn Clock>,
    line: Arc<dyn Line>,
    slots: Semaphore,
    desk: Desk,
    results: Results,
}

impl Agent {
    pub fn new(
        me: Me,
        table: Arc<Table>,
        line: Arc<dyn Line>,
        spool: Spool,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Arc<Self> {
        let desk = Desk::default();
        for (number, text) in spool.waiting() {
            if let Ok(message) = Message::read(text.as_bytes()) {
                desk.kept(&key_of(&message), number);
            }
        }
        let results = Results::new(spool, line.clone(), clock.clone(), dice);
        let slots = Semaphore::new(me.slots.max(1));
        Arc::new(Self { me, table, clock, line, slots, desk, results })
    }

    /// Works until `stop`, then finishes what it has, within a while.
    pub async fn run(self: Arc<Self>, mut heard: mpsc::Receiver<Heard>, stop: impl Future<Output = ()>) {
        let mut registering = Registering::new(self.me.clone(), self.table.clone(), self.line.clone());
        let (mut in_hand, mut leaving) = (JoinSet::new(), JoinSet::new());
        self.replay(&mut leaving);
        let mut offers = self.table.changes();
        let mut tick = self.clock.sleep(TICK);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = &mut tick => {
                    tick = self.clock.sleep(TICK);
                    registering.hear(Event::Tick, self.clock.monotonic());
                }
                Ok(()) = offers.changed() => registering.offers_changed(),
                Some(ended) = in_hand.join_next(), if !in_hand.is_empty() => self.clone().let_go(ended, &mut leaving),
                Some(_) = leaving.join_next(), if !leaving.is_empty() => {}
                said = heard.recv(), if in_hand.len() < IN_HAND_MAX => match said {
                    None => break,
                    Some(Heard::Message(bytes, accept)) => self.clone().take(&bytes, accept, &mut in_hand),
                    Some(other) => if let Some(event) = event_of(other) {
                        registering.hear(event, self.clock.monotonic());
                    },
                },
            }
        }
        let finish = async {
            while let Some(ended) = in_hand.join_next().await {
                self.clone().let_go(ended, &mut leaving);
            }
            while leaving.join_next().await.is_some() {}
        };
        if self.clock.timeout(STOP_MAX, finish).await.is_err() {
            tracing::warn!(
                "stopped with tasks running; they come again, and results that were not sent are sent at the next start"
            );
        }
    }

    fn take(self: Arc<Self>, bytes: &[u8], accept: Accept, in_hand: &mut JoinSet<Option<Kept>>) {
        let read = Message::read(bytes).map_err(|rubbish| rubbish.to_string()).and_then(|message| {
            // With a version, or without.
            let offer: Offer =
                message.action.parse().map_err(|error: mutirao_nodes::names::BadName| error.to_string())?;
            Ok((message, offer.action))
        });
        let (message, action) = match read {
            Ok(read) => read,
            Err(why) => {
                tracing::warn!("a message is left: {why}");
                return accept();
            }
        };
        let this = self.clone();
        match self.desk.ask(key_of(&message), accept) {
            None => {}
            Some(Turn::Again(text)) => {
                in_hand.spawn(async move {
                    this.results.say_again(text).await;
                    None
                });
            }
            Some(Turn::Kept(key, number)) => {
                in_hand.spawn(async move {
                    // It may have been sent since.
                    let kept = this.results.text(number).await;
                    if let Some(text) = kept.or_else(|| this.desk.answer(&key)) {
                        this.results.say_again(text).await;
                    }
                    None
                });
            }
            Some(Turn::Run(key)) => {
                in_hand.spawn(async move { this.work(message, action, key).await });
            }
        }
    }

    /// To its end, and until that is safe: on disk, or with somebody else, whichever is sooner. Dropped before, its message
    /// comes again.
    async fn work(self: Arc<Self>, message: Message, action: ActionName, key: String) -> Option<Kept> {
        let underway = self.desk.underway(key.clone());
        let (text, mut saying, number) = {
            let _slot = self.slots.acquire().await.ok()?;
            self.results.room().await;
            // One that breaks has failed, and says so: left alone it would break whoever has it next as well.
            let run = AssertUnwindSafe(self.table.run(&action, &message.data)).catch_unwind().await;
            let end = run.unwrap_or_else(|_| End::Failed("the action broke down; the node's log says where".into()));
            let text = results::written(&message, end);
            // Whoever asked waits for it, and not for our disk.
            underway.said(&text);
            let mut saying = self.clone().saying(text.clone());
            let taken = Notify::new();
            let keeping = self.results.keep(text.clone(), &taken);
            tokio::pin!(keeping);
            let number = tokio::select! {
                biased;
                number = &mut keeping => number,
                () = &mut saying => {
                    underway.ended(text);
                    taken.notify_one();
                    // What was begun is ended, or it would be said again after the next start.
                    if let Some(number) = keeping.await {
                        self.results.gone(number).await;
                    }
                    return None;
                }
            };
            (text, saying, number)
        };
        let Some(number) = number else {
            // The disk does not take it: it is safe only once somebody else has it.
            saying.as_mut().await;
            underway.ended(text);
            return None;
        };
        underway.kept(number);
        Some(Kept { key, number, text, saying })
    }

    fn saying(self: Arc<Self>, text: String) -> Saying {
        Box::pin(async move { self.results.say(text).await })
    }

    /// Until somebody else has it.
    async fn send(self: Arc<Self>, kept: Kept) {
        let Kept { key, number, text, saying } = kept;
        saying.await;
        self.desk.sent(&key, text);
        self.results.gone(number).await;
    }

    /// What has ended goes on its way, and takes no room of what is in hand.
    fn let_go(self: Arc<Self>, ended: Result<Option<Kept>, JoinError>, leaving: &mut JoinSet<()>) {
        match ended {
            Ok(Some(kept)) => drop(leaving.spawn(self.send(kept))),
            Ok(None) => {}
            Err(error) => tracing::error!(%error, "a task broke; its message comes again"),
        }
    }
}

/// What whoever is not let in does about it.
fn remedy(user: Option<&str>) -> String {
    match user {
        Some(user) => format!("look at the password of {user}; where the manager is, `mutirao device list` shows who may come in"),
        None => "it shows no credentials; where the manager is, `mutirao node invite ID` prints a token for its MUTIRAO_ENROL_TOKEN, or \
                 `mutirao device add ID --to FILE` a password for its --user ID --password-file FILE"
            .into(),
    }
}

/// A result on its way to somebody else; done once it is there.
type Saying = BoxFuture<'static, ()>;

/// A result on disk, still to be sent.
struct Kept {
    /// Of the message that it answers.
    key: String,
    number: u64,
    text: String,
    saying: Saying,
}

/// A request may go through several actions of one node.
fn key_of(message: &Message) -> String {
    format!("{}\n{}", message.request, message.action)
}

fn event_of(heard: Heard) -> Option<Event> {
    Some(match heard {
        Heard::Connected => Event::Connected,
        Heard::Disconnected => Event::Disconnected,
        Heard::ManagerUp => Event::ManagerUp,
        Heard::ManagerDown => Event::ManagerDown,
        Heard::Beat(bytes) => Event::Beat(read::<Heartbeat>(&bytes)?),
        Heard::Ack(bytes) => Event::Acknowledged(read::<Ack>(&bytes)?),
        Heard::Message(..) => return None,
    })
}

fn read<T: Word>(bytes: &[u8]) -> Option<T> {
    T::read(bytes).map_err(|rubbish| tracing::debug!("{rubbish}")).ok()
}
