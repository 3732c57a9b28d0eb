//! One connection to RabbitMQ that is kept up for ever. Whoever needs it asks for it as it is now ([`Line::up`]), and
//! after a loss asks again; each connection has a generation, so that what belongs to an old one is not taken for new.
//!
//! Not here: what is done on it.

mod keeping;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lapin::{Channel, Connection, ErrorKind};
use mutirao_core::clock::ClockExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::dial::Dial;
use super::trouble::Trouble;
use crate::BrokerError;
use crate::backoff::WAIT_FIRST;
use keeping::keep_up;

pub(super) use keeping::MARKED_WITHIN;

/// How long RabbitMQ may take to answer, or to confirm anything at all. A queue without a leader does neither, and
/// RabbitMQ 3 forgets what was asked of it meanwhile, so waiting longer would be in vain.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);

/// AMQP's code for a connection that is closed because it has served.
const USED_UP: u16 = 200;

/// A connection as it was when it was asked for.
#[derive(Clone)]
pub(super) struct Up {
    connection: Arc<Connection>,
    pub generation: u64,
    /// The client library never gives a channel's number free again once it has met the refusal of a former channel there.
    spoilt: Arc<AtomicBool>,
}

impl Up {
    /// The server has said that it takes nothing until it has memory or disk again.
    pub fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    pub async fn channel(&self) -> Result<Channel, Trouble> {
        match self.connection.create_channel().await {
            Ok(channel) => Ok(channel),
            Err(error) => {
                match error.kind() {
                    ErrorKind::ChannelsLimitReached if self.spoilt.load(Ordering::Relaxed) => self.use_up().await,
                    ErrorKind::ChannelsLimitReached => {}
                    _ => self.spoilt.store(true, Ordering::Relaxed),
                }
                // Nothing was asked yet that could be refused. What the client library reports here can be the refusal of a
                // former channel with the same number.
                Err(Trouble::Lost(error.to_string()))
            }
        }
    }

    /// A long row of refusals has spoilt all numbers of channels, and only another connection has new ones.
    async fn use_up(&self) {
        if self.connection.status().connected() {
            tracing::info!("all channels of a connection to the broker are used up by refusals: it is made anew");
            let _ = self.connection.close(USED_UP, "channels used up".into()).await;
        }
    }
}

#[derive(Clone)]
enum State {
    Up(Up),
    /// Not up, and why.
    Down(BrokerError),
    /// For good.
    Shut,
}

struct Core {
    purpose: &'static str,
    dial: Arc<Dial>,
    state: watch::Sender<State>,
    /// What was declared and checked on the connection of this generation.
    declared: Mutex<(u64, HashSet<String>)>,
}

