//! A RabbitMQ user for each worker, made over the HTTP API of the management plugin, with permissions for its own queue
//! and nothing else. A new password each time it is asked for; nobody keeps it.
//!
//! | a worker of queue `a` may | because of |
//! |---|---|
//! | take from `tasks.a` | read `mutirao.tasks.a` |
//! | hear `control.a` | configure, write and read its ears; read `mutirao.fanout`, of its topics only `control.a` |
//! | report to any `results.…` | write `mutirao.results` |
//!
//! | a host of streams may | because of |
//! |---|---|
//! | make, append to and read logs `streams.…` | configure, write and read `mutirao.streams.….log`; write and read `mutirao.streams` |
//! | announce and hear `streams.…` | write and read `mutirao.fanout`, of its topics only these |
//!
//! Whoever may make a queue at RabbitMQ may delete it: a host can delete logs of streams, and nothing else.
//!
//! Not here: who is a worker (the API knows), and what is believed of its reports ([`super::vouch`]).

pub mod nodes;
mod rights;

use std::time::Duration;

use lapin::uri::{AMQPScheme, AMQPUri};
use mutirao_core::WorkerId;
use mutirao_core::auth::Duty;
use mutirao_core::dice::os_random;
use mutirao_tls::Trust;
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::dial::{parse, written};
use super::names::Names;
use crate::BrokerError;
use crate::memory::refused;

/// Until a server has answered.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const PASSWORD_BYTES: usize = 24;
/// Two of a worker's own, those of its last life that the server has not noticed are gone, and some to spare.
const CONNECTIONS_MAX: u32 = 16;
/// Of all its connections. A worker sends on one for each batch that is under way, at most 32, and has one to hear and one
/// to take from its queue; and again as many for each life that the server has not noticed is over.
const CHANNELS_MAX: u32 = 256;
const PORT_PLAIN: u16 = 15672;
const PORT_TLS: u16 = 15671;
/// Matches no routing key.
const NOTHING: &str = "^$";

/// Bytes of an answer that are looked at for its reason.
const REASON_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManagementError {
    #[error(
        "RabbitMQ's management at {at} cannot be reached ({why}); run rabbitmq-plugins enable rabbitmq_management, or \
         set broker_management to where it is"
    )]
    Unreachable { at: String, why: String },
    #[error(
        "what answers at {at} is not RabbitMQ's management ({answered}); set broker_management to where it is: \
         http://user:password@host:15672, unless its port was changed there"
    )]
    SomethingElse { at: String, answered: String },
    #[error(
        "RabbitMQ's management at {at} does not let user {user} in with this password; correct it in the setting {setting}, \
         or run rabbitmqctl change_password {user} …"
    )]
    WrongPassword { at: String, user: String, setting: &'static str },
    #[error(
        "user {user} may not make users ({why}); run rabbitmqctl set_user_tags {user} administrator, or set \
         broker_management to a URL with a user who may"
    )]
    NotAllowed { user: String, why: String },
    #[error("RabbitMQ's management at {at} refuses to {what}: {why}")]
    Said { at: String, what: String, why: String },
}

/// The management of one RabbitMQ.
pub struct Management {
    http: reqwest::Client,
    base: Url,
    user: String,
    password: String,
    /// Where user and password come from.
    setting: &'static str,
    broker: AMQPUri,
    names: Names,
}

/// Where the management of a broker is, when nobody says: beside it, on the plugin's own port, and with TLS when the
/// broker has it. Without credentials.
pub fn default_url(broker_url: &str) -> Result<String, String> {
    let broker = parse(broker_url)?;
    let (scheme, port) = match broker.scheme {
        AMQPScheme::AMQP => ("http", PORT_PLAIN),
        AMQPScheme::AMQPS => ("https", PORT_TLS),
    };
    Ok(format!("{scheme}://{}", written(&broker.authority.host, port)))
}

#[derive(Deserialize)]
struct Permission {
    user: String,
}

#[derive(Deserialize)]
struct WhoAmI {
    /// A list since 3.9, a text with commas before.
    tags: Value,
}

#[derive(Deserialize)]
struct Refused {
    /// Not always a text.
    #[serde(default, deserialize_with = "as_text")]
    reason: String,
    #[serde(rename = "error")]
    _error: Value,
}

fn as_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => text,
        other => other.to_string(),
    })
}

