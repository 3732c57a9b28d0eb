//! Whose turn it is: checks that wait, by the host that they ask, one of each host in turn, and no more than so many of one
//! host under way at once. So a host that never answers holds up those who ask it, and nobody else.
//!
//! Pure: no clock, no sockets.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Checks of one host that wait. Those beyond are not made: they would come too late anyhow.
pub const HOST_WAITING_MAX: usize = 5_000;

struct Lane<T> {
    waiting: VecDeque<T>,
    under_way: usize,
    /// Whether it stands in line for its turn.
    in_line: bool,
}

pub struct Hosts<T> {
    host_max: usize,
    lanes: HashMap<Arc<str>, Lane<T>>,
    line: VecDeque<Arc<str>>,
    waiting: usize,
    under_way: usize,
}

impl<T> Hosts<T> {
    /// `host_max`: of one host under way at once.
    pub fn new(host_max: usize) -> Self {
        Self { host_max: host_max.max(1), lanes: HashMap::new(), line: VecDeque::new(), waiting: 0, under_way: 0 }
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Gives it back when too many wait for this host already.
    pub fn push(&mut self, host: &str, check: T) -> Result<(), T> {
        let key = self.lanes.get_key_value(host).map_or_else(|| host.into(), |(key, _)| key.clone());
        let lane = self.lanes.entry(key.clone()).or_insert_with(|| Lane {
            waiting: VecDeque::new(),
            under_way: 0,
            in_line: false,
        });
        if lane.waiting.len() >= HOST_WAITING_MAX {
            return Err(check);
        }
        lane.waiting.push_back(check);
        self.waiting += 1;
        if !lane.in_line && lane.under_way < self.host_max {
            lane.in_line = true;
            self.line.push_back(key);
        }
        Ok(())
    }

    /// The next to be under way, if there may be one more. To be followed by [`done`](Self::done) of its host.
    pub fn next(&mut self, limit: usize) -> Option<(Arc<str>, T)> {
        if self.under_way >= limit {
            return None;
        }
        let host = self.line.pop_front()?;
        let lane = self.lanes.get_mut(&host)?;
        lane.in_line = false;
        let check = lane.waiting.pop_front()?;
        lane.under_way += 1;
        self.waiting -= 1;
        self.under_way += 1;
        if !lane.waiting.is_empty() && lane.under_way < self.host_max {
            lane.in_line = true;
            self.line.push_back(host.clone());
        }
        Some((host, check))
    }

    pub fn done(&mut self, host: &Arc<str>) {
        let Some(lane) = self.lanes.get_mut(host) else { return };
        lane.under_way = lane.under_way.saturating_sub(1);
        self.under_way = self.under_way.saturating_sub(1);
        if lane.waiting.is_empty() {
            if lane.under_way == 0 {
                self.lanes.remove(host);
            }
        } else if !lane.in_line {
            lane.in_line = true;
            self.line.push_back(host.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hosts_take_turns_and_one_that_never_answers_holds_up_nobody_else() {
        let mut hosts = Hosts::new(2);
        for n in 0..100 {
            hosts.push("slow", n).unwrap();
        }
        for n in 0..4 {
            hosts.push("fast", n).unwrap();
        }
        let mut begun = Vec::new();
        while let Some((host, _)) = hosts.next(1_000) {
            if &*host == "fast" {
                hosts.done(&host);
            }
            begun.push(host.to_string());
        }
        assert_eq!(begun, ["slow", "fast", "slow", "fast", "fast", "fast"]);
        assert_eq!((hosts.under_way(), hosts.waiting()), (2, 98));
    }

    #[test]
    fn what_waits_for_one_host_is_bounded() {
        let mut hosts = Hosts::new(1);
        let taken = (0..HOST_WAITING_MAX + 7).filter(|n| hosts.push("a", *n).is_ok()).count();
        assert_eq!((taken, hosts.waiting()), (HOST_WAITING_MAX, HOST_WAITING_MAX));
    }

    proptest! {
        #[test]
        fn none_is_lost_none_is_doubled_and_the_bounds_hold(
            steps in prop::collection::vec((0..4u8, 0..5u8), 1..300), host_max in 1..4usize, limit in 1..8usize
        ) {
            let mut hosts = Hosts::new(host_max);
            let (mut under_way, mut pushed, mut begun) = (Vec::<Arc<str>>::new(), 0u32, Vec::new());
            for (deed, n) in steps {
                match deed {
                    0 | 1 => {
                        let taken = hosts.push(&format!("h{n}"), pushed);
                        prop_assert!(taken.is_ok());
                        pushed += 1;
                    }
                    2 => if let Some((host, check)) = hosts.next(limit) {
                        under_way.push(host);
                        begun.push(check);
                    },
                    _ => if !under_way.is_empty() {
                        let host = under_way.remove(n as usize % under_way.len());
                        hosts.done(&host);
                    },
                }
                prop_assert!(under_way.len() <= limit && hosts.under_way() == under_way.len());
                for host in &under_way {
                    prop_assert!(under_way.iter().filter(|other| *other == host).count() <= host_max);
                }
            }
            loop {
                while let Some((host, check)) = hosts.next(limit) {
                    under_way.push(host);
                    begun.push(check);
                }
                let Some(host) = under_way.pop() else { break };
                hosts.done(&host);
            }
            begun.sort_unstable();
            prop_assert_eq!(begun, (0..pushed).collect::<Vec<_>>());
            prop_assert!(hosts.lanes.is_empty() && hosts.line.is_empty());
        }
    }
}
