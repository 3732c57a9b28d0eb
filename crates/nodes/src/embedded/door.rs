//! Who is let in at the manager's own MQTT listener, under which name and with which topics.
//!
//! A device that is removed while it knocks may be found in the store and be let in after it was expelled. So the listener
//! asks again whenever somebody was expelled between the question and the session ([`mutirao_mqtt::Gate`]).

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use mutirao_mqtt::{Gate, Guest, Knock, Refusal, Rights, Standing, TopicFilter};
use parking_lot::RwLock;

use crate::device::Device;
use crate::meters;
use crate::names::NodeId;
use crate::registry::{Refused, Strangers};
use crate::store::SharedNodes;
use crate::wire::places::Places;

/// Whoever shows nothing.
pub const NOBODY: &str = "anonymous";
/// Sessions of one device: its own, and one for whoever looks over its shoulder.
const SESSIONS_OF_A_DEVICE: usize = 4;
const SESSIONS_OF_NOBODY: usize = 2_048;

/// Devices that came in, by the name of their user.
pub type Devices = RwLock<HashMap<Arc<str>, Device>>;

pub fn who_is(device: &str) -> Arc<str> {
    format!("device {device}").into()
}

/// Each with dots, as the document has it, and with slashes, as MQTT would.
pub struct Topics(pub Places);

pub fn both(dotted: &str) -> [String; 2] {
    [dotted.to_owned(), dotted.replace('.', "/")]
}

pub fn filters(topics: impl IntoIterator<Item = String>) -> Vec<TopicFilter> {
    topics.into_iter().filter_map(|topic| TopicFilter::new(&topic).ok()).collect()
}

impl Topics {
    fn said_by_nodes(&self) -> Vec<String> {
        let places = &self.0;
        [places.register(), places.results(), places.results_misprinted()].iter().flat_map(|one| both(one)).collect()
    }

    /// All that the manager listens to.
    pub fn heard(&self) -> Vec<String> {
        self.said_by_nodes().into_iter().chain(both(&self.0.requests())).collect()
    }

    /// `node`: its own topic and no other; without, any.
    fn rights(&self, node: Option<&NodeId>, may_request: bool) -> Rights {
        let inbox = match node {
            Some(node) => self.0.device_topic(node),
            None => format!("{}/node/+/in", self.0.0),
        };
        let mut publish = self.said_by_nodes();
        let mut subscribe: Vec<String> =
            std::iter::once(inbox).chain(both(&self.0.beats())).chain(both(&self.0.ack())).collect();
        if may_request {
            publish.extend(both(&self.0.requests()));
            subscribe.extend(both(&self.0.finals()));
        }
        Rights { publish: filters(publish), subscribe: filters(subscribe) }
    }
}

pub struct Doorkeeper {
    pub store: SharedNodes,
    pub strangers: Strangers,
    pub devices: Arc<Devices>,
    pub topics: Topics,
}

#[async_trait]
impl Gate for Doorkeeper {
    async fn admit(&self, knock: &Knock) -> Result<Guest, Refusal> {
        let Some(user) = &knock.user else {
            let let_in = self.strangers == Strangers::LetIn && knock.password.is_none();
            let rights = || self.topics.rights(None, false);
            let standing = Standing::Anonymous;
            let guest = || Guest { who: NOBODY.into(), standing, rights: rights(), sessions_max: SESSIONS_OF_NOBODY };
            return let_in.then(guest).ok_or(Refusal::NotAuthorized);
        };
        let device = self.store.device(user).await.map_err(|error| {
            tracing::warn!(%error, "a device cannot be let in: who it is cannot be looked up");
            Refusal::Unavailable
        })?;
        if device.is_none() {
            // It may have been let in and removed a moment ago.
            self.devices.write().remove(user.as_str());
        }
        let password = knock.password.as_deref().unwrap_or_default();
        let Some(device) = device.filter(|device| device.is_opened_by(password)) else {
            meters::refused(Refused::BadPassword);
            return Err(Refusal::BadCredentials);
        };
        let mut rights = self.topics.rights(Some(&device.node), device.may_request);
        rights.publish.extend(filters(device.topics.publish.iter().cloned()));
        rights.subscribe.extend(filters(device.topics.subscribe.iter().cloned()));
        let (who, standing) = (who_is(&device.name), Standing::Known);
        self.devices.write().insert(device.name.as_str().into(), device);
        Ok(Guest { who, standing, rights, sessions_max: SESSIONS_OF_A_DEVICE })
    }
}
