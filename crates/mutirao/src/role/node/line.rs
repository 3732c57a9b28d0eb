//! The line that a node speaks over, as its arguments ask for it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mutirao_actions::agent::amqp::{self, Amqp, Own};
use mutirao_actions::agent::http::{self, Http};
use mutirao_actions::agent::mqtt::{self, Mqtt};
use mutirao_actions::agent::{Heard, Line, Me};
use mutirao_actions::builtin::Publish;
use mutirao_core::node::AmqpPlace;
use mutirao_core::{Clock, Dice};
use mutirao_mqtt::Options;
use mutirao_nodes::wire::places::TOPIC_EXCHANGE;
use tokio::sync::mpsc;

use super::{NodeArgs, Transport};
use crate::config::Settings;
use crate::failure::Failure;
use crate::tls;

const MQTT_SERVER: &str = "mqtt://127.0.0.1:1883";
const AMQP_SERVER: &str = "amqp://127.0.0.1:5672";
const HTTP_SERVER: &str = "http://127.0.0.1:7070";
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// A manager that is back should not be waited for much longer than it was away.
const PAUSE_MAX: Duration = Duration::from_secs(10);

pub struct Opened {
    pub line: Arc<dyn Line>,
    /// Where there is somewhere to publish to.
    pub publish: Option<Arc<dyn Publish>>,
    /// Where it answers HTTP; empty if it does not.
    pub endpoint: String,
    pub heard: mpsc::Receiver<Heard>,
}

/// As whom a node connects, by MQTT or HTTP.
pub struct Login {
    pub user: String,
    pub password: String,
    /// By AMQP: where.
    pub amqp: Option<AmqpPlace>,
}

/// How it comes in by AMQP.
struct AmqpWay {
    url: String,
    own: Option<Own>,
}

impl AmqpWay {
    /// As people wrote it, credentials and all.
    fn told(url: String) -> Result<Self, Failure> {
        mutirao_broker::rabbit::check_url(&url).map_err(|why| Failure::usage(format!("--server: {why}")))?;
        Ok(Self { url, own: None })
    }

    /// As its manager said. Ids of nodes may have colons in them, which an address takes for something else.
    fn own(place: &AmqpPlace, password: &str) -> Result<Self, Failure> {
        let AmqpPlace { url, user, exchange } = place;
        let how = || Failure::failed(format!("the manager says that RabbitMQ is at {url}, which cannot be read"));
        let (scheme, place) = url.split_once("://").ok_or_else(how)?;
        let url = format!("{scheme}://{}:{password}@{place}", user.replace(':', "%3A"));
        let exchange = exchange.clone().unwrap_or_else(|| TOPIC_EXCHANGE.into());
        Ok(Self { url, own: Some(Own { user: user.clone(), exchange }) })
    }
}

/// What people gave it; none: they gave none.
pub fn login(args: &NodeArgs) -> Result<Option<Login>, Failure> {
    let password = password(args)?;
    Ok(args.user.clone().zip(password).map(|(user, password)| Login { user, password, amqp: None }))
}

pub async fn open(
    settings: &Settings,
    args: &NodeArgs,
    transport: Transport,
    login: Option<Login>,
    me: &Me,
    clock: &Arc<dyn Clock>,
    dice: &Arc<Dice>,
) -> Result<Opened, Failure> {
    match transport {
        Transport::Mqtt => {
            let (line, heard) = Mqtt::start(options(settings, args, login, me, clock, dice)?, &me.namespace);
            let line = Arc::new(line);
            Ok(Opened { line: line.clone(), publish: Some(line), endpoint: String::new(), heard })
        }
        Transport::Amqp => {
            let place = match login {
                Some(Login { password, amqp: Some(place), .. }) => AmqpWay::own(&place, &password)?,
                _ => AmqpWay::told(args.server.clone().unwrap_or_else(|| AMQP_SERVER.into()))?,
            };
            let (namespace, node) = (me.namespace.clone(), me.node.clone());
            let AmqpWay { url, own } = place;
            let trust = tls::trust(settings, &url, None)?;
            let (clock, dice) = (clock.clone(), dice.clone());
            // Who has a user of its own may publish nothing but what nodes say.
            let may_publish = own.is_none();
            let (line, heard) = Amqp::start(amqp::Options { url, trust, namespace, node, own, clock, dice });
            let line = Arc::new(line);
            let publish = may_publish.then(|| line.clone() as Arc<dyn Publish>);
            Ok(Opened { line, publish, endpoint: String::new(), heard })
        }
        Transport::Http => {
            let url = args.server.clone().unwrap_or_else(|| HTTP_SERVER.into());
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(Failure::usage("--server: write it like http://HOST:7070, or https:// for TLS"));
            }
            let trust = tls::trust(settings, &url, None)?;
            let namespace = me.namespace.clone();
            let (user, password) = login.map(|login| (login.user, login.password)).unzip();
            let (listen, clock) = (args.listen, clock.clone());
            let asked = http::Options { url, trust, user, password, namespace, listen, clock };
            let (line, heard, address) = Http::start(asked)
                .await
                .map_err(|error| Failure::failed(format!("{error}; choose another --listen")))?;
            if !address.ip().is_loopback() {
                tracing::warn!("whoever reaches {address} may have this node run its actions");
            }
            let endpoint = args.endpoint.clone().unwrap_or_else(|| format!("http://{address}"));
            Ok(Opened { line: Arc::new(line), publish: None, endpoint, heard })
        }
    }
}

