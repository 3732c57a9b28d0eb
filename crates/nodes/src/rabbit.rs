//! RabbitMQ as two [`Way`]s: AMQP by the unicast exchange, and MQTT by RabbitMQ's own plugin, which meets the rest on
//! `amq.topic`. One connection that comes back by itself; while it is away both say so, and what is heard waits there.
//!
//! What is declared is in [`topology`]. Queues that workers and clients declare as well have no arguments, or theirs
//! would be refused: what lies in them is bounded by what is put there ([`post`]).
//!
//! A channel that RabbitMQ ends is opened anew ([`channels`]); a queue of ours that somebody deletes is noticed by whoever reads
//! from it, and then everything is begun anew.
//!
//! A user that may not use `amq.topic` is refused each time it tries. So tries become rare, up to one a minute, and what it
//! lacks is said once, with the command that grants it.

mod channels;
mod hearing;
mod post;
mod topology;
mod users;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use channels::{Channels, Purpose};
use futures_util::{StreamExt, stream};
use lapin::Connection;
use mutirao_broker::Rabbit;
use mutirao_broker::rabbit::lacking_permission;
use mutirao_broker::rabbit::management::Management;
use mutirao_core::Problem;
use mutirao_core::clock::{Clock, ClockExt};
use tokio_util::sync::CancellationToken;

use crate::preference::Protocol;
use crate::registry::{Presence, Record};
use crate::switchboard::Switchboard;
use crate::way::{NotGiven, Outstanding, Parcel, Told, Waits, Way};
use crate::wire::MESSAGE_BYTES_MAX;
use crate::wire::places::{Places, TOPIC_EXCHANGE};
pub use post::Bounds;
use post::{BEAT_LASTS, CONFIRM_MAX, Letter, MustArrive, Post};

/// After a connection that was lost; twice as long after each further one that could not be had.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Both ways, open until they are stopped.
pub struct RabbitWays {
    stopping: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl RabbitWays {
    /// `management`: where nodes that have a key get users of their own.
    pub fn open(
        board: &Switchboard,
        rabbit: Arc<Rabbit>,
        management: Option<Arc<Management>>,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> Self {
        let post = Arc::new(Post::new(clock.clone(), board.places().clone(), bounds));
        if let Some(management) = management {
            board.give_users(Arc::new(users::NodeUsers { post: post.clone(), management }));
        }
        board.open(Arc::new(AmqpWay(post.clone())));
        board.open(Arc::new(PluginWay(post.clone())));
        let stopping = CancellationToken::new();
        let task = tokio::spawn(keep_on(board.clone(), rabbit, post, clock, stopping.clone()));
        Self { stopping, task }
    }

    pub async fn stop(self) {
        self.stopping.cancel();
        let _ = self.task.await;
    }
}

/// How it went with one connection.
struct Parted {
    why: String,
    /// It was of use for a while.
    attached: bool,
}

async fn keep_on(
    board: Switchboard,
    rabbit: Arc<Rabbit>,
    post: Arc<Post>,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
) {
    let (mut told, mut failed) = (String::new(), 0);
    loop {
        let Parted { why, attached } = tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            parted = attached(&board, &rabbit, &post, &clock) => parted,
        };
        post.attach(None);
        if attached {
            (told, failed) = (String::new(), 0);
        }
        // The same is said once, not with every try.
        if told != why {
            tracing::warn!("nodes are not reached by RabbitMQ: {why}; it is tried again");
            told = why;
        }
        tokio::select! {
            biased;
            () = stopping.cancelled() => break,
            () = clock.sleep(pause_after(failed)) => {}
        }
        failed += 1;
    }
    post.attach(None);
}

/// Doubling from the first to the last.
fn pause_after(failed: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << failed.min(16)).min(PAUSE_MAX)
}

/// Until the connection is lost.
async fn attached(board: &Switchboard, rabbit: &Rabbit, post: &Arc<Post>, clock: &Arc<dyn Clock>) -> Parted {
    let in_vain = |why: String| Parted { why, attached: false };
    let connection: Connection = match rabbit.dial("nodes").await {
        Ok(connection) => connection,
        Err(error) => return in_vain(error.to_string()),
    };
    let places = board.places();
    let channels = Channels::new(connection, places.clone(), clock.clone());
    let listening = async {
        // Declares what is listened to.
        channels.get(Purpose::Sending).await?;
        let ears = topology::listen(channels.connection(), places).await.map_err(|error| explain(&error, places))?;
        post.attach(Some(channels.clone()));
        Ok::<_, String>(ears)
    };
    let ears = match clock.timeout(CONFIRM_MAX * 2, listening).await {
        Ok(Ok(ears)) => ears,
        Ok(Err(why)) => return in_vain(why),
        Err(_) => return in_vain("RabbitMQ does not answer".into()),
    };
    // One that ends leaves us deaf to what it heard, though the others go on.
    let ears = ears.into_iter().map(|ear| ear.map(Some).chain(stream::iter([None])));
    let mut deliveries = stream::select_all(ears);
    while let Some(heard) = deliveries.next().await {
        let delivery = match heard {
            Some(Ok(delivery)) => delivery,
            Some(Err(error)) => return Parted { why: explain(&error, places), attached: true },
            None => {
                let why = "a queue of ours was deleted, or may be read no more".into();
                return Parted { why, attached: true };
            }
        };
        let (board, post) = (board.clone(), post.clone());
        let turn = board.turn().await;
        tokio::spawn(async move { hearing::take(&delivery, &board, &post, turn).await });
    }
    Parted { why: "the connection was lost".into(), attached: true }
}

