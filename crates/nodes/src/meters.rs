//! What is measured of nodes.

use metrics::{counter, gauge};
use mutirao_core::meters::{Kind, Meter};

use crate::preference::Protocol;
use crate::registry::Refused;

const NODES: &str = "mutirao_nodes";
const REGISTRATIONS: &str = "mutirao_nodes_registrations_total";
const REFUSED: &str = "mutirao_nodes_refused_total";
const RUBBISH: &str = "mutirao_nodes_rubbish_total";
const SENT: &str = "mutirao_nodes_messages_sent_total";
const NOT_SENT: &str = "mutirao_nodes_messages_not_sent_total";
const RESULTS: &str = "mutirao_nodes_results_total";
const OUT: &str = "mutirao_nodes_tasks_out";
const MQTT_CONNECTED: &str = "mutirao_mqtt_connected";
const MQTT_WAITING: &str = "mutirao_mqtt_waiting_bytes";

/// The texts are those of the table in docs/operations.md.
pub const METERS: &[Meter] = &[
    Meter {
        name: NODES,
        kind: Kind::Gauge,
        labels: &["presence"],
        help: "Nodes that run actions, as this manager knows them: registered, unconfirmed since its start, or away.",
    },
    Meter { name: REGISTRATIONS, kind: Kind::Counter, labels: &[], help: "Registrations of nodes that were taken." },
    Meter {
        name: REFUSED,
        kind: Kind::Counter,
        labels: &["reason"],
        help: "What nodes said and this manager refused: a stolen id, a flood, an answer for another's task, and so on.",
    },
    Meter {
        name: RUBBISH,
        kind: Kind::Counter,
        labels: &[],
        help: "What was received from nodes and could not be worked with; `mutirao node rubbish` shows the newest.",
    },
    Meter {
        name: SENT,
        kind: Kind::Counter,
        labels: &["over"],
        help: "Messages with a task that were sent to nodes: here, amqp, mqtt or http.",
    },
    Meter {
        name: NOT_SENT,
        kind: Kind::Counter,
        labels: &["over"],
        help: "Messages with a task that could not be sent that way; the next was tried.",
    },
    Meter {
        name: RESULTS,
        kind: Kind::Counter,
        labels: &["over"],
        help: "Results that nodes gave back and that were taken.",
    },
    Meter { name: OUT, kind: Kind::Gauge, labels: &[], help: "Tasks that nodes were given and that have not ended." },
    Meter {
        name: MQTT_CONNECTED,
        kind: Kind::Gauge,
        labels: &[],
        help: "Clients that are connected to this manager's own MQTT listener.",
    },
    Meter {
        name: MQTT_WAITING,
        kind: Kind::Gauge,
        labels: &[],
        help: "Bytes that wait there for clients, those that are away included.",
    },
];

/// Every series is there from the start, at zero: one that appears with its first event hides that event from whoever
/// looks at differences.
pub fn begin() {
    for why in Refused::ALL {
        counter!(REFUSED, "reason" => why.as_str()).increment(0);
    }
    for over in [Protocol::Here, Protocol::Amqp, Protocol::Mqtt, Protocol::Http] {
        for name in [SENT, NOT_SENT, RESULTS] {
            counter!(name, "over" => over.as_str()).increment(0);
        }
    }
    standing(Standing::default());
}

pub fn registered() {
    counter!(REGISTRATIONS).increment(1);
}

pub fn refused(why: Refused) {
    counter!(REFUSED, "reason" => why.as_str()).increment(1);
}

pub fn rubbish() {
    counter!(RUBBISH).increment(1);
}

pub fn sent(over: Protocol) {
    counter!(SENT, "over" => over.as_str()).increment(1);
}

pub fn not_sent(over: Protocol) {
    counter!(NOT_SENT, "over" => over.as_str()).increment(1);
}

pub fn result(over: Protocol) {
    counter!(RESULTS, "over" => over.as_str()).increment(1);
}

/// How many nodes are what, and how many tasks they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub registered: usize,
    pub unconfirmed: usize,
    pub away: usize,
    pub out: usize,
}

pub fn standing(standing: Standing) {
    let Standing { registered, unconfirmed, away, out } = standing;
    gauge!(NODES, "presence" => "registered").set(registered as f64);
    gauge!(NODES, "presence" => "unconfirmed").set(unconfirmed as f64);
    gauge!(NODES, "presence" => "away").set(away as f64);
    gauge!(OUT).set(out as f64);
}

pub fn mqtt(connected: usize, waiting_bytes: usize) {
    gauge!(MQTT_CONNECTED).set(connected as f64);
    gauge!(MQTT_WAITING).set(waiting_bytes as f64);
}
