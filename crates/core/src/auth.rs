//! Who may do what, and what a signature covers. The secrets themselves, their storage and the checking live in `api`.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::Timestamp;
use crate::check::Kinds;

/// What a principal may do. Ordered: each role may do all that the ones before it may, but for those that stand aside:
/// `Node` reaches the link, the blobs of its own tasks and nothing else, `Elastic` what a resource manager needs under
/// `/v1/elastic` and nothing else, `Keys` (which a manager's own actions have) the keys under `/v1/kv` and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Node,
    Elastic,
    Keys,
    Viewer,
    Operator,
    Admin,
}

impl Role {
    pub fn may(self, needed: Role) -> bool {
        match (self, needed) {
            (Role::Node | Role::Elastic | Role::Keys, _) | (_, Role::Node | Role::Elastic | Role::Keys) => {
                self == needed
            }
            (have, need) => have as u8 >= need as u8,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Node => "node",
            Role::Elastic => "elastic",
            Role::Keys => "keys",
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Role::Node, Role::Elastic, Role::Viewer, Role::Operator, Role::Admin]
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| format!("\"{text}\" is not a role: choose viewer, operator or admin"))
    }
}

/// Who a request comes from, once that is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The token's or worker's id.
    pub id: String,
    /// The token's or worker's name: the `owner` of what it creates. Tokens of one name are one owner, so that a token that
    /// replaces another goes on as it.
    pub name: String,
    pub role: Role,
    pub namespace: String,
}

/// The namespace everything is in until namespaces are asked for.
pub const DEFAULT_NAMESPACE: &str = "default";

/// How long a signed request is good for, to either side of the server's clock.
pub const SIGNATURE_WINDOW_S: i64 = 60;

/// The scheme's name in the `Authorization` header:
/// `Mutirao-Ed25519 key=<worker or key id>,time=<ms>,nonce=<hex>,sig=<base64>`.
pub const SIGNATURE_SCHEME: &str = "Mutirao-Ed25519";

/// The bytes that an Ed25519 signature of a request covers. The body enters by its SHA-256.
///
/// ```
/// use mutirao_core::{auth::signed_bytes, Timestamp};
/// let a = signed_bytes("PUT", "/v1/blobs/x?offset=0", b"hello", Timestamp(1), "n1");
/// let b = signed_bytes("PUT", "/v1/blobs/x?offset=0", b"hullo", Timestamp(1), "n1");
/// assert_ne!(a, b);
/// ```
pub fn signed_bytes(method: &str, path_and_query: &str, body: &[u8], time: Timestamp, nonce: &str) -> Vec<u8> {
    let digest: String = Sha256::digest(body).iter().map(|b| format!("{b:02x}")).collect();
    format!("mutirao-v1\n{method}\n{path_and_query}\n{digest}\n{}\n{nonce}", time.0).into_bytes()
}

/// What a worker sends, with its one-time token, to be known from then on. `POST /v1/workers/enrol`.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Enrol {
    /// The one-time token.
    pub token: String,
    /// The Ed25519 public key, base64.
    pub public_key: String,
    /// A name for people.
    pub name: String,
}

/// The answer to [`Enrol`].
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Enrolled {
    pub worker: crate::WorkerId,
    /// The queue the one-time token was made for; of one that makes checks, the word `checks`; of a host of streams, the word
    /// `streams`.
    pub queue: String,
    /// The kinds of checks that it makes, if it makes checks and takes no tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::check::CheckKind>>)]
    pub checks: Option<Kinds>,
    /// Whether it is a host of streams, and takes no tasks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
}

/// What the logs and topics of streams begin with, which are open to their hosts.
pub const STREAMS: &str = "streams.";

/// What a worker was let in for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Duty {
    /// The tasks of a queue.
    Tasks(crate::QueueName),
    /// Checks of these kinds: it is a checker.
    Checks(Kinds),
    /// Parts of streams: it is a host.
    Streams,
}

impl Duty {
    /// What stands for the queue of those who take from none.
    pub const NO_QUEUE: &str = "checks";
    /// The same of hosts of streams.
    pub const NO_QUEUE_OF_HOSTS: &str = "streams";

    pub fn queue(&self) -> &str {
        match self {
            Duty::Tasks(queue) => queue.as_str(),
            Duty::Checks(_) => Self::NO_QUEUE,
            Duty::Streams => Self::NO_QUEUE_OF_HOSTS,
        }
    }

    pub fn checks(&self) -> Option<&Kinds> {
        match self {
            Duty::Tasks(_) | Duty::Streams => None,
            Duty::Checks(kinds) => Some(kinds),
        }
    }

    pub fn is_streams(&self) -> bool {
        matches!(self, Duty::Streams)
    }
}