/// With the command that helps, where it is a permission that is lacking.
fn explain(error: &lapin::Error, places: &Places) -> String {
    lacking_permission(error, places.0.as_str()).unwrap_or_else(|| error.to_string())
}

struct AmqpWay(Arc<Post>);

impl Post {
    /// At RabbitMQ no more waits for a node than it has slots, and nothing for longer than somebody wants it.
    fn waits(&self, node: &Record, presence: Presence, out: Outstanding) -> Waits {
        let slots = usize::try_from(node.slots).unwrap_or(usize::MAX);
        Waits {
            connected: presence == Presence::Registered,
            messages: out.messages,
            bytes: out.bytes,
            messages_max: slots,
            bytes_max: slots.saturating_mul(MESSAGE_BYTES_MAX),
            age_max_ms: u64::try_from(self.bounds.age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

#[async_trait]
impl Way for AmqpWay {
    fn protocol(&self) -> Protocol {
        Protocol::Amqp
    }

    async fn give(&self, parcel: Parcel<'_>) -> Result<(), NotGiven> {
        let post = &self.0;
        let letter = Letter {
            exchange: &post.places.unicast(),
            key: "",
            headers: Some(Post::unicast(&parcel.to.node)),
            text: parcel.text,
            must: MustArrive::Yes,
            lasts: parcel.wanted_for.min(post.bounds.age),
            on: Purpose::Sending,
        };
        post.send(letter).await.map_err(|why| NotGiven::Unreachable(format!("by AMQP: {why}")))
    }

    async fn beat(&self, text: &str) {
        let beats = self.0.places.beats();
        for (exchange, key) in [(beats.as_str(), ""), (TOPIC_EXCHANGE, beats.as_str())] {
            let (must, lasts, on) = (MustArrive::No, BEAT_LASTS, Purpose::Telling);
            let letter = Letter { exchange, key, headers: None, text, must, lasts, on };
            if let Err(why) = self.0.send(letter).await {
                tracing::debug!(why, exchange, "a beat was not told");
            }
        }
    }

    /// All clients read one queue, as the document has it.
    async fn answer(&self, text: &str, _: Option<&str>) -> Result<Told, Problem> {
        let (post, finals) = (&self.0, self.0.places.finals());
        let lasts = post.bounds.answers_age;
        let letter = |exchange, must, on| Letter { exchange, key: &finals, headers: None, text, must, lasts, on };
        if let Err(why) = post.send(letter(&finals, MustArrive::Yes, Purpose::Sending)).await {
            // Its queue may have been deleted, and is there at the next try.
            post.declare().await;
            return Err(Problem::unavailable(format!("the answer could not be put on {finals}: {why}")));
        }
        // For whoever listens on the topic; the queue has it already.
        let _ = post.send(letter(TOPIC_EXCHANGE, MustArrive::No, Purpose::Telling)).await;
        post.answered();
        Ok(Told::Safe)
    }

    fn waiting(&self, node: &Record, presence: Presence, out: Outstanding) -> Option<Waits> {
        node.heard_over.contains(&Protocol::Amqp).then(|| self.0.waits(node, presence, out))
    }
}

/// Devices at RabbitMQ's MQTT plugin.
struct PluginWay(Arc<Post>);

#[async_trait]
impl Way for PluginWay {
    fn protocol(&self) -> Protocol {
        Protocol::Mqtt
    }

    async fn give(&self, parcel: Parcel<'_>) -> Result<(), NotGiven> {
        let post = &self.0;
        let topic = post.places.device_topic(&parcel.to.node);
        if let Some(why) = parcel.to.is_too_small_for(&topic, parcel.text) {
            return Err(NotGiven::TooLong(why));
        }
        let key = topic.replace('/', ".");
        let letter = Letter {
            exchange: TOPIC_EXCHANGE,
            key: &key,
            headers: None,
            text: parcel.text,
            must: MustArrive::Yes,
            lasts: parcel.wanted_for.min(post.bounds.age),
            on: Purpose::Sending,
        };
        post.send(letter).await.map_err(|why| NotGiven::Unreachable(format!("by RabbitMQ's MQTT: {why}")))
    }

    /// The other way tells both.
    async fn beat(&self, _: &str) {}

    async fn answer(&self, _: &str, _: Option<&str>) -> Result<Told, Problem> {
        Ok(Told::NotHere)
    }

    fn waiting(&self, node: &Record, presence: Presence, out: Outstanding) -> Option<Waits> {
        let its_way = node.heard_over.contains(&Protocol::Mqtt) && node.proof.is_of_broker();
        its_way.then(|| self.0.waits(node, presence, out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_and_never_cease() {
        let pauses: Vec<u64> = [0, 1, 2, 3, 4, 5, 6, 1_000].map(|failed| pause_after(failed).as_secs()).into();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
