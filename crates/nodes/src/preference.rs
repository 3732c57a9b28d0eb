//! Over which protocol a node is spoken to. The order is its layer's: devices at the edge by MQTT, then HTTP; the others by
//! AMQP, MQTT, HTTP. What fails gives way to the next at once, and what is measured to be much slower than another too.
//! Either is tried again after a while, for networks change.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use mutirao_core::Mono;
use serde::{Deserialize, Serialize};

use crate::Layer;
use crate::names::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// In the manager's own process.
    Here,
    Amqp,
    Mqtt,
    Http,
}

impl Protocol {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Amqp => "amqp",
            Self::Mqtt => "mqtt",
            Self::Http => "http",
        }
    }
}

/// The order in which a layer's nodes are spoken to.
pub fn order_of(layer: Layer) -> &'static [Protocol] {
    match layer {
        Layer::Edge => &[Protocol::Mqtt, Protocol::Http],
        Layer::Fog | Layer::Cloud => &[Protocol::Amqp, Protocol::Mqtt, Protocol::Http],
    }
}

/// So many failures in a row, and the next goes first.
const FAILURES: u32 = 2;
/// For so long, twice as long each further time.
const SHUNNED: Duration = Duration::from_secs(30);
const SHUNNED_MAX: Duration = Duration::from_secs(300);
/// Measured often enough to be compared.
const SAMPLES: u32 = 5;
/// Slower than this, one that was never measured is worth a try.
const SLOW: Duration = Duration::from_secs(1);
/// What was measured is forgotten after this.
const STALE: Duration = Duration::from_secs(60);
/// A difference below this is not worth a change.
const MARGIN: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fails: u32,
    shunned: u32,
    shunned_until: Mono,
    samples: u32,
    took: Duration,
    at: Mono,
}

/// How sending went.
#[derive(Clone, Copy, Debug)]
pub enum Sent {
    /// And was answered after this.
    Answered(Duration),
    Failed,
}

#[derive(Debug, Default)]
pub struct Preferences(HashMap<(NodeId, Protocol), Seen>);

impl Preferences {
    /// Over which to try, in turn; `can`: those that the node speaks.
    pub fn order(&self, node: &NodeId, layer: Layer, can: &BTreeSet<Protocol>, now: Mono) -> Vec<Protocol> {
        let mut order: Vec<Protocol> = order_of(layer).iter().copied().filter(|one| can.contains(one)).collect();
        // Whoever knows only what its layer does not use is spoken to in that.
        order.extend(can.iter().copied().filter(|one| order_of(layer).iter().all(|used| used != one)));
        let seen = |one: &Protocol| self.0.get(&(node.clone(), *one)).copied().unwrap_or_default();
        for i in (0..order.len().saturating_sub(1)).rev() {
            let mut at = i;
            while at + 1 < order.len() && yields(&seen(&order[at]), &seen(&order[at + 1]), now) {
                order.swap(at, at + 1);
                at += 1;
            }
        }
        // A stable sort: those that fail go behind, in their order.
        order.sort_by_key(|one| now < seen(one).shunned_until);
        order
    }

    pub fn heard(&mut self, node: &NodeId, protocol: Protocol, sent: Sent, now: Mono) {
        let seen = self.0.entry((node.clone(), protocol)).or_default();
        match sent {
            Sent::Answered(took) => {
                let fresh = seen.samples > 0 && now.since(seen.at) < STALE;
                seen.samples = if fresh { seen.samples.saturating_add(1) } else { 1 };
                seen.took = if fresh { seen.took.mul_f64(0.7) + took.mul_f64(0.3) } else { took };
                seen.at = now;
                (seen.fails, seen.shunned, seen.shunned_until) = (0, 0, Mono::default());
            }
            Sent::Failed => {
                seen.fails = seen.fails.saturating_add(1);
                if seen.fails >= FAILURES && now >= seen.shunned_until {
                    seen.shunned_until = now.plus(SHUNNED.saturating_mul(1 << seen.shunned.min(8)).min(SHUNNED_MAX));
                    seen.shunned = seen.shunned.saturating_add(1);
                }
            }
        }
    }

    /// It is somewhere else now, or gone.
    pub fn forget(&mut self, node: &NodeId) {
        self.0.retain(|(known, _), _| known != node);
    }
}