impl Management {
    /// Asks nothing yet. `url` may name a user; otherwise it is the broker's.
    pub fn new(broker_url: &str, url: &str, prefix: &str, trust: &Trust) -> Result<Self, BrokerError> {
        let what = "broker_management";
        let broker = parse(broker_url).map_err(|why| refused("the broker's URL", why))?;
        let how = || refused(what, "write it like http://user:password@host:15672");
        let mut base = Url::parse(url).map_err(|_| how())?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(how());
        }
        let own = &broker.authority.userinfo;
        let (user, password, setting) = match (base.username(), base.password()) {
            ("", _) => (own.username.clone(), own.password.clone(), "broker"),
            (user, password) => (unescaped(user), unescaped(password.unwrap_or_default()), what),
        };
        // They travel in a header, and must not be in a message.
        let _ = (base.set_username(""), base.set_password(None));
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(trust.config()))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(ANSWER_MAX)
            .build()
            .map_err(|error| refused(what, error.to_string()))?;
        Ok(Self { http, base, user, password, setting, broker, names: Names::new(prefix)? })
    }

    /// Whether users can be made here; if not, what to do about it.
    pub async fn check(&self) -> Result<(), ManagementError> {
        let answer = self.send(self.request(Method::GET, &["whoami"]), "say who we are").await?;
        let who: WhoAmI = answer.json().await.map_err(|error| self.something_else(&error))?;
        if who.tags.to_string().contains("administrator") {
            return Ok(());
        }
        Err(ManagementError::NotAllowed { user: self.user.clone(), why: "it is no administrator".into() })
    }

    /// A worker can come in from now on, with the URL that this gives, and with no URL that it was given before.
    pub async fn admit(&self, worker: &WorkerId, duty: &Duty) -> Result<String, ManagementError> {
        let user = self.names.user_of(worker);
        let password = password();
        let vhost = self.broker.vhost.as_str();
        self.put(&["users", &user], json!({ "password": password, "tags": "" })).await?;
        self.put(&["user-limits", &user, "max-connections"], json!({ "value": CONNECTIONS_MAX })).await?;
        self.put(&["user-limits", &user, "max-channels"], json!({ "value": rights::channels_max(duty) })).await?;
        self.put(&["topic-permissions", vhost, &user], self.topics(duty)).await?;
        self.put(&["permissions", vhost, &user], self.permissions(duty)).await?;
        Ok(self.url_of(&user, &password))
    }

    /// The worker's connections end, and it does not come in again.
    pub async fn dismiss(&self, worker: &WorkerId) -> Result<(), ManagementError> {
        let user = self.names.user_of(worker);
        let request = self.request(Method::DELETE, &["users", &user]);
        match self.send(request, "delete a worker's user").await {
            // One that never came in has no user.
            Err(ManagementError::Said { why, .. }) if why.starts_with("404") => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Workers that have a user here: in our vhost only, since others on the same server may have workers as well.
    pub async fn admitted(&self) -> Result<Vec<WorkerId>, ManagementError> {
        Ok(self.users().await?.iter().filter_map(|user| self.names.worker_of(user)).collect())
    }

    async fn users(&self) -> Result<Vec<String>, ManagementError> {
        let vhost = self.broker.vhost.as_str();
        let request = self.request(Method::GET, &["vhosts", vhost, "permissions"]);
        let answer = self.send(request, "list the users of a vhost").await?;
        let permissions: Vec<Permission> = answer.json().await.map_err(|error| self.something_else(&error))?;
        Ok(permissions.into_iter().map(|permission| permission.user).collect())
    }

    fn url_of(&self, user: &str, password: &str) -> String {
        let (scheme, authority, vhost) = (self.scheme(), &self.broker.authority, self.vhost_in_url());
        format!("{scheme}://{user}:{password}@{}/{vhost}", written(&authority.host, authority.port))
    }

    fn scheme(&self) -> &'static str {
        match self.broker.scheme {
            AMQPScheme::AMQP => "amqp",
            AMQPScheme::AMQPS => "amqps",
        }
    }

    fn vhost_in_url(&self) -> String {
        let vhost: String = form_urlencoded::byte_serialize(self.broker.vhost.as_bytes()).collect();
        // A space is a plus only in forms.
        vhost.replace('+', "%20")
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("api").extend(path);
        }
        self.http.request(method, url).basic_auth(&self.user, Some(&self.password))
    }

    async fn put(&self, path: &[&str], body: Value) -> Result<(), ManagementError> {
        let what = format!("set {}", path[0]);
        self.send(self.request(Method::PUT, path).json(&body), &what).await.map(drop)
    }

    async fn send(&self, request: RequestBuilder, what: &str) -> Result<reqwest::Response, ManagementError> {
        let answer = request.send().await.map_err(|error| match error.is_connect() || error.is_timeout() {
            true => self.unreachable(&error),
            false => self.something_else(&error),
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.bytes().await.unwrap_or_default();
        Err(self.refusal(status, &body[..body.len().min(REASON_BYTES_MAX)], what))
    }

    /// What an answer that is no success means. RabbitMQ's own come with their error and reason in JSON.
    fn refusal(&self, status: StatusCode, body: &[u8], what: &str) -> ManagementError {
        let said: Option<Refused> = serde_json::from_slice(body).ok();
        match said {
            Some(said) if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                let user = self.user.clone();
                match said.reason.contains("Login failed") {
                    true => ManagementError::WrongPassword { at: self.at(), user, setting: self.setting },
                    false => ManagementError::NotAllowed { user, why: said.reason },
                }
            }
            Some(said) => {
                let why = format!("{status}: {}", said.reason);
                ManagementError::Said { at: self.at(), what: what.into(), why }
            }
            None => ManagementError::SomethingElse { at: self.at(), answered: status.to_string() },
        }
    }

    /// The way is there, and what came over it makes no sense.
    fn something_else(&self, error: &reqwest::Error) -> ManagementError {
        ManagementError::SomethingElse { at: self.at(), answered: root(error) }
    }

    fn at(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    fn unreachable(&self, error: &reqwest::Error) -> ManagementError {
        ManagementError::Unreachable { at: self.at(), why: root(error) }
    }
}

/// The cause of all causes.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn unescaped(text: &str) -> String {
    // As a form's value, in which a plus would be a space.
    let whole = format!("v={}", text.replace('+', "%2B"));
    form_urlencoded::parse(whole.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

fn password() -> String {
    let mut bytes = [0; PASSWORD_BYTES];
    os_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use mutirao_tls::Believe;

    use super::*;

    fn management(broker: &str, url: &str) -> Management {
        let trust = Trust::for_url(url, &Believe::default()).unwrap();
        Management::new(broker, url, "mutirao.", &trust).unwrap()
    }

    #[test]
    fn it_is_beside_the_broker_unless_somebody_says_otherwise() {
        assert_eq!(default_url("amqp://a:b@rabbit/lab").unwrap(), "http://rabbit:15672");
        assert_eq!(default_url("amqps://a:b@rabbit:1/lab").unwrap(), "https://rabbit:15671");
        assert_eq!(default_url("amqp://a:b@[::1]:5672/lab").unwrap(), "http://[::1]:15672");
        let beside = management("amqp://a:p%40ss@rabbit/lab", "http://rabbit:15672");
        assert_eq!((beside.user.as_str(), beside.password.as_str()), ("a", "p@ss"));
        let other = management("amqp://a:b@rabbit/lab", "http://boss:s%2Bcret@rabbit:15672");
        assert_eq!((other.user.as_str(), other.password.as_str()), ("boss", "s+cret"));
        assert!(!other.at().contains("cret"), "{}", other.at());
    }

    #[test]
    fn a_refusal_names_the_setting_that_is_wrong_or_what_the_user_lacks() {
        let beside = management("amqp://a:b@rabbit/lab", "http://rabbit:15672");
        let other = management("amqp://a:b@rabbit/lab", "http://boss:s3cret@rabbit:15672");
        let line =
            |of: &Management, status: StatusCode, body: &str| of.refusal(status, body.as_bytes(), "say").to_string();
        let login = r#"{"error":"not_authorized","reason":"Login failed"}"#;
        let wrong = line(&beside, StatusCode::UNAUTHORIZED, login);
        assert!(wrong.contains("user a in with this password") && wrong.contains("the setting broker,"), "{wrong}");
        let wrong = line(&other, StatusCode::UNAUTHORIZED, login);
        assert!(wrong.contains("user boss") && wrong.contains("the setting broker_management,"), "{wrong}");
        let plain = r#"{"error":"not_authorised","reason":"Not management user"}"#;
        let lacks = line(&beside, StatusCode::UNAUTHORIZED, plain);
        assert!(lacks.contains("Not management user") && lacks.contains("set_user_tags a administrator"), "{lacks}");
        let web = line(&beside, StatusCode::NOT_FOUND, "<h1>Not Found</h1>");
        assert!(web.contains("is not RabbitMQ's management (404 Not Found)") && web.contains("15672"), "{web}");
        let said = line(&beside, StatusCode::BAD_REQUEST, r#"{"error":"bad_request","reason":"vhost_not_found"}"#);
        assert!(said.contains("vhost_not_found"), "{said}");
    }

    #[test]
    fn a_worker_gets_the_broker_s_address_and_its_own_user() {
        let url = management("amqp://a:b@rabbit:5673/%2f", "http://rabbit:15672").url_of("mutirao.worker.w1", "pw");
        assert_eq!(url, "amqp://mutirao.worker.w1:pw@rabbit:5673/%2F");
        assert_eq!(parse(&url).unwrap().vhost, "/");
        let url = management("amqp://a:b@[::1]:5673/lab", "http://[::1]:15672").url_of("mutirao.worker.w1", "pw");
        assert_eq!(url, "amqp://mutirao.worker.w1:pw@[::1]:5673/lab");
    }
}
