//! Why an elastic queue has as many workers as it has, and what would give it more: from facts to words.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::quantity::Span;
use mutirao_core::{Clock, Mono, QueueName};
use mutirao_elastic::measure::Workers;
use mutirao_elastic::protocol::{GROUP, Wish};
use mutirao_elastic::view::NodeView;
use mutirao_queues::Reason;
use mutirao_shards::store::{LeaseRow, Mark};
use parking_lot::Mutex;

use crate::store::{Decided, SHARD};

const FEEL_EVERY: Duration = Duration::from_secs(5);

/// Whether somebody has workers started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acting {
    Yes,
    Nobody,
    /// Somebody has the lease, and has not renewed it for longer than it lasts.
    Silent(Duration),
}

/// The life of the lease, as this process sees it.
#[derive(Debug, Default)]
pub struct Pulse(Option<(Mark, Mono)>);

impl Pulse {
    pub fn feel(&mut self, lease: Option<&LeaseRow>, now: Mono) -> Acting {
        let Some(row) = lease.filter(|row| row.owner.is_some()) else {
            self.0 = None;
            return Acting::Nobody;
        };
        let since = match self.0 {
            Some((mark, since)) if mark == row.mark => since,
            _ => now,
        };
        self.0 = Some((row.mark, since));
        let silent = now.since(since);
        if silent > row.lease { Acting::Silent(silent) } else { Acting::Yes }
    }
}

/// Feels it now and then, for as long as it is not dropped: who asks later hears how long somebody has been silent.
pub async fn feel(leases: mutirao_shards::Shared, pulse: Arc<Mutex<Pulse>>, clock: Arc<dyn Clock>) {
    loop {
        if let Ok(rows) = leases.leases(GROUP).await {
            pulse.lock().feel(rows.iter().find(|row| row.shard == SHARD), clock.monotonic());
        }
        clock.sleep(FEEL_EVERY).await;
    }
}

/// What is known of one queue's workers.
pub struct Standing<'a> {
    pub queue: &'a QueueName,
    pub acting: Acting,
    pub decided: Option<&'a Decided>,
    pub max: Option<u32>,
    pub counts: Workers,
    pub nodes: &'a [NodeView],
}

/// Of how many nodes it is said why they take nobody.
const NOTED_MAX: usize = 5;

fn because(why: impl Into<String>, remedy: impl Into<String>) -> Reason {
    Reason { why: why.into(), remedy: Some(remedy.into()) }
}

