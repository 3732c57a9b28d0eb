//! The rules of a registry, what it keeps of a node, and what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::rabbit::management::nodes::node_of;
use mutirao_core::{Mono, Timestamp};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::allowance::Warrant;
use crate::names::{ActionName, Namespace, NodeId, Offer};
use crate::preference::Protocol;
use crate::wire::places::Places;
use crate::wire::{Ack, DEVICE_BYTES_MAX, MESSAGE_BYTES_MAX, Parameters, Register, Rubbish, fits_device, places};
use crate::{Layer, pulse};

/// Tasks that a node may ask to be given at once. A share of what whoever has tasks lets out: one node that is silent must not
/// have them all.
const SLOTS_MAX: u32 = 256;

#[derive(Clone, Debug)]
pub struct Rules {
    pub namespace: Namespace,
    /// A registration like the one before is passed over for this long.
    pub dedupe: Duration,
    /// Silent for longer than this is away.
    pub silence: Duration,
    /// Away for longer than this is forgotten.
    pub forget: Duration,
    /// The same, for whoever is bound to no id and never did anything: it may have been invented.
    pub forget_unproven: Duration,
    pub strangers: Strangers,
    pub nodes_max: usize,
    /// Registrations of one node: so many at once, then one each second.
    pub burst: u32,
    /// New nodes: so many at once, then as many again every ten seconds.
    pub newcomers_burst: u32,
}

/// Devices that can show nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    Refused,
    LetIn,
}

impl Rules {
    pub fn of(namespace: Namespace) -> Self {
        Self {
            namespace,
            dedupe: Duration::from_secs(300),
            // Three times asked and not answered, and the way there.
            silence: pulse::Pace::default().asked_within() * 3 + Duration::from_secs(15),
            forget: Duration::from_secs(30 * 86_400),
            forget_unproven: Duration::from_secs(3_600),
            strangers: Strangers::Refused,
            nodes_max: 20_000,
            burst: 10,
            newcomers_burst: 2_000,
        }
    }
}

/// What a speaker could show, as whoever received it found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// A key that was enrolled.
    Key(String),
    /// A user's name, with its password.
    User(String),
    Nothing,
}

/// Everybody who says nothing of who it is: RabbitMQ let it in, as one of the users of this vhost.
const SOMEBODY: &str = "somebody of the broker";
/// A user of RabbitMQ, who may be any node. No device has a space in its name.
const BROKER: &str = "broker ";

impl Proof {
    pub fn somebody() -> Self {
        Self::User(SOMEBODY.into())
    }

    /// A node that has a user of its own at RabbitMQ was once told apart from the device of its name.
    pub fn as_now(self) -> Self {
        let user = match &self {
            Self::User(user) => user.strip_prefix(BROKER).and_then(node_of),
            _ => None,
        };
        user.map(|node| Self::User(node.to_owned())).unwrap_or(self)
    }

    pub fn of_broker(user: &str) -> Self {
        Self::User(format!("{BROKER}{user}"))
    }

    /// Whether who shows it came in by RabbitMQ, under a name of RabbitMQ's.
    pub fn is_of_broker(&self) -> bool {
        matches!(self, Self::User(user) if user == SOMEBODY || user.starts_with(BROKER))
    }

    /// Whether it is bound to one id. Whoever shows anything else may claim as many ids as it likes.
    pub fn is_bound(&self) -> bool {
        *self != Self::Nothing && !self.is_of_broker()
    }

    /// Whether whoever came in by this has to leave its id to one who shows that.
    pub fn yields_to(&self, other: &Self) -> bool {
        let shows_nothing_of_its_own = *self == Self::Nothing || *self == Self::somebody();
        shows_nothing_of_its_own && (other.is_bound() || *self == Self::Nothing)
    }
}

/// What a speaker showed, and what whoever let it in answers for.
#[derive(Clone, Debug)]
pub struct Papers {
    pub proof: Proof,
    pub warrant: Arc<Warrant>,
    /// It speaks from this very machine.
    pub near: bool,
}

/// Nobody answers for more than who it is.
impl From<Proof> for Papers {
    fn from(proof: Proof) -> Self {
        Self { proof, warrant: Arc::default(), near: false }
    }
}

/// How far what a node says of its actions is believed. Nobody gets tasks of an action that somebody offers who is believed more:
/// else whoever comes in could say that it has a newer version, and have the work of those that were meant to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    Stranger,
    LetIn,
    Vouched,
}

