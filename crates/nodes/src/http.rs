//! Messages to nodes by HTTP: `POST <endpoint>/<namespace>/messages`. What a node answers at once, in the same shape, is
//! its result; most only say that they have it.
//!
//! A node says itself where it is reached, so it could make us ask anything that we can reach. Addresses that only mean
//! something to this machine or its cloud are refused, after the name was looked up ([`endpoint`](crate::endpoint)); redirects are
//! not followed; what comes back is read up to a bound and shown to nobody.
//!
//! A node that works while it is asked keeps its request open for as long. Nobody waits past the time of its task, so there
//! the request is cut; and no node has more than a share of those that may be under way ([`room`]). Past that share it is
//! *here* that there is no room: the task waits, and nothing is held against the node.

mod room;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::Problem;
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_tls::Trust;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use tokio::sync::oneshot;

use crate::endpoint::{self, Loopback, is_localhost};
use crate::preference::Protocol;
use crate::registry::Record;
use crate::switchboard::{Said, Standing, Switchboard, Voice};
use crate::way::{NotGiven, Parcel, Told, Way};
use crate::wire::MESSAGE_BYTES_MAX;
use crate::wire::places::Kind;
use room::Room;

const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Whoever has it and has not answered yet is at work.
const AT_WORK_AFTER: Duration = Duration::from_secs(3);
/// Under way at once, to all nodes together, and to one of them.
const AT_ONCE: usize = 256;
const AT_ONCE_EACH: usize = 32;

pub struct HttpWay {
    http: reqwest::Client,
    board: Switchboard,
    clock: Arc<dyn Clock>,
    room: Arc<Room>,
}

/// The client cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("no client for nodes by HTTP: {0}")]
pub struct NoClient(#[from] reqwest::Error);

impl HttpWay {
    pub fn open(board: &Switchboard, trust: &Trust, clock: Arc<dyn Clock>) -> Result<(), NoClient> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured((**trust.config()).clone())
            .redirect(Policy::none())
            .connect_timeout(CONNECT_MAX)
            .pool_max_idle_per_host(4)
            .dns_resolver(NoSurroundings(board.loopback()))
            .user_agent(concat!("mutirao/", env!("CARGO_PKG_VERSION")))
            .build()?;
        board.open(Arc::new(Self { http, board: board.clone(), clock, room: Room::new(AT_ONCE, AT_ONCE_EACH) }));
        Ok(())
    }

    fn url(&self, record: &Record) -> Result<reqwest::Url, String> {
        endpoint::read(&record.endpoint, self.board.loopback().or_near(record.near))?;
        let url = self.board.places().http_url(&record.endpoint).map_err(|bad| bad.to_string())?;
        url.parse().map_err(|_| "its endpoint is no address".to_owned())
    }
}

/// Looks names up, and gives no address that none may have.
struct NoSurroundings(Loopback);

impl Resolve for NoSurroundings {
    fn resolve(&self, name: Name) -> Resolving {
        // Whether that one may be asked for was seen before.
        let loopback = self.0.or_near(is_localhost(name.as_str()));
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(why) = found.iter().find_map(|address| loopback.forbids(address.ip())) {
                return Err(why.into());
            }
            let found: Addrs = Box::new(found.into_iter());
            Ok(found)
        })
    }
}

#[async_trait]
impl Way for HttpWay {
    fn protocol(&self) -> Protocol {
        Protocol::Http
    }

    async fn give(&self, parcel: Parcel<'_>) -> Result<(), NotGiven> {
        let Parcel { to, text, wanted_for, .. } = parcel;
        let unreachable = |why: &str| NotGiven::Unreachable(format!("by HTTP: {why}"));
        if to.endpoint.is_empty() {
            return Err(unreachable("it has no endpoint"));
        }
        let url = self.url(to).map_err(|why| unreachable(&why))?;
        let no_room = || NotGiven::NoRoom("by HTTP: as many requests to it as may be are under way".into());
        let place = self.room.enter(&to.node).ok_or_else(no_room)?;
        let request = self.http.post(url).header(CONTENT_TYPE, "application/json").body(text.to_owned());
        let request = request.timeout(wanted_for);
        let (told, given) = oneshot::channel();
        let (board, to) = (self.board.clone(), to.clone());
        tokio::spawn(async move {
            match post(request).await {
                Ok(answer) => {
                    // Nobody listens when it took long, and was taken for given.
                    let _ = told.send(Ok(()));
                    if let Some(answer) = answer {
                        hear(&board, &to, &answer).await;
                    }
                }
                Err(why) => drop(told.send(Err(why))),
            }
            drop(place);
        });
        match self.clock.timeout(AT_WORK_AFTER + CONNECT_MAX, given).await {
            Ok(Ok(given)) => given.map_err(|why| unreachable(&why)),
            Ok(Err(_)) => Err(unreachable("the request broke off")),
            Err(_) => Ok(()),
        }
    }

    /// Those that only speak HTTP look for us themselves.
    async fn beat(&self, _: &str) {}

    async fn answer(&self, _: &str, _: Option<&str>) -> Result<Told, Problem> {
        Ok(Told::NotHere)
    }
}

/// What it answered, if that could be a result.
async fn post(request: reqwest::RequestBuilder) -> Result<Option<Vec<u8>>, String> {
    let mut response = request.send().await.map_err(|error| said(&error))?;
    let status = response.status();
    if !status.is_success() {
        return Err(format!("it answered {status}"));
    }
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        if body.len() + piece.len() > MESSAGE_BYTES_MAX {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    // Anything else is a word of politeness.
    Ok(body.windows(11).any(|part| part == b"\"requestID\"").then_some(body))
}

async fn hear(board: &Switchboard, node: &Record, answer: &[u8]) {
    // Whom we asked.
    let (proof, its_own, standing) = (node.proof.clone(), node.node.clone(), Standing::Plain);
    let voice =
        Voice { proof, node: Some(its_own), may_request: false, standing, warrant: Arc::default(), near: false };
    let Some(_turn) = board.turn().await else { return };
    let said = Said { kind: Kind::Result, place: "answer", over: Protocol::Http, bytes: answer, voice };
    // Lost, it is late, and the task is tried again.
    if let Err(problem) = board.hear(said).await {
        tracing::debug!(%problem, node = %node.node, "a result by HTTP was not taken");
    }
}

fn said(error: &reqwest::Error) -> String {
    let (mut line, mut cause) = (String::new(), std::error::Error::source(error));
    while let Some(inner) = cause {
        (line, cause) = (inner.to_string(), inner.source());
    }
    if line.is_empty() { error.to_string() } else { line }
}
