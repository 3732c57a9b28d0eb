//! What was said, whoever brought it. Everything heard is one of three: taken, refused for good (counted, and kept for
//! whoever looks), or worth saying again later.

use std::sync::Arc;

use mutirao_core::Problem;
use tokio::sync::OwnedSemaphorePermit;

use super::state::Claim;
use super::{Inner, Switchboard};
use crate::allowance::Warrant;
use crate::device::Device;
use crate::endpoint;
use crate::errand::{End, Returned};
use crate::meters;
use crate::names::NodeId;
use crate::preference::Protocol;
use crate::registry::{self, Offered, Papers, Proof, Record, Refused};
use crate::store::Tossed;
use crate::wire::places::Kind;
use crate::wire::{self, Ack, Message, Register, Rubbish, TaskRequest, Word};

/// Heard at once; more wait at their connections.
pub const AT_ONCE: usize = 64;

/// Who speaks, as far as whoever brought it could find out.
#[derive(Clone, Debug)]
pub struct Voice {
    pub proof: Proof,
    /// The only node that it may speak for.
    pub node: Option<NodeId>,
    pub may_request: bool,
    pub standing: Standing,
    pub warrant: Arc<Warrant>,
    /// It speaks from this very machine, as far as that is known.
    pub near: bool,
}

/// What has to hold of a speaker before it is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Plain,
    /// It came in by its key, and may have lost it since: its broker does not ask us with each word.
    ByKey,
    /// It did not say who it is, where it has to.
    Unnamed,
}

impl Voice {
    pub fn nobody() -> Self {
        Self {
            proof: Proof::Nothing,
            node: None,
            may_request: false,
            standing: Standing::Plain,
            warrant: Arc::default(),
            near: false,
        }
    }

    /// One that showed its password.
    pub fn of_device(device: &Device) -> Self {
        let Device { name, node, may_request, warrant, .. } = device;
        let (proof, node, warrant) = (Proof::User(name.clone()), Some(node.clone()), warrant.clone());
        Self { proof, node, may_request: *may_request, standing: Standing::Plain, warrant, near: false }
    }

    /// Who asks, where that is known: those of one account of a broker are not told apart.
    fn client(&self) -> Option<&str> {
        match (&self.node, &self.proof) {
            (Some(_), Proof::User(user)) => Some(user),
            _ => None,
        }
    }

    fn name(&self) -> String {
        match &self.proof {
            Proof::Key(key) => format!("key {key}"),
            Proof::User(user) => format!("user {user}"),
            Proof::Nothing => "nobody known".into(),
        }
    }
}

pub struct Said<'a> {
    /// What it is about.
    pub kind: Kind,
    /// Where it was said: a topic, a key, a path.
    pub place: &'a str,
    pub over: Protocol,
    pub bytes: &'a [u8],
    pub voice: Voice,
}

/// It was dealt with, and may be acknowledged to whoever brought it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// To be answered so.
    Registered(Ack),
    Taken,
    /// For good. Why, in a line.
    Refused(String),
}

impl Switchboard {
    /// Whoever brings something waits for its turn, and keeps it until that was heard: not everything at once.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        self.0.hearing.clone().acquire_owned().await.ok()
    }

    /// A failure is worth another try: it is not to be acknowledged.
    pub async fn hear(&self, said: Said<'_>) -> Result<Heard, Problem> {
        let inner = &self.0;
        match inner.hear(&said).await {
            Ok(heard) => Ok(heard),
            Err(No::Later(problem)) => Err(problem),
            Err(No::Never(refused, why)) => {
                inner.toss(&said, refused, &why);
                Ok(Heard::Refused(why))
            }
        }
    }
}

/// Why something is not taken.
enum No {
    Never(Refused, String),
    Later(Problem),
}

impl From<Rubbish> for No {
    fn from(rubbish: Rubbish) -> Self {
        Self::Never(Refused::from(&rubbish), rubbish.to_string())
    }
}

impl From<Refused> for No {
    fn from(refused: Refused) -> Self {
        Self::Never(refused, refused.to_string())
    }
}

/// Refusals of ours stay refusals; everything else may pass.
fn refused_or_later(problem: Problem) -> No {
    match problem.status {
        400..=428 => No::Never(Refused::Unreadable, problem.line()),
        _ => No::Later(problem),
    }
}

