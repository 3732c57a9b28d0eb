//! A node that speaks HTTP only: managers post messages to it, and it posts registrations and results to them, each at the name
//! of its place with slashes. Nobody beats over HTTP, so it asks for the manager's health and takes an answer for a beat.
//!
//! Whoever reaches the address it listens on may have it run its actions: the wire has no credentials for that way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Timestamp};
use mutirao_nodes::Namespace;
use mutirao_nodes::wire::places::Places;
use mutirao_nodes::wire::{HEALTH_PATH, HEALTH_UP, Heartbeat, MESSAGE_BYTES_MAX, written};
use mutirao_tls::Trust;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::{Heard, Line, remedy};

/// As the document's workers do.
const LOOK: Duration = Duration::from_secs(3);
const ANSWER_MAX: Duration = Duration::from_secs(20);
const HEARD_MAX: usize = 16;
/// Several may be sent at once, and the node has one thread for all: room is waited for, less long than a manager waits.
const ROOM_WITHIN: Duration = Duration::from_secs(2);
/// Of an answer, and of why not.
const ANSWER_BYTES_MAX: usize = 64 << 10;

pub struct Options {
    /// The manager's: `http://host:7070`.
    pub url: String,
    pub trust: Trust,
    pub user: Option<String>,
    pub password: Option<String>,
    pub namespace: Namespace,
    pub listen: SocketAddr,
    pub clock: Arc<dyn Clock>,
}

#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    url: String,
    user: Option<(String, String)>,
    places: Places,
    tell: mpsc::Sender<Heard>,
    /// Why it was last, to be told once.
    refused: Arc<Mutex<String>>,
}

/// Why it cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum NotOpen {
    #[error("cannot listen on {listen}: {error}")]
    Listening { listen: SocketAddr, error: io::Error },
    #[error("there can be no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

impl Http {
    /// Listens, and looks for the manager for as long as somebody hears. The address is where messages are taken.
    pub async fn start(options: Options) -> Result<(Self, mpsc::Receiver<Heard>, SocketAddr), NotOpen> {
        let Options { url, trust, user, password, namespace, listen, clock } = options;
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured((**trust.config()).clone())
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_MAX)
            .pool_max_idle_per_host(2)
            .build()?;
        let not_open = |error| NotOpen::Listening { listen, error };
        let listener = TcpListener::bind(listen).await.map_err(not_open)?;
        let address = listener.local_addr().map_err(not_open)?;
        let (tell, heard) = mpsc::channel(HEARD_MAX);
        let path = format!("/{namespace}/messages");
        let routes = Router::new()
            .route(&path, post(take))
            .route(HEALTH_PATH, get(async || HEALTH_UP))
            .layer(DefaultBodyLimit::max(MESSAGE_BYTES_MAX))
            .with_state(Door { tell: tell.clone(), clock: clock.clone() });
        let over = tell.clone();
        tokio::spawn(async move {
            let over = async move { over.closed().await };
            // It ends when nobody hears any more.
            let _ = axum::serve(listener, routes).with_graceful_shutdown(over).await;
        });
        let user = user.map(|user| (user, password.unwrap_or_default()));
        let url = url.trim_end_matches('/').to_owned();
        let this = Self { client, url, user, places: Places(namespace), tell, refused: Arc::default() };
        tokio::spawn(this.clone().look(clock));
        Ok((this, heard, address))
    }

    /// What came back, if it was taken.
    async fn post(&self, place: &str, text: String) -> Result<Bytes, Said> {
        let path = place.replace('.', "/");
        let mut request = self.client.post(format!("{}/{path}", self.url)).header("content-type", "application/json");
        if let Some((user, password)) = &self.user {
            request = request.basic_auth(user, Some(password));
        }
        let away = |error: reqwest::Error| Said::Away(error.without_url().to_string());
        let mut answer = request.body(text).send().await.map_err(away)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(away)? {
            // Whatever answers there is no manager, and may never end.
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(Said::Away("the answer is longer than any of a manager's: is it one?".into()));
            }
            body.extend_from_slice(&piece);
        }
        if status.is_success() {
            return Ok(body.into());
        }
        let why: String = String::from_utf8_lossy(&body).chars().take(200).collect();
        match status.as_u16() {
            400 | 413 | 422 => Err(Said::No(format!("{status}: {why}"))),
            _ => Err(Said::Away(format!("{status}: {why}"))),
        }
    }

    /// Whether the manager is there, again and again.
    async fn look(self, clock: Arc<dyn Clock>) {
        let mut before = None;
        loop {
            let asked = self.client.get(format!("{}{HEALTH_PATH}", self.url)).send().await;
            let up = asked.is_ok_and(|answer| answer.status().is_success());
            let news = match (before, up) {
                (None, true) => Some(Heard::Connected),
                (Some(false), true) => Some(Heard::ManagerUp),
                (Some(true), false) => Some(Heard::ManagerDown),
                _ => None,
            };
            // Never seen is not gone.
            before = if up { Some(true) } else { before.map(|_| false) };
            let beat = up.then(|| Heard::Beat(beat(clock.now()).into()));
            for heard in news.into_iter().chain(beat) {
                if self.tell.send(heard).await.is_err() {
                    return;
                }
            }
            tokio::select! {
                () = clock.sleep(LOOK) => {}
                () = self.tell.closed() => return,
            }
        }
    }
}

/// Why something was not taken.
enum Said {
    /// It may be, later.
    Away(String),
    /// It never will.
    No(String),
}

fn beat(now: Timestamp) -> String {
    written(&Heartbeat { available: true, force_register: false, ts: now.0, schema: Heartbeat::SCHEMA })
}

/// Where messages come in.
#[derive(Clone)]
struct Door {
    tell: mpsc::Sender<Heard>,
    clock: Arc<dyn Clock>,
}

/// It is ours from here on. What is lost with us is asked for again by whoever waits for its result.
async fn take(State(door): State<Door>, body: Bytes) -> StatusCode {
    match door.clock.timeout(ROOM_WITHIN, door.tell.reserve()).await {
        Ok(Ok(room)) => {
            room.send(Heard::Message(body, Box::new(|| {})));
            StatusCode::ACCEPTED
        }
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

#[async_trait]
impl Line for Http {
    async fn register(&self, text: String) -> Result<(), String> {
        match self.post(&self.places.register(), text).await {
            Ok(ack) => self.tell.send(Heard::Ack(ack)).await.map_err(|_| "nobody hears any more".to_owned()),
            Err(Said::Away(why)) => Err(why),
            Err(Said::No(why)) => {
                // It is said again and again, and told once.
                if *self.refused.lock() != why {
                    let remedy = if self.user.is_none() { remedy(None) } else { String::new() };
                    tracing::warn!("the manager refuses this node: {why} {remedy}");
                    self.refused.lock().clone_from(&why);
                }
                Err(why)
            }
        }
    }

    async fn result(&self, text: String) -> Result<(), String> {
        match self.post(&self.places.results(), text).await {
            Ok(_) => Ok(()),
            Err(Said::Away(why)) => Err(why),
            Err(Said::No(why)) => {
                tracing::warn!("the manager refuses a result, which is dropped: {why}");
                Ok(())
            }
        }
    }
}
