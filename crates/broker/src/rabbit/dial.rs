//! Making one connection: where to, as whom, and what to do when the server does not let us in any more. The user may
//! have been deleted, or have a new password; whoever gave us the first URL is then asked for another.
//!
//! Not here: keeping a connection up ([`super::line`]).

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lapin::uri::AMQPUri;
use lapin::{Connection, ConnectionProperties};
use mutirao_core::Dice;
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_tls::Trust;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::greeting::greet;
use super::mark::{Holder, Mark};
use super::trouble::Place;
use super::wire::Plug;
use crate::BrokerError;
use crate::memory::refused;

/// How long one attempt may take, greeting included.
pub(super) const DIAL_MAX: Duration = Duration::from_secs(10);
/// A connection is lost when twice this passes in silence.
const HEARTBEAT_SECS: u16 = 10;

/// Knows a new URL, for when the one we have is refused.
#[async_trait]
pub trait Renew: Send + Sync {
    async fn renew(&self) -> Result<String, BrokerError>;
}

/// Whether a URL can be one of RabbitMQ; says how to write it otherwise, and never shows it: it has a password in it.
///
/// ```
/// assert!(mutirao_broker::rabbit::check_url("amqp://ana:s3cret@broker/lab").is_ok());
/// assert!(!mutirao_broker::rabbit::check_url("http://ana:s3cret@broker").unwrap_err().contains("s3cret"));
/// ```
pub fn check_url(url: &str) -> Result<(), String> {
    parse(url).map(drop)
}

/// As whom a URL of RabbitMQ connects.
pub fn user_in(url: &str) -> Result<String, String> {
    parse(url).map(|uri| uri.authority.userinfo.username)
}

pub(super) fn parse(url: &str) -> Result<AMQPUri, String> {
    let how =
        "it is not the URL of a RabbitMQ: write it like amqp://user:password@host:5672/vhost, or amqps:// for TLS";
    // The message of the parser can contain the URL, and so the password.
    let mut uri: AMQPUri = url.parse().map_err(|_| how.to_owned())?;
    // The parser takes an IPv6 address for no host, and then means localhost.
    if let Some(address) = ipv6_in(url) {
        uri.authority.host = address.to_string();
    }
    Ok(uri)
}

fn ipv6_in(url: &str) -> Option<Ipv6Addr> {
    let url = reqwest::Url::parse(url).ok()?;
    url.host_str()?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// Host and port as they stand in a URL.
pub(super) fn written(host: &str, port: u16) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{port}"),
        Err(_) => format!("{host}:{port}"),
    }
}

/// Where a connection goes, and as whom.
pub(super) struct Target {
    pub place: Place,
    uri: AMQPUri,
    /// How many came before it.
    number: u64,
}

impl Target {
    fn new(url: &str, number: u64) -> Result<Arc<Self>, BrokerError> {
        let uri = parse(url).map_err(|why| refused("the broker's URL", why))?;
        let place = Place {
            address: written(&uri.authority.host, uri.authority.port),
            vhost: uri.vhost.clone(),
            user: uri.authority.userinfo.username.clone(),
        };
        Ok(Arc::new(Self { place, uri, number }))
    }
}

/// How to reach the server.
pub(super) struct Dial {
    target: Mutex<Arc<Target>>,
    renew: Option<Arc<dyn Renew>>,
    /// Several connections may be refused at once, and one new URL is enough for all.
    renewing: Semaphore,
    plug: Plug,
    /// Where the server must be ours before it is used.
    mark: Option<Mark>,
    pub clock: Arc<dyn Clock>,
    pub dice: Arc<Dice>,
}