/// Both clocks: wall time is for people, the other for decisions.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub mono: Mono,
    pub wall: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    Unreadable,
    /// An action that it says it has cannot be read, or is of another namespace.
    BadAction,
    /// Its actions, its layer or its labels are others than those that it may have.
    NotAllowed,
    WrongLayer,
    /// Where it says that it answers HTTP nobody is to be asked.
    BadEndpoint,
    /// Its id is another's.
    Stolen,
    BadSignature,
    /// It showed nothing, and that is not allowed here.
    Stranger,
    /// It, or those nobody knows together, came too often.
    Flood,
    /// There are as many nodes as may be.
    Full,
    /// A user of RabbitMQ that was made for a node does not say that it is that one.
    Unnamed,
    /// Its key was taken from it.
    Removed,
    /// A device's password, or a node's one-time token.
    BadPassword,
    /// A result of a task that another node was given.
    Forged,
    /// It asked for a Task, and may not.
    Asker,
}

impl Refused {
    pub const ALL: [Self; 15] = [
        Self::Unreadable,
        Self::BadAction,
        Self::NotAllowed,
        Self::WrongLayer,
        Self::BadEndpoint,
        Self::Stolen,
        Self::BadSignature,
        Self::Stranger,
        Self::Flood,
        Self::Full,
        Self::Unnamed,
        Self::Removed,
        Self::BadPassword,
        Self::Forged,
        Self::Asker,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::BadAction => "bad_action",
            Self::NotAllowed => "not_allowed",
            Self::WrongLayer => "wrong_layer",
            Self::BadEndpoint => "bad_endpoint",
            Self::Stolen => "stolen",
            Self::BadSignature => "bad_signature",
            Self::Stranger => "stranger",
            Self::Flood => "flood",
            Self::Full => "full",
            Self::Unnamed => "unnamed",
            Self::Removed => "removed",
            Self::BadPassword => "bad_password",
            Self::Forged => "forged",
            Self::Asker => "asker",
        }
    }
}

/// Why, for people who look at what was refused.
impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "it cannot be read",
            Self::BadAction => "none of its actions is understood",
            Self::NotAllowed => "whoever let it in did not allow this",
            Self::WrongLayer => "its layer is none of EDGE, FOG and CLOUD",
            Self::BadEndpoint => "its endpoint is no address where a node may be",
            Self::Stolen => "this id belongs to another, who registered it first or whose credentials it is bound to",
            Self::BadSignature => "its signature is wrong",
            Self::Stranger => "it showed no credentials; mqtt.allow_anonymous would let it in",
            Self::Flood => "too many registrations; it is heard again in a while",
            Self::Full => "there are as many nodes as may be",
            Self::Unnamed => {
                "it has a user of its own at RabbitMQ and does not name it: the property user_id is missing"
            }
            Self::Removed => "the key by which it came in was taken from it",
            Self::BadPassword => "its password, or its one-time token, is wrong",
            Self::Forged => "it answers for a task that another node was given",
            Self::Asker => "it may not ask for tasks; `mutirao device add --requests` makes one that may",
        })
    }
}

/// What could not be read never gets as far as the registry; it is counted all the same.
impl From<&Rubbish> for Refused {
    fn from(rubbish: &Rubbish) -> Self {
        match rubbish {
            Rubbish::Layer(_) => Self::WrongLayer,
            Rubbish::Long { .. } | Rubbish::Unreadable { .. } => Self::Unreadable,
        }
    }
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What is kept of a node, also in the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub node: NodeId,
    pub layer: Layer,
    pub kind: String,
    pub endpoint: String,
    pub offers: BTreeSet<Offer>,
    /// Actions that it says it has besides, and that nobody could be asked for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_understood: u32,
    /// And that it may not offer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_allowed: u32,
    /// Whoever let it in answers for what it offers: it came in by a key, or its actions were written down.
    #[serde(default)]
    pub vouched: bool,
    /// It spoke from this very machine: there its endpoint may be.
    #[serde(default)]
    pub near: bool,
    /// What it declares of some of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<Offer, Parameters>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub slots: u32,
    pub proof: Proof,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// Over which protocols it was heard.
    pub heard_over: BTreeSet<Protocol>,
    /// It gave a result of a task that it was given.
    #[serde(default)]
    pub worked: bool,
}

impl Record {
    /// Its id may have been invented, with any number of others.
    pub fn is_unproven(&self) -> bool {
        !self.worked && !self.proof.is_bound()
    }

    pub fn trust(&self) -> Trust {
        match self.proof {
            _ if self.vouched => Trust::Vouched,
            Proof::Nothing => Trust::Stranger,
            _ => Trust::LetIn,
        }
    }

    /// A node of the manager's own process.
    pub fn is_here(&self) -> bool {
        self.heard_over.contains(&Protocol::Here)
    }

    /// Nobody can ask it to register: it hears no beats.
    pub fn hears_nobody(&self) -> bool {
        self.heard_over.iter().all(|over| *over == Protocol::Http)
    }

