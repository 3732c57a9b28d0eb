//! Nodes and devices as people see them.

use mutirao_core::node::{ActionStanding, DeviceView, RubbishView, RunsView, WaitingView};
use mutirao_elastic::protocol::Wish;
use mutirao_elastic::view::NodeView;

use crate::breaker::Health;
use crate::device::Device;
use crate::registry::{Presence, Proof};
use crate::store::Tossed;
use crate::switchboard::NodeInfo;

impl From<NodeInfo> for NodeView {
    fn from(info: NodeInfo) -> Self {
        let NodeInfo { record, presence, in_flight, refused, health, waits } = info;
        let standing = |(offer, health): (crate::Offer, Health)| ActionStanding {
            action: offer.to_string(),
            health: health.as_str().to_owned(),
        };
        let proof = match &record.proof {
            Proof::Key(key) => Some(format!("key {key}")),
            Proof::User(user) => Some(format!("user {user}")),
            Proof::Nothing => None,
        };
        let waiting = waits.map(|waits| WaitingView {
            connected: waits.connected,
            messages: waits.messages as u64,
            bytes: waits.bytes as u64,
            messages_max: waits.messages_max as u64,
            bytes_max: waits.bytes_max as u64,
            age_max_ms: waits.age_max_ms,
        });
        let runs = RunsView {
            kind: record.kind,
            endpoint: record.endpoint,
            actions: health.into_iter().map(standing).collect(),
            not_understood: record.not_understood,
            not_allowed: record.not_allowed,
            over: record.heard_over.iter().map(|one| one.as_str().to_owned()).collect(),
            presence: presence.as_str().to_owned(),
            anonymous: record.proof == Proof::Nothing,
            proof,
            slots: record.slots,
            in_flight,
            refused,
            first_at: record.first_at,
            last_at: record.last_at,
            waiting,
        };
        Self {
            name: record.node.to_string(),
            provider: Self::ITSELF.into(),
            capacity: Default::default(),
            labels: record.labels,
            layer: record.layer,
            answers: presence == Presence::Registered,
            note: None,
            wish: Wish::Open,
            offered_at: None,
            workers: Vec::new(),
            runs: Some(runs),
        }
    }
}

impl From<Device> for DeviceView {
    fn from(device: Device) -> Self {
        Self {
            name: device.name,
            node: device.node.to_string(),
            requests: device.may_request,
            publish: device.topics.publish,
            subscribe: device.topics.subscribe,
            may: device.warrant.allowance.clone().into(),
            created_at: device.created_at,
            created_by: device.created_by,
        }
    }
}

impl From<Tossed> for RubbishView {
    fn from(tossed: Tossed) -> Self {
        let Tossed { at, place, who, reason, body } = tossed;
        Self { at, place, who, reason, body: String::from_utf8_lossy(&body).into_owned() }
    }
}