impl Dial {
    pub fn new(
        url: &str,
        trust: &Trust,
        renew: Option<Arc<dyn Renew>>,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Result<Self, BrokerError> {
        let target = Mutex::new(Target::new(url, 0)?);
        Ok(Self { target, renew, renewing: Semaphore::new(1), plug: Plug::new(trust), mark: None, clock, dice })
    }

    /// Only to a vhost that has this mark, or gets it now.
    pub fn under(self, mark: Option<Mark>) -> Self {
        Self { mark, ..self }
    }

    pub fn target(&self) -> Arc<Target> {
        self.target.lock().clone()
    }

    /// Connects once, to see whether it can be done, and hangs up. Says which version it is, and where.
    pub async fn look(&self) -> Result<String, BrokerError> {
        let target = self.target();
        let connection = self.dial_to(&target, "doctor").await?;
        let version = greet(&target.uri, &self.plug, &target.place).await?;
        // It has told what it can.
        let _ = connection.close(200, "goodbye".into()).await;
        Ok(format!("RabbitMQ {version} at {}, vhost {}", target.place.address, target.place.vhost))
    }

    /// Connects; where the server knows us no more, once again as whoever we are told to be from now on.
    pub async fn dial(&self, purpose: &str) -> Result<Connection, BrokerError> {
        let mut target = self.target();
        let mut dialled = self.dial_to(&target, purpose).await;
        if let (Err(BrokerError::Refused { .. }), Some(renew)) = (&dialled, &self.renew) {
            self.renew_after(&target, &**renew).await?;
            target = self.target();
            dialled = self.dial_to(&target, purpose).await;
        }
        match &self.mark {
            Some(mark) => self.hold(dialled?, mark, &target.place).await,
            None => dialled,
        }
    }

    /// Whether a connection may go on. A mark that is gone is made again; a server that does not answer is for others to
    /// notice.
    pub async fn still_ours(&self, connection: &Connection) -> Result<(), BrokerError> {
        let (Some(mark), target) = (&self.mark, self.target()) else { return Ok(()) };
        if connection.status().blocked() {
            // It reads nothing for now, so whatever is asked would only pile up.
            return Ok(());
        }
        match self.clock.timeout(DIAL_MAX, mark.hold(connection, &target.place)).await {
            Ok(Err(refused @ BrokerError::Refused { .. })) => Err(refused),
            _ => Ok(()),
        }
    }

    async fn hold(&self, connection: Connection, mark: &Mark, place: &Place) -> Result<Connection, BrokerError> {
        match self.clock.timeout(DIAL_MAX, mark.hold(&connection, place)).await {
            Ok(Ok(())) => Ok(connection),
            Ok(Err(refused)) => {
                // It is not ours to use; the server would notice by itself.
                let _ = connection.close(200, "goodbye".into()).await;
                Err(refused)
            }
            Err(_) => Err(place.unreachable(format!("no answer within {} s", DIAL_MAX.as_secs()))),
        }
    }

    /// Connects once, to take a mark away, whosever it is.
    pub async fn unmark(&self, mark: &Mark) -> Result<(), BrokerError> {
        let target = self.target();
        let connection = self.dial_to(&target, "mark").await?;
        let removed = match self.clock.timeout(DIAL_MAX, mark.remove(&connection, &target.place)).await {
            Ok(removed) => removed,
            Err(_) => Err(target.place.unreachable(format!("no answer within {} s", DIAL_MAX.as_secs()))),
        };
        // It has done what it can.
        let _ = connection.close(200, "goodbye".into()).await;
        removed
    }

    /// Connects once, to see whose the vhost is.
    pub async fn holder(&self, mark: &Mark) -> Result<Holder, BrokerError> {
        let target = self.target();
        let connection = self.dial_to(&target, "mark").await?;
        let holder = match self.clock.timeout(DIAL_MAX, mark.look(&connection, &target.place)).await {
            Ok(holder) => holder,
            Err(_) => Err(target.place.unreachable(format!("no answer within {} s", DIAL_MAX.as_secs()))),
        };
        // It has told what it can.
        let _ = connection.close(200, "goodbye".into()).await;
        holder
    }

    async fn dial_to(&self, target: &Target, purpose: &str) -> Result<Connection, BrokerError> {
        let (mut uri, place) = (target.uri.clone(), &target.place);
        uri.query.heartbeat = uri.query.heartbeat.or(Some(HEARTBEAT_SECS));
        uri.query.connection_timeout = Some(DIAL_MAX.as_millis() as u64);
        let properties = ConnectionProperties::default().with_connection_name(format!("mutirao {purpose}").into());
        let attempt = async {
            greet(&uri, &self.plug, place).await?;
            self.plug.connect(uri.clone(), properties).await.map_err(|error| place.not_let_in(&error))
        };
        match self.clock.timeout(DIAL_MAX, attempt).await {
            Ok(done) => done,
            Err(_) => Err(place.unreachable(format!("no answer within {} s", DIAL_MAX.as_secs()))),
        }
    }

    /// From now on there is another target, unless somebody else has seen to it meanwhile.
    async fn renew_after(&self, refused: &Target, renew: &dyn Renew) -> Result<(), BrokerError> {
        let _turn = self.renewing.acquire().await.map_err(|_| BrokerError::Closed)?;
        if self.target().number == refused.number {
            let url = renew.renew().await?;
            *self.target.lock() = Target::new(&url, refused.number + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_the_host_and_is_written_in_brackets() {
        let uri = parse("amqp://ana:s3cret@[2001:db8::1]:5673/lab").unwrap();
        assert_eq!((uri.authority.host.as_str(), uri.authority.port), ("2001:db8::1", 5673));
        assert_eq!(written(&uri.authority.host, uri.authority.port), "[2001:db8::1]:5673");
        assert_eq!(parse("amqp://a:b@rabbit/lab").unwrap().authority.host, "rabbit");
        assert_eq!(parse("amqp://a:b@10.0.0.7/lab").unwrap().authority.host, "10.0.0.7");
        assert_eq!(written("10.0.0.7", 1), "10.0.0.7:1");
    }
}