impl Inner {
    async fn hear(&self, said: &Said<'_>) -> Result<Heard, No> {
        match (said.voice.standing, &said.voice.node) {
            (Standing::Unnamed, _) => return Err(Refused::Unnamed.into()),
            (Standing::ByKey, Some(node)) if !self.has_key(node).await? => return Err(Refused::Removed.into()),
            _ => {}
        }
        match said.kind {
            Kind::Register => self.hear_register(said).await,
            Kind::Result => self.hear_result(said).await,
            Kind::Request => self.hear_request(said).await,
            _ => Err(No::Never(Refused::Unreadable, "nobody says that to a manager".into())),
        }
    }

    async fn has_key(&self, node: &NodeId) -> Result<bool, No> {
        self.keys
            .has(node, &self.store, self.clock.monotonic())
            .await
            .map_err(|error| No::Later(Problem::unavailable(error.to_string())))
    }

    async fn hear_register(&self, said: &Said<'_>) -> Result<Heard, No> {
        let register = Register::read(said.bytes)?;
        let node = register.node.clone();
        if said.voice.node.as_ref().is_some_and(|own| *own != node) {
            return Err(self.stolen(&node));
        }
        // Whoever has a key shows it, or is another. Those that are known were asked when they came.
        let is_known = |record: &Record| record.proof == said.voice.proof;
        let known = self.state.lock().registry.node(&node).is_some_and(|(record, _)| is_known(record));
        if !known && said.voice.node.is_none() && self.has_key(&node).await? {
            return Err(self.stolen(&node));
        }
        // Another manager would look for it on a machine of its own.
        let near = said.voice.near && self.others.is_none();
        if !register.endpoint.is_empty()
            && let Err(why) = endpoint::read(&register.endpoint, self.loopback.or_near(near))
        {
            return Err(No::Never(Refused::BadEndpoint, why));
        }
        let papers = Papers { proof: said.voice.proof.clone(), warrant: self.warrant(&said.voice).await?, near };
        let offered = Offered::of(&register, &self.places.0, &papers.warrant.allowance);
        let (heard, record, unkept) = {
            let mut state = self.state.lock();
            let heard = state.registry.register(register, papers, said.over, self.now());
            if let registry::Heard::Changed(_, changes) = &heard
                && (changes.endpoint || changes.over)
            {
                state.moved(&node);
            }
            if !matches!(heard, registry::Heard::Refused(_)) {
                state.unwritten.insert(node.clone());
            }
            if matches!(heard, registry::Heard::New(_) | registry::Heard::Changed(..)) {
                state.has_news(&node);
            }
            (heard, state.registry.node(&node).map(|(record, _)| record.clone()), state.unkept(&node))
        };
        let ack = match heard {
            registry::Heard::Refused(refused) => {
                // A flood is counted and not kept: it would push out what is worth looking at.
                if refused == Refused::Flood {
                    meters::refused(refused);
                    return Ok(Heard::Refused(refused.to_string()));
                }
                if offered.refusal() == Some(refused) {
                    return Err(No::Never(refused, offered.complaint()));
                }
                return Err(refused.into());
            }
            // Told once, not each time that it registers.
            registry::Heard::New(ack) | registry::Heard::Changed(ack, _) => {
                offered.not_understood.iter().for_each(|why| self.toss(said, Refused::BadAction, why));
                offered.not_allowed.iter().for_each(|why| self.toss(said, Refused::NotAllowed, why));
                ack
            }
            registry::Heard::Same(ack) | registry::Heard::Repeated(ack) => ack,
        };
        // Whoever is told that it is registered must be so after a restart as well, also if it says it again because the store
        // did not take it before.
        if let Some(news) = unkept {
            let kept = self.store.keep(record.into_iter().collect()).await;
            let mut state = self.state.lock();
            if let Err(error) = kept {
                state.registry.in_vain(&node);
                return Err(No::Later(Problem::unavailable(error.to_string())));
            }
            state.kept(&node, news);
        }
        meters::registered();
        Ok(Heard::Registered(ack))
    }