fn options(
    settings: &Settings,
    args: &NodeArgs,
    login: Option<Login>,
    me: &Me,
    clock: &Arc<dyn Clock>,
    dice: &Arc<Dice>,
) -> Result<Options, Failure> {
    let url = args.server.as_deref().unwrap_or(MQTT_SERVER);
    let (scheme, address) = Address::read(url)?;
    let tls = match scheme {
        Scheme::Plain => None,
        Scheme::Tls => {
            let trust = tls::trust(settings, &url.replacen("mqtts", "https", 1), None)?;
            let name = address.host.clone().try_into();
            let name = name.map_err(|_| Failure::usage(format!("--server: {} is no host's name", address.host)))?;
            Some((trust.config_for(Some(b"mqtt")), name))
        }
    };
    let (user, password) = login.map(|login| (login.user, login.password.into())).unzip();
    Ok(Options {
        tls,
        user,
        password,
        keep_alive: KEEP_ALIVE,
        pause_max: PAUSE_MAX,
        subscriptions: mqtt::subscriptions(&me.namespace, &me.node),
        ..Options::new(address.shown(), format!("node-{}", me.node), clock.clone(), dice.clone())
    })
}

fn password(args: &NodeArgs) -> Result<Option<String>, Failure> {
    if args.user.is_none() {
        return Ok(None);
    }
    if let Some(file) = &args.password_file {
        let read = std::fs::read_to_string(file);
        let text = read.map_err(|error| no_password(file, &error))?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    match std::env::var("MUTIRAO_NODE_PASSWORD") {
        Ok(password) if !password.is_empty() => Ok(Some(password)),
        _ => Err(Failure::usage("--user needs a password: set MUTIRAO_NODE_PASSWORD, or give --password-file FILE")),
    }
}

fn no_password(file: &Path, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file; where the manager is, `mutirao device add NAME --to FILE` writes one: bring it here"
                .to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            "it may not be read by this user; give it to who runs the node".to_owned()
        }
        _ => error.to_string(),
    };
    Failure::usage(format!("--password-file {}: {why}", file.display()))
}

#[derive(Debug, PartialEq, Eq)]
enum Scheme {
    Plain,
    Tls,
}

#[derive(Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
}

impl Address {
    fn read(url: &str) -> Result<(Scheme, Self), Failure> {
        let how = || {
            Failure::usage(
                "--server: write it like mqtt://HOST:1883, or mqtts://HOST:8883 for TLS; the user goes to --user",
            )
        };
        let (scheme, rest, usual) = match url.split_once("://") {
            Some(("mqtt" | "tcp", rest)) => (Scheme::Plain, rest, 1_883),
            Some(("mqtts" | "ssl", rest)) => (Scheme::Tls, rest, 8_883),
            _ => return Err(how()),
        };
        let rest = rest.trim_end_matches('/');
        if rest.is_empty() || rest.contains(['@', '/', '?', '#', ' ']) {
            return Err(how());
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| how())?),
            _ => (rest, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() { Err(how()) } else { Ok((scheme, Self { host: host.into(), port })) }
    }

    fn shown(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_and_what_is_none_says_how_to_write_it() {
        for (url, scheme, shown) in [
            ("mqtt://broker", Scheme::Plain, "broker:1883"),
            ("mqtt://10.0.0.1:1884/", Scheme::Plain, "10.0.0.1:1884"),
            ("mqtts://broker", Scheme::Tls, "broker:8883"),
            ("mqtt://[::1]:1883", Scheme::Plain, "[::1]:1883"),
            ("mqtt://[::1]", Scheme::Plain, "[::1]:1883"),
        ] {
            let (read, address) = Address::read(url).unwrap_or_else(|error| panic!("{url}: {error:?}"));
            assert_eq!((read, address.shown().as_str()), (scheme, shown));
        }
        for bad in ["broker", "http://broker", "mqtt://", "mqtt://u:p@broker", "mqtt://broker:x", "mqtt://:1883"] {
            assert!(Address::read(bad).is_err(), "{bad}");
        }
    }
}