impl std::fmt::Display for Duty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Duty::Tasks(queue) => write!(f, "{queue}"),
            Duty::Checks(kinds) => write!(f, "checks of {kinds}"),
            Duty::Streams => write!(f, "streams"),
        }
    }
}

/// How a worker reaches the broker. The answer to `POST /v1/workers/broker`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "over", rename_all = "lowercase")]
pub enum Way {
    /// Through the manager: `GET /v1/link`.
    Link,
    /// By itself, as a user of its own.
    Rabbitmq {
        /// With the worker's user and password in it.
        url: String,
        /// What the names of queues begin with there.
        prefix: String,
    },
}

// Written by hand so that no password can slip into a log.
impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Way::Link => "Link",
            Way::Rabbitmq { .. } => "Rabbitmq(…)",
        })
    }
}

/// What an admin asks for when making a token. `POST /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// A name for people.
    pub name: String,
    pub role: Role,
    /// How long it is good for; without it, until it is revoked.
    #[schema(value_type = Option<String>, example = "30days")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<crate::quantity::Span>,
}

/// A token as shown. Its secret is shown once, in [`TokenCreated`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenView {
    pub id: String,
    pub name: String,
    pub role: Role,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// To the minute or so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// The answer to [`TokenSpec`]: the only time the secret is seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenCreated {
    #[serde(flatten)]
    pub token: TokenView,
    /// What goes after `Bearer`.
    pub secret: String,
}

/// What an admin asks for when letting a worker in. `POST /v1/workers/enrolments`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolmentSpec {
    /// The queue the worker will take tasks of.
    #[serde(default)]
    #[schema(value_type = String, default = "default")]
    pub queue: crate::QueueName,
    /// The kinds of checks that it will make: then it is a checker, and takes no tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::check::CheckKind>>)]
    pub checks: Option<Kinds>,
    /// It will host parts of streams, and take neither tasks nor checks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
}

impl EnrolmentSpec {
    /// None when it asks for two things at once.
    pub fn duty(self) -> Option<Duty> {
        match (self.checks, self.streams) {
            (None, false) => Some(Duty::Tasks(self.queue)),
            (Some(kinds), false) => Some(Duty::Checks(kinds)),
            (None, true) => Some(Duty::Streams),
            (Some(_), true) => None,
        }
    }
}

/// The answer to [`EnrolmentSpec`]: a one-time token for [`Enrol`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Enrolment {
    pub token: String,
    /// Of a checker, the word `checks`; of a host of streams, the word `streams`.
    pub queue: String,
    pub expires_at: Timestamp,
    /// Where the manager that made it is reached from elsewhere, as far as it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// A worker's enrolled key as shown. It lets the worker in until it is revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeyView {
    pub worker: crate::WorkerId,
    /// The name it enrolled with.
    pub name: String,
    /// Of a checker, the word `checks`; of a host of streams, the word `streams`.
    #[schema(value_type = String)]
    pub queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::check::CheckKind>>)]
    pub checks: Option<Kinds>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streams: bool,
    pub enrolled_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// The answer to `POST /v1/elastic/invitations`: a one-time token that lets one resource manager in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ElasticInvitation {
    pub token: String,
    pub expires_at: Timestamp,
}

// Written by hand so that no secret can slip into a log.
impl std::fmt::Debug for ElasticInvitation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElasticInvitation").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The answer to a resource manager's [`Enrol`] (`POST /v1/elastic/enrol`) and to its [`NewKey`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ElasticEnrolled {
    /// What it signs with: `key=` of its requests.
    pub key: String,
}

/// A further key of the resource manager that signs the request. `POST /v1/elastic/keys`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The Ed25519 public key, base64.
    pub public_key: String,
}

/// A resource manager's key as shown. Several of one resource manager may be good at once, so that it changes them
/// without a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ElasticKeyView {
    pub key: String,
    /// The first key of the same resource manager.
    pub manager: String,
    /// The name it enrolled with.
    pub name: String,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// To the minute or so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_nodes_stand_aside() {
        assert!(Role::Admin.may(Role::Viewer) && Role::Operator.may(Role::Operator) && Role::Node.may(Role::Node));
        assert!(Role::Elastic.may(Role::Elastic) && !Role::Elastic.may(Role::Node) && !Role::Elastic.may(Role::Viewer));
        assert!(!Role::Admin.may(Role::Elastic) && !Role::Node.may(Role::Elastic));
        assert!(Role::Keys.may(Role::Keys) && !Role::Keys.may(Role::Viewer) && !Role::Admin.may(Role::Keys));
        assert!(!Role::Viewer.may(Role::Operator) && !Role::Node.may(Role::Viewer) && !Role::Admin.may(Role::Node));
    }
}
