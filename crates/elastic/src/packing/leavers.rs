//! Who goes when there are too many: first those who are not there yet, then the idle, then the busy with the least to
//! finish. Among equals, from the node that holds the fewest, so that nodes become empty and can be given back; then the one
//! idle longest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::WorkerId;

use super::NodeName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub worker: WorkerId,
    pub node: Option<NodeName>,
    pub doing: Doing,
}

/// In the order of leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    NotYetThere,
    Idle { for_: Duration },
    Busy { tasks: u32 },
}

impl Doing {
    /// What going costs: nothing, nothing, or waiting for that many tasks.
    fn rank(self) -> (u8, u32) {
        match self {
            Doing::NotYetThere => (0, 0),
            Doing::Idle { .. } => (1, 0),
            Doing::Busy { tasks } => (2, tasks),
        }
    }

    fn idle_for(self) -> Duration {
        match self {
            Doing::Idle { for_ } => for_,
            Doing::NotYetThere | Doing::Busy { .. } => Duration::ZERO,
        }
    }
}

/// `nodes`: the node of each worker there is, candidate or not.
pub fn leavers<'a>(
    mut candidates: Vec<Candidate>,
    nodes: impl Iterator<Item = &'a NodeName>,
    count: usize,
) -> Vec<WorkerId> {
    let mut held: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for node in nodes {
        *held.entry(node).or_default() += 1;
    }
    candidates.sort_by_cached_key(|candidate| {
        let neighbours = candidate.node.as_ref().and_then(|node| held.get(node)).copied().unwrap_or(0);
        let Candidate { worker, node, doing } = candidate;
        // Those of one node together: half-emptying two nodes frees neither.
        (doing.rank(), neighbours, node.clone(), Reverse(doing.idle_for()), worker.clone())
    });
    candidates.into_iter().take(count).map(|candidate| candidate.worker).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(worker: &str, node: &str, doing: Doing) -> Candidate {
        Candidate { worker: WorkerId(worker.into()), node: Some(NodeName(node.into())), doing }
    }

    fn idle(s: u64) -> Doing {
        Doing::Idle { for_: Duration::from_secs(s) }
    }

    fn names(candidates: Vec<Candidate>, count: usize) -> Vec<String> {
        let nodes: Vec<NodeName> = candidates.iter().filter_map(|c| c.node.clone()).collect();
        leavers(candidates, nodes.iter(), count).into_iter().map(|worker| worker.0).collect()
    }

    #[test]
    fn the_idle_go_before_the_busy_and_the_unborn_before_all() {
        let all = vec![
            candidate("busy3", "a", Doing::Busy { tasks: 3 }),
            candidate("busy1", "a", Doing::Busy { tasks: 1 }),
            candidate("idle", "a", idle(5)),
            candidate("old", "a", idle(500)),
            candidate("unborn", "a", Doing::NotYetThere),
        ];
        assert_eq!(names(all, 4), ["unborn", "old", "idle", "busy1"]);
    }

    #[test]
    fn the_emptiest_node_is_emptied_first() {
        let all = vec![
            candidate("a1", "a", idle(900)),
            candidate("a2", "a", idle(900)),
            candidate("a3", "a", idle(900)),
            candidate("b1", "b", idle(10)),
            candidate("c1", "c", idle(20)),
            candidate("c2", "c", idle(30)),
        ];
        assert_eq!(names(all, 3), ["b1", "c2", "c1"]);
    }
}