fn yields(first: &Seen, second: &Seen, now: Mono) -> bool {
    let measured = |seen: &Seen| seen.samples >= SAMPLES && now.since(seen.at) < STALE;
    if !measured(first) || now < second.shunned_until {
        return false;
    }
    match measured(second) {
        true => first.took > second.took * 2 + MARGIN,
        false => first.took > SLOW,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Protocol::{Amqp, Http, Mqtt};
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(Duration::from_millis(ms))
    }

    fn all() -> BTreeSet<Protocol> {
        [Amqp, Mqtt, Http].into()
    }

    fn node() -> NodeId {
        "n".parse().unwrap()
    }

    fn answered(preferences: &mut Preferences, protocol: Protocol, took_ms: u64, times: u32, now: Mono) {
        let took = Duration::from_millis(took_ms);
        (0..times).for_each(|_| preferences.heard(&node(), protocol, Sent::Answered(took), now));
    }

    #[test]
    fn each_layer_has_the_order_of_the_table_and_only_what_a_node_speaks_is_tried() {
        let preferences = Preferences::default();
        let order = |layer, can: &[Protocol]| preferences.order(&node(), layer, &can.iter().copied().collect(), at(0));
        assert_eq!(order(Layer::Edge, &[Mqtt, Http]), [Mqtt, Http]);
        assert_eq!(order(Layer::Fog, &[Amqp, Mqtt, Http]), [Amqp, Mqtt, Http]);
        assert_eq!(order(Layer::Cloud, &[Amqp, Mqtt, Http]), [Amqp, Mqtt, Http]);
        assert_eq!(order(Layer::Cloud, &[Http]), [Http]);
        assert_eq!(order(Layer::Edge, &[Amqp]), [Amqp], "nothing else would reach it");
        assert_eq!(order(Layer::Edge, &[]), []);
    }

    #[test]
    fn one_that_fails_gives_way_and_is_tried_again_later() {
        let mut preferences = Preferences::default();
        let order = |preferences: &Preferences, now| preferences.order(&node(), Layer::Fog, &all(), now);
        preferences.heard(&node(), Amqp, Sent::Failed, at(0));
        assert_eq!(order(&preferences, at(0))[0], Amqp, "once is no habit");
        preferences.heard(&node(), Amqp, Sent::Failed, at(0));
        assert_eq!(order(&preferences, at(29_999)), [Mqtt, Http, Amqp], "last, but still there");
        assert_eq!(order(&preferences, at(30_000))[0], Amqp);
        preferences.heard(&node(), Amqp, Sent::Failed, at(30_000));
        assert_eq!(order(&preferences, at(89_999))[0], Mqtt, "longer each time");
        answered(&mut preferences, Amqp, 1, 1, at(89_999));
        assert_eq!(order(&preferences, at(89_999))[0], Amqp, "and well as soon as it answers");
    }

    #[test]
    fn one_measured_to_be_much_slower_gives_way_until_that_is_old_news() {
        let mut preferences = Preferences::default();
        let order = |preferences: &Preferences, now| preferences.order(&node(), Layer::Fog, &all(), now);
        answered(&mut preferences, Amqp, 300, SAMPLES, at(0));
        answered(&mut preferences, Mqtt, 10, SAMPLES - 1, at(0));
        assert_eq!(order(&preferences, at(0)), [Amqp, Mqtt, Http], "the other was not measured often enough");
        answered(&mut preferences, Mqtt, 10, 1, at(0));
        assert_eq!(order(&preferences, at(0)), [Mqtt, Amqp, Http]);
        assert_eq!(order(&preferences, at(60_000)), [Amqp, Mqtt, Http]);
        answered(&mut preferences, Http, 1, SAMPLES, at(0));
        assert_eq!(order(&preferences, at(0)), [Mqtt, Http, Amqp], "nine milliseconds are not worth a change");
    }

    #[test]
    fn one_that_takes_seconds_gives_way_to_one_never_tried() {
        let mut preferences = Preferences::default();
        answered(&mut preferences, Mqtt, 2_000, SAMPLES, at(0));
        let can = [Mqtt, Http].into();
        assert_eq!(preferences.order(&node(), Layer::Edge, &can, at(0)), [Http, Mqtt]);
        assert_eq!(preferences.order(&"other".parse().unwrap(), Layer::Edge, &can, at(0)), [Mqtt, Http]);
    }

    proptest! {
        #[test]
        fn whatever_was_measured_each_that_it_speaks_is_tried_once(
            events in prop::collection::vec((0usize..3, prop::option::of(0u64..5_000), 0u64..20_000), 0..60),
            can in prop::collection::btree_set(prop::sample::select(vec![Amqp, Mqtt, Http]), 0..3),
        ) {
            let mut preferences = Preferences::default();
            let mut now = at(0);
            for (which, took, wait) in events {
                now = now.plus(Duration::from_millis(wait));
                let sent = took.map_or(Sent::Failed, |ms| Sent::Answered(Duration::from_millis(ms)));
                preferences.heard(&node(), [Amqp, Mqtt, Http][which], sent, now);
                for layer in [Layer::Edge, Layer::Fog, Layer::Cloud] {
                    let order = preferences.order(&node(), layer, &can, now);
                    prop_assert_eq!(order.len(), can.len());
                    prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), can.clone());
                }
            }
        }
    }
}