    /// Of the kinds that the document's devices call themselves.
    pub fn is_small(&self) -> bool {
        let kind = self.kind.to_ascii_lowercase();
        ["esp", "arduino"].iter().any(|small| kind.starts_with(small))
    }

    /// By MQTT: it would drop the packet without a word, and look as if it failed.
    pub fn is_too_small_for(&self, topic: &str, text: &str) -> Option<String> {
        let fits = !self.is_small() || fits_device(topic, text);
        let why = || format!("{} bytes are more than a microcontroller takes, {DEVICE_BYTES_MAX}", text.len());
        (!fits).then(why)
    }

    /// Over what it can be spoken to.
    pub fn speaks(&self) -> BTreeSet<Protocol> {
        let by_http = (!self.endpoint.is_empty()).then_some(Protocol::Http);
        self.heard_over.iter().copied().chain(by_http).collect()
    }

    /// Why no way to it could carry this, now or later.
    pub fn is_never_given(&self, places: &Places, text: &str) -> Option<String> {
        let topic = places.device_topic(&self.node);
        let mut whys = self.speaks().into_iter().map(|over| match over {
            Protocol::Here => None,
            Protocol::Mqtt if self.is_small() => self.is_too_small_for(&topic, text),
            _ if text.len() <= MESSAGE_BYTES_MAX => None,
            _ => Some(format!("the message has {} bytes, the most is {MESSAGE_BYTES_MAX}", text.len())),
        });
        let first = whys.next()??;
        whys.all(|why| why.is_some()).then_some(first)
    }

    /// The newest version of an action that it has.
    pub fn offer(&self, action: &ActionName) -> Option<&Offer> {
        let version = |version| Offer { action: action.clone(), version };
        self.offers.range(version(0)..=version(u32::MAX)).next_back()
    }
}

/// The manager's side of the document's table of registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It was acknowledged, and heard of lately.
    Registered,
    /// It was before this manager began, and has not said so since: to it the manager was gone, so it is not registered until
    /// it says again what it has.
    Unconfirmed,
    Away,
}

impl Presence {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Unconfirmed => "unconfirmed",
            Self::Away => "away",
        }
    }
}

/// What is another now than it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub endpoint: bool,
    /// Its layer, kind, labels or slots.
    pub standing: bool,
    pub actions: bool,
    pub proof: bool,
    pub came_back: bool,
    pub over: bool,
}

impl Changes {
    pub fn any(self) -> bool {
        self != Self::default()
    }
}

/// What became of a registration. All but a refusal are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// To be written.
    New(Ack),
    /// To be written.
    Changed(Ack, Changes),
    /// As it was.
    Same(Ack),
    /// As it was, a little while ago; nothing was looked at.
    Repeated(Ack),
    Refused(Refused),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    Away(NodeId),
    /// Its record is to be removed.
    Forgotten(NodeId),
}

pub fn standing(record: &Record) -> (Layer, &str, &BTreeMap<String, String>, u32) {
    (record.layer, &record.kind, &record.labels, record.slots)
}

pub fn slots(said: &Register) -> u32 {
    said.slots.unwrap_or(places::PREFETCH.into()).clamp(1, SLOTS_MAX)
}

/// Of all that a registration says; not of the order of its actions, nor of how urgent it is.
pub fn fingerprint(said: &Register) -> [u8; 32] {
    let mut digest = Sha256::new();
    let mut word = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    word(&said.endpoint);
    word(match said.layer {
        Layer::Edge => "edge",
        Layer::Fog => "fog",
        Layer::Cloud => "cloud",
    });
    word(&said.kind);
    word(said.node.as_str());
    word(&slots(said).to_string());
    word(&said.labels.len().to_string());
    said.labels.iter().flat_map(|(key, value)| [key, value]).for_each(|text| word(text));
    said.actions.iter().collect::<BTreeSet<_>>().into_iter().for_each(|action| word(action));
    for (action, Parameters { timeout, retry }) in &said.parameters {
        word(&format!("{action} {timeout} {retry}"));
    }
    digest.finalize().into()
}

/// Of those that it offers.
pub fn parameters(offers: &BTreeSet<Offer>, said: &Register) -> BTreeMap<Offer, Parameters> {
    let declared = |offer: &Offer| said.parameters.get(&offer.to_string()).map(|declared| (offer.clone(), *declared));
    offers.iter().filter_map(declared).collect()
}

/// Names the actions as the node did, those that will be asked for.
pub fn ack(offers: &BTreeSet<Offer>, said: &Register, fingerprint: &[u8; 32]) -> Ack {
    let token = fingerprint.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ack { token, node: said.node.clone(), actions: offers.iter().map(Offer::to_string).collect() }
}

/// As a number that is kept.
pub fn count(lines: &[String]) -> u32 {
    u32::try_from(lines.len()).unwrap_or(u32::MAX)
}