pub(super) struct Line {
    core: Arc<Core>,
    task: Mutex<Option<AbortHandle>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Line {
    /// Connects when it is first needed.
    pub fn new(purpose: &'static str, dial: Arc<Dial>) -> Self {
        let away = BrokerError::Unreachable("not connected yet".into());
        let state = watch::Sender::new(State::Down(away));
        Self { core: Arc::new(Core { purpose, dial, state, declared: Mutex::default() }), task: Mutex::default() }
    }

    /// Connects now, once, and says what is wrong; from then on it is kept up.
    pub async fn connect(&self) -> Result<(), BrokerError> {
        let connection = self.core.dial.dial(self.core.purpose).await?;
        self.start(Some(connection));
        self.up().await.map(|_| ())
    }

    fn start(&self, first: Option<Connection>) {
        let mut task = self.task.lock();
        if task.is_none() && !matches!(*self.core.state.borrow(), State::Shut) {
            *task = Some(tokio::spawn(keep_up(self.core.clone(), first)).abort_handle());
        }
    }

    /// Waits until the connection is up. [`BrokerError::Closed`] when it never will be again.
    pub async fn up(&self) -> Result<Up, BrokerError> {
        self.start(None);
        let mut states = self.core.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, State::Down(_))).await;
        match settled.map(|state| state.clone()) {
            Ok(State::Up(up)) => Ok(up),
            _ => Err(BrokerError::Closed),
        }
    }

    /// The connection if it is up now.
    pub fn now(&self) -> Result<Up, BrokerError> {
        self.start(None);
        match &*self.core.state.borrow() {
            State::Up(up) => Ok(up.clone()),
            State::Down(why) => Err(why.clone()),
            State::Shut => Err(BrokerError::Closed),
        }
    }

    /// Waits for a moment, or until there is a newer connection: a server that says nothing useful is not to be asked a
    /// thousand times a second.
    pub async fn after_loss(&self, generation: u64) {
        let mut states = self.core.state.subscribe();
        let newer = |state: &State| match state {
            State::Up(up) => up.generation > generation,
            State::Down(_) => false,
            State::Shut => true,
        };
        let pause = self.core.dial.dice.jitter(WAIT_FIRST);
        tokio::select! {
            _ = states.wait_for(newer) => {}
            () = self.core.dial.clock.sleep(pause) => {}
        }
    }

    /// The value of something that was asked on a connection; a loss when nothing comes of it. While the server has said
    /// that it takes nothing, there is nothing to do but wait.
    pub async fn answered<T, E>(&self, up: &Up, asking: impl Future<Output = Result<T, E>> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<Trouble> + Send,
    {
        let Some(answer) = self.in_time(up, ANSWER_MAX, asking).await else {
            let (broker, purpose) = (&self.core.dial.target().place.address, self.core.purpose);
            tracing::warn!(
                broker,
                purpose,
                "the broker is connected and does not answer; rabbitmq-queues quorum_status shows whether a queue has \
                 lost its leader; one that does not get it back can be deleted, and is made anew"
            );
            return Err(Trouble::Lost(format!("no answer within {} s", ANSWER_MAX.as_secs())).into());
        };
        answer
    }

    /// None when it takes too long and the server has not said why.
    pub async fn in_time<T: Send>(
        &self,
        up: &Up,
        longest: Duration,
        awaited: impl Future<Output = T> + Send,
    ) -> Option<T> {
        let mut awaited = std::pin::pin!(awaited);
        loop {
            match self.core.dial.clock.timeout(longest, awaited.as_mut()).await {
                Ok(value) => return Some(value),
                Err(_) if up.is_blocked() => {}
                Err(_) => return None,
            }
        }
    }

    pub fn has_declared(&self, up: &Up, name: &str) -> bool {
        let declared = self.core.declared.lock();
        declared.0 == up.generation && declared.1.contains(name)
    }

    pub fn note_declared(&self, up: &Up, name: &str) {
        let mut declared = self.core.declared.lock();
        if declared.0 == up.generation {
            declared.1.insert(name.into());
        }
    }

    /// It turned out not to be there any more.
    pub fn forget_declared(&self, name: &str) {
        self.core.declared.lock().1.remove(name);
    }

    pub fn shut(&self) {
        if let Some(task) = self.task.lock().take() {
            task.abort();
        }
        let before = self.core.state.send_replace(State::Shut);
        let runtime = tokio::runtime::Handle::try_current();
        if let (State::Up(up), Ok(runtime)) = (before, runtime) {
            // The server would notice by itself, and complain in its log.
            runtime.spawn(async move { up.connection.close(200, "goodbye".into()).await });
        }
    }

    /// Waits until it is shut.
    pub async fn until_shut(&self) {
        let mut states = self.core.state.subscribe();
        // The sender is in the core, which this handle keeps.
        let _ = states.wait_for(|state| matches!(state, State::Shut)).await;
    }
}

impl Core {
    /// Whether it is news: the same is not said every few seconds.
    fn told(&self, why: &BrokerError) -> bool {
        !matches!(&*self.state.borrow(), State::Down(before) if before == why)
    }

    /// What is shut stays shut, also when its task has not noticed yet.
    fn become_(&self, next: State) {
        self.state.send_if_modified(|state| {
            let shut = matches!(state, State::Shut);
            if !shut {
                *state = next;
            }
            !shut
        });
    }
}