impl Standing<'_> {
    /// The weightiest first.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self.nobody_acts().into_iter().collect();
        if let Some(trouble) = self.decided.and_then(|decided| decided.trouble.as_ref()) {
            reasons.push(because(
                format!("the provider is in trouble: {trouble}"),
                "mend what it names; it is tried again by itself, and `mutirao elastic status` shows how it goes",
            ));
        } else if reasons.is_empty() {
            reasons.extend(self.to_come());
        }
        let Workers { creating, .. } = self.counts;
        if creating > 0 {
            reasons.push(because(
                format!("{creating} workers are being created"),
                "wait; one that does not report in time is given up, and another made",
            ));
        }
        reasons.extend(self.at_the_ceiling());
        reasons.extend(self.last_decision());
        reasons
    }

    fn wanted(&self) -> u32 {
        self.decided.map_or(0, |decided| decided.decision.wanted)
    }

    fn nobody_acts(&self) -> Option<Reason> {
        let silent = match self.acting {
            Acting::Yes => return None,
            Acting::Nobody => String::new(),
            Acting::Silent(silent) => {
                format!(": the last one has been silent for {}", Span(Duration::from_secs(silent.as_secs())))
            }
        };
        Some(because(
            format!("no resource manager acts, so nobody starts workers of queue {}{silent}", self.queue),
            "`mutirao up` runs one (unless elastic.nodes is 0); `mutirao elastic invite` lets in one that runs alone",
        ))
    }

    /// Why some that are wanted are not there, nor on their way.
    fn to_come(&self) -> Option<Reason> {
        let missing = self.wanted().checked_sub(self.counts.standing()).filter(|missing| *missing > 0)?;
        let named = |is: &dyn Fn(&NodeView) -> bool| -> Vec<String> {
            self.nodes.iter().filter(|node| is(node)).map(|node| node.name.clone()).collect()
        };
        let there = |node: &NodeView| node.offered_at.is_some();
        let shut = named(&|node| there(node) && node.wish != Wish::Open);
        let silent = named(&|node| there(node) && node.wish == Wish::Open && !node.answers && node.note.is_none());
        let noted = self.nodes.iter().filter(|node| there(node) && !node.answers);
        let noted: Vec<String> =
            noted.filter_map(|node| Some(format!("{}: {}", node.name, node.note.as_ref()?))).collect();
        let gone = named(&|node| !there(node));
        let open = named(&|node| there(node) && node.wish == Wish::Open && node.answers);
        let more = format!("{missing} more workers are wanted");
        Some(if let Some(first) = shut.first() {
            let how = format!("{more}, and no workers are put on {} (cordoned or drained)", shut.join(", "));
            because(how, format!("`mutirao node uncordon {first}` lets it take workers again"))
        } else if let Some(first) = silent.first() {
            let how = format!("{more}, and {} does not answer", silent.join(", "));
            because(how, format!("look after its agent; `mutirao node show {first}` says since when"))
        } else if open.is_empty() && !noted.is_empty() {
            let some: Vec<&str> = noted.iter().map(String::as_str).take(NOTED_MAX).collect();
            let rest = if noted.len() > NOTED_MAX { "; …" } else { "" };
            because(
                format!("{more}, and no node can take them yet: {}{rest}", some.join("; ")),
                "wait for those that are being started; mend what is said of the others: `mutirao node list` shows them",
            )
        } else if open.is_empty() {
            let how = match gone.is_empty() {
                true => format!("{more}, and there is no node to put them on"),
                false => format!("{more}, and {} is gone", gone.join(", ")),
            };
            because(how, "start the resource manager that offers it, or one with elastic.nodes above 0")
        } else {
            because(
                format!("{more} than are there or on their way"),
                "wait; if they do not come, the nodes are full: `mutirao node list` shows them, elastic.nodes and \
                 elastic.cpus make more room",
            )
        })
    }

    fn at_the_ceiling(&self) -> Option<Reason> {
        let max = self.max.filter(|max| *max > 0 && self.wanted() >= *max)?;
        Some(because(
            format!("it has, or is to have, as many workers as it may: {max}"),
            format!("`mutirao queue edit {} --workers-max N` lets it have more", self.queue),
        ))
    }

    fn last_decision(&self) -> Option<Reason> {
        let Decided { decision, at, .. } = self.decided?;
        Some(because(
            format!("{} workers are wanted, decided at {at}: {}", decision.wanted, decision.because),
            format!(
                "`mutirao elastic history --queue {}` shows the changes; `elastic:` of the queue says how many",
                self.queue
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::{ShardId, Timestamp};
    use mutirao_elastic::decide::Because;
    use mutirao_elastic::{Decision, Removal, State};
    use mutirao_shards::MemberId;
    use serde_json::json;

    use super::*;

    fn node(rest: serde_json::Value) -> NodeView {
        let mut node = json!({ "name": "n1", "provider": "local", "capacity": {}, "labels": {}, "layer": "cloud",
            "answers": true, "wish": "open", "offered_at": 0, "workers": [] });
        let fields = rest.as_object().unwrap().clone();
        node.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(node).unwrap()
    }

    fn decided(wanted: u32) -> Decided {
        let because = Because(vec!["2 ready tasks need 2".into()]);
        let decision = Decision { was: 0, wanted, removal: Removal::Any, because };
        Decided { queue: queue(), state: State::default(), decision, trouble: None, at: Timestamp(0) }
    }

    fn queue() -> QueueName {
        "gpu".parse().unwrap()
    }

    fn said(acting: Acting, wanted: u32, counts: Workers, nodes: &[NodeView]) -> String {
        let (queue, decided) = (queue(), decided(wanted));
        let standing = Standing { queue: &queue, acting, decided: Some(&decided), max: Some(4), counts, nodes };
        let lines = standing.reasons().into_iter().map(|reason| {
            format!("{} -> {}", reason.why, reason.remedy.expect("whatever is said comes with what would change it"))
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn whatever_keeps_workers_from_coming_is_named_with_what_lets_them_come() {
        let none = Workers::default();
        for (text, parts) in [
            (said(Acting::Nobody, 2, none, &[]), ["no resource manager acts", "mutirao up", "elastic invite"]),
            (
                said(Acting::Silent(Duration::from_secs(70)), 2, none, &[]),
                ["no resource manager acts", "silent for 1m", "elastic invite"],
            ),
            (said(Acting::Yes, 2, none, &[node(json!({"wish": "cordoned"}))]), ["2 more", "n1", "node uncordon n1"]),
            (said(Acting::Yes, 2, none, &[node(json!({"answers": false}))]), ["2 more", "n1", "node show n1"]),
            (
                said(Acting::Yes, 2, none, &[node(json!({"answers": false, "note": "being started"}))]),
                ["2 more", "n1: being started", "node list"],
            ),
            (said(Acting::Yes, 2, none, &[node(json!({"offered_at": null}))]), ["2 more", "n1 is gone", "offers it"]),
            (said(Acting::Yes, 2, none, &[]), ["2 more", "no node", "elastic.nodes"]),
            (said(Acting::Yes, 2, none, &[node(json!({}))]), ["2 more", "node list", "history --queue gpu"]),
            (
                said(Acting::Yes, 2, Workers { creating: 2, ..none }, &[]),
                ["2 workers are being created", "given up", "2 workers are wanted"],
            ),
            (
                said(Acting::Yes, 4, Workers { running: 4, ..none }, &[]),
                ["as many workers as it may: 4", "queue edit gpu --workers-max", "history --queue gpu"],
            ),
        ] {
            parts.iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
        }
        let enough = said(Acting::Yes, 2, Workers { running: 2, ..none }, &[node(json!({"wish": "cordoned"}))]);
        assert!(!enough.contains("uncordon") && !enough.contains("may: 4"), "{enough}");
    }

    #[test]
    fn a_lease_that_is_not_renewed_for_longer_than_it_lasts_is_nobodys() {
        let at = |s| Mono(Duration::from_secs(s));
        let row = |beats| LeaseRow {
            shard: ShardId(0),
            owner: Some(MemberId("m".into())),
            mark: Mark { generation: 1, beats },
            lease: Duration::from_secs(10),
        };
        let mut pulse = Pulse::default();
        assert_eq!(pulse.feel(None, at(0)), Acting::Nobody);
        assert_eq!(pulse.feel(Some(&row(1)), at(0)), Acting::Yes);
        assert_eq!(pulse.feel(Some(&row(1)), at(10)), Acting::Yes);
        assert_eq!(pulse.feel(Some(&row(1)), at(11)), Acting::Silent(Duration::from_secs(11)));
        assert_eq!(pulse.feel(Some(&row(2)), at(12)), Acting::Yes);
        assert_eq!(pulse.feel(Some(&LeaseRow { owner: None, ..row(2) }), at(13)), Acting::Nobody);
    }
}