    /// What whoever let it in answers for. A broker that lets it in knows nothing of that.
    async fn warrant(&self, voice: &Voice) -> Result<Arc<Warrant>, No> {
        let Some(node) = voice.node.as_ref().filter(|_| voice.standing == Standing::ByKey) else {
            return Ok(voice.warrant.clone());
        };
        let device = self.store.device(node.as_str()).await;
        let device = device.map_err(|error| No::Later(Problem::unavailable(error.to_string())))?;
        device.map(|device| device.warrant).ok_or_else(|| Refused::Removed.into())
    }

    /// Counted with the one whose id it is.
    fn stolen(&self, node: &NodeId) -> No {
        self.state.lock().registry.blame(node);
        Refused::Stolen.into()
    }

    async fn hear_result(&self, said: &Said<'_>) -> Result<Heard, No> {
        let Message { request, data, .. } = Message::read(said.bytes)?;
        let voice = &said.voice;
        let claim = self.state.lock().claim(&request, &voice.proof, voice.node.as_ref());
        let was_given = matches!(claim, Claim::Its(_));
        let node = match claim {
            Claim::Anothers => return Err(Refused::Forged.into()),
            Claim::Its(node) => Some(node),
            Claim::Unknown => voice.node.clone(),
        };
        let Some(taker) = self.taker.get() else {
            return Err(No::Later(Problem::unavailable("nobody takes results yet")));
        };
        let returned = Returned { request, end: end_of(data), node: node.clone() };
        taker.returned(returned).await.map_err(refused_or_later)?;
        meters::result(said.over);
        if let Some(node) = node {
            let mut state = self.state.lock();
            match was_given {
                true => state.worked(&node, self.now()),
                false => state.saw(&node, self.now()),
            }
        }
        Ok(Heard::Taken)
    }

    async fn hear_request(&self, said: &Said<'_>) -> Result<Heard, No> {
        if !said.voice.may_request {
            return Err(Refused::Asker.into());
        }
        let task = TaskRequest::read(said.bytes)?;
        let Some(taker) = self.taker.get() else {
            return Err(No::Later(Problem::unavailable("nobody takes requests yet")));
        };
        taker.asked(task, said.voice.client()).await.map_err(refused_or_later)?;
        Ok(Heard::Taken)
    }

    /// Counts what is refused, and keeps it to be looked at.
    fn toss(&self, said: &Said<'_>, refused: Refused, why: &str) {
        meters::refused(refused);
        meters::rubbish();
        if let Some(node) = &said.voice.node {
            self.state.lock().registry.blame(node);
        }
        let body = &said.bytes[..said.bytes.len().min(super::bin::BODY_BYTES_MAX)];
        let tossed = Tossed {
            at: self.clock.now(),
            place: format!("{} {}", said.over.as_str(), said.place),
            who: said.voice.name(),
            reason: why.to_owned(),
            body: body.to_vec(),
        };
        tracing::debug!(place = tossed.place, who = tossed.who, why, "something that nodes said was refused");
        self.bin.toss(tossed, self.clock.monotonic());
    }
}

/// A result that is an object with an `error`, a text or an object, says that the action failed. The wire has no other
/// word for it.
fn end_of(data: String) -> End {
    if !data.contains("\"error\"") {
        return End::Ok(data);
    }
    let value: serde_json::Value = match serde_json::from_str(&data) {
        Ok(value) => value,
        Err(_) => return End::Ok(data),
    };
    match value.get("error") {
        Some(serde_json::Value::String(why)) if !why.is_empty() => End::Failed(first_line(why)),
        Some(why @ serde_json::Value::Object(_)) => End::Failed(first_line(&why.to_string())),
        _ => End::Ok(data),
    }
}

fn first_line(why: &str) -> String {
    why.lines().next().unwrap_or_default().chars().take(wire::TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_with_an_error_is_a_failure_and_nothing_else_is() {
        for (data, failed) in [
            (r#"{"error":"no sensor\nat all"}"#, Some("no sensor")),
            (r#"{"error":{"code":7}}"#, Some(r#"{"code":7}"#)),
            (r#"{"error":""}"#, None),
            (r#"{"error":null,"value":1}"#, None),
            (r#"{"error":0.02}"#, None),
            (r#"["error"]"#, None),
            ("not JSON \"error\"", None),
            (r#"{"value":{"error":"deeper"}}"#, None),
        ] {
            let expected = failed.map_or_else(|| End::Ok(data.into()), |why| End::Failed(why.into()));
            assert_eq!(end_of(data.into()), expected, "{data}");
        }
    }
}
