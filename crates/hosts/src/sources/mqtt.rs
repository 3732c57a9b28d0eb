//! Messages of MQTT topics, with quality 1: each is acknowledged once what came of it is durable. From the installation's own
//! listener that needs no connection; where the installation has RabbitMQ, which speaks MQTT beside AMQP, from a queue of its
//! topic exchange; and from another broker as a client whose id is the stream's, so that whoever takes over ends the one before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::Clock;
use mutirao_mqtt::client::Received;
use mutirao_mqtt::{Client, Delivery, Inbox, Options, Qos, TopicFilter, client};
use mutirao_streams::graph::Address;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{Came, Feed, Taken, amqp};
use crate::running::Means;

/// Messages that wait for their acknowledgement, or to be looked at.
const WINDOW: usize = 1_024;
/// So long nothing is acknowledged after a source has gone: another may come in its place.
const HANDOVER: Duration = Duration::from_secs(3);
/// Of one batch.
const TOGETHER_MAX: usize = 512;

pub fn open(topics: &[String], at: Option<&Address>, client: String, means: &Means) -> Result<Box<dyn Feed>, String> {
    let filter = |topic: &String| TopicFilter::new(topic).map_err(|error| format!("{topic}: {error}"));
    let filters: Vec<TopicFilter> = topics.iter().map(filter).collect::<Result<_, _>>()?;
    let clock = means.clock.clone();
    if let Some(at) = at {
        let options = Options {
            subscriptions: filters.into_iter().map(|filter| (filter, Qos::AtLeastOnce)).collect(),
            unaccepted_max: WINDOW,
            ..options(at, client, means)?
        };
        let server = options.server.clone();
        let (client, messages) = Client::start(options);
        return Ok(Box::new(Remote {
            state: client.state(),
            _client: client,
            server,
            messages,
            taken: Unsettled::of(clock),
        }));
    }
    match (&means.ends.mqtt, &means.ends.amqp) {
        (Some(port), _) => {
            let place = Some(Place(Some(port.subscribe(filters, WINDOW))));
            // Of whoever went before; what lies there unread comes again.
            HELD.lock().places.remove(&client);
            Ok(Box::new(Own { client, place, taken: Unsettled::of(clock) }))
        }
        (None, Some(_)) => Ok(Box::new(amqp::Queue::of_topics(topics, client, means)?)),
        (None, None) => Err("this host has no MQTT of the installation's own; give the source a url".into()),
    }
}

pub fn options(at: &Address, client: String, means: &Means) -> Result<Options, String> {
    let found = super::address(at, &means.ends.trust)?;
    let host = found.url.host_str().ok_or_else(|| format!("{}: it names no host", at.url))?;
    let (tls, usual) = match found.url.scheme() {
        "mqtt" | "tcp" => (false, 1_883),
        "mqtts" | "ssl" => (true, 8_883),
        other => return Err(format!("{other}: is not spoken; write mqtt://host:1883 or mqtts://host:8883")),
    };
    let name = || {
        let bare = host.trim_matches(['[', ']']).to_owned();
        rustls::pki_types::ServerName::try_from(bare).map_err(|error| format!("{host}: {error}"))
    };
    let tls = if tls { Some((found.trust.config_for(None), name()?)) } else { None };
    let server = format!("{host}:{}", found.url.port().unwrap_or(usual));
    let (clock, dice) = (means.clock.clone(), means.dice.clone());
    Ok(Options {
        tls,
        user: found.user,
        password: found.password.map(Into::into),
        ..Options::new(server, client, clock, dice)
    })
}

/// What was given out, in order, with what is done when it is settled.
struct Unsettled<D> {
    waiting: VecDeque<(u64, D)>,
    ticket: u64,
    clock: Arc<dyn Clock>,
}

impl<D> Unsettled<D> {
    fn of(clock: Arc<dyn Clock>) -> Self {
        Self { waiting: VecDeque::new(), ticket: 0, clock }
    }

    /// The first, and whatever else is there.
    fn take(&mut self, first: D, mut more: impl FnMut() -> Option<D>, body: impl Fn(&D) -> Bytes) -> Taken {
        let mut messages = Vec::new();
        let mut next = Some(first);
        while let Some(one) = next.take() {
            messages.push(body(&one));
            self.ticket += 1;
            self.waiting.push_back((self.ticket, one));
            if messages.len() < TOGETHER_MAX {
                next = more();
            }
        }
        Taken { came: Came::Messages(messages), ticket: self.ticket, at_us: self.clock.now().0 * 1_000 }
    }

    fn settle(&mut self, ticket: u64, accept: impl Fn(D)) {
        while self.waiting.front().is_some_and(|(waiting, _)| *waiting <= ticket) {
            self.waiting.pop_front().into_iter().for_each(|(_, done)| accept(done));
        }
    }
}

/// The installation's own listener.
struct Own {
    /// Whose place it is.
    client: String,
    place: Option<Place>,
    taken: Unsettled<Delivery>,
}

#[async_trait]
impl Feed for Own {
    async fn next(&mut self) -> Result<Taken, String> {
        let ended = || "the MQTT listener has ended".to_owned();
        let inbox = self.place.as_mut().and_then(|place| place.0.as_mut()).ok_or_else(ended)?;
        let first = inbox.next().await.ok_or_else(ended)?;
        Ok(self.taken.take(first, || inbox.at_hand(), |delivery| delivery.message.payload.clone()))
    }

    fn settle(&mut self, ticket: u64) {
        self.taken.settle(ticket, Delivery::accept);
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let number = HELD.lock().leave(&self.client, place);
        let (client, clock) = (self.client.clone(), self.taken.clock.clone());
        // While a manager stops there is no runtime for this, and its devices are not acknowledged until it is back.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                clock.sleep(HANDOVER).await;
                HELD.lock().give_up(&client, number);
            });
        }
    }
}

/// Places of sources that went, by whose they were, until somebody has them again or nobody is going to. Meanwhile nothing is
/// acknowledged there, so that nothing is lost between the two: devices say it again.
static HELD: Mutex<Held> = Mutex::new(Held { places: BTreeMap::new(), last: 0 });

struct Held {
    places: BTreeMap<String, (u64, Place)>,
    last: u64,
}

impl Held {
    fn leave(&mut self, client: &str, place: Place) -> u64 {
        self.last += 1;
        self.places.insert(client.to_owned(), (self.last, place));
        self.last
    }

    fn give_up(&mut self, client: &str, number: u64) {
        if self.places.get(client).is_some_and(|(held, _)| *held == number) {
            self.places.remove(client);
        }
    }
}

/// A place at the hub, given up when it is dropped.
struct Place(Option<Inbox>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Inbox::leave);
    }
}

/// Another broker.
struct Remote {
    state: watch::Receiver<client::State>,
    _client: Client,
    server: String,
    messages: mpsc::Receiver<Received>,
    taken: Unsettled<Received>,
}

#[async_trait]
impl Feed for Remote {
    async fn next(&mut self) -> Result<Taken, String> {
        loop {
            let messages = &mut self.messages;
            tokio::select! {
                biased;
                first = messages.recv() => {
                    let first = first.ok_or("the MQTT client has ended")?;
                    return Ok(self.taken.take(first, || self.messages.try_recv().ok(), |message| message.payload.clone()));
                }
                changed = self.state.changed() => {
                    changed.map_err(|_| "the MQTT client has ended")?;
                    match &*self.state.borrow_and_update() {
                        client::State::Connected => {}
                        client::State::Connecting => return Err(format!("there is no connection to {}", self.server)),
                        client::State::Refused(answer) => return Err(format!("{} refused it: {answer:?}", self.server)),
                    }
                }
            }
        }
    }

    fn settle(&mut self, ticket: u64) {
        self.taken.settle(ticket, Received::accept);
    }
}
