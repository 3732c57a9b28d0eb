//! How long tasks wait with so many workers, and how many it takes that they wait no longer. Formulas, no state.

/// What is asked about: servers are tasks that can run at once; times are seconds.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// Tasks a second.
    pub rate: f64,
    /// What one takes.
    pub task_s: f64,
    pub wait_s: f64,
}

/// The fewest servers with which at most `late` of the tasks wait longer than they should, while they come at random at this
/// rate (Erlang's C, with an exponential tail). None while none come; `most` when no fewer will do.
pub fn servers(traffic: Traffic, late: f64, most: u32) -> u32 {
    let offered = traffic.rate * traffic.task_s;
    if offered <= 0.0 {
        return 0;
    }
    if offered >= f64::from(most) {
        return most;
    }
    // Erlang's B, from one server to the next.
    let mut blocked = 1.0;
    for n in 1..=most {
        let servers = f64::from(n);
        blocked = offered * blocked / (servers + offered * blocked);
        let spare = servers - offered;
        if spare <= 0.0 {
            continue;
        }
        let waits = servers * blocked / (servers - offered * (1.0 - blocked));
        if waits * (-spare * traffic.wait_s / traffic.task_s).exp() <= late {
            return n;
        }
    }
    most
}

/// Those who wait now, and what is there for them.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub ready: f64,
    pub running: f64,
    /// Servers of workers that have reported.
    pub there: f64,
    pub boot_s: f64,
}

impl Line {
    /// Servers that are still to come (those on their way included) so that everybody who waits begins in time, or when the
    /// first of them can be there. Each begins one task as it comes, and another whenever one ends.
    pub fn lacking(&self, traffic: Traffic) -> f64 {
        let Traffic { rate, task_s, wait_s } = traffic;
        let by = wait_s.max(self.boot_s);
        let due = self.ready + rate * (by - wait_s);
        let missing = due - self.idle() - self.there * by / task_s;
        if missing <= 0.0 { 0.0 } else { missing / (1.0 + (by - self.boot_s) / task_s) }
    }

    /// When the last of those who wait now begins, with so many more servers to come.
    pub fn last_begins_s(&self, to_come: f64, task_s: f64) -> f64 {
        let waiting = self.ready - self.idle();
        if waiting <= 0.0 {
            return 0.0;
        }
        let without = waiting * task_s / self.there;
        if without <= self.boot_s {
            return without;
        }
        let left = waiting - self.there * self.boot_s / task_s - to_come;
        self.boot_s + (left * task_s / (self.there + to_come)).max(0.0)
    }

    fn idle(&self) -> f64 {
        (self.there - self.running).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn traffic(rate: f64, task_s: f64, wait_s: f64) -> Traffic {
        Traffic { rate, task_s, wait_s }
    }

    #[test]
    fn known_values_of_erlang_come_out() {
        // Ten erlangs: 13 agents answer 80 % within 20 s of calls of 180 s (the textbook's example of a call centre).
        assert_eq!(servers(traffic(200.0 / 3_600.0, 180.0, 20.0), 0.2, 100), 14);
        assert_eq!(servers(traffic(0.5, 1.0, 0.0), 0.5, 100), 1, "one server, half busy, half of them wait");
        assert_eq!(servers(traffic(0.0, 60.0, 30.0), 0.05, 100), 0);
        assert_eq!(servers(traffic(1e9, 60.0, 30.0), 0.05, 100), 100);
    }

    #[test]
    fn short_tasks_share_what_comes_and_long_ones_get_one_each() {
        let line = Line { ready: 100.0, running: 0.0, there: 0.0, boot_s: 60.0 };
        assert_eq!(line.lacking(traffic(0.0, 10.0, 60.0)), 100.0, "no time is left once they are there");
        assert_eq!(line.lacking(traffic(0.0, 10.0, 90.0)), 25.0, "each begins four in half a minute");
        assert!(line.lacking(traffic(0.0, 3_600.0, 90.0)) > 99.0);
        let busy = Line { running: 20.0, there: 20.0, ..line };
        assert_eq!(busy.lacking(traffic(0.0, 10.0, 60.0)), 0.0, "those who are there are done with them first");
    }

    proptest! {
        #[test]
        fn with_those_to_come_the_last_begins_in_time(
            ready in 0.0f64..5_000.0, running in 0.0f64..200.0, idle in 0.0f64..50.0, task_s in 0.1f64..10_000.0,
            wait_s in 1.0f64..600.0, boot_s in 1.0f64..600.0
        ) {
            let line = Line { ready, running, there: running + idle, boot_s };
            let to_come = line.lacking(traffic(0.0, task_s, wait_s));
            prop_assert!(line.last_begins_s(to_come, task_s) <= wait_s.max(boot_s) * 1.001 + 0.001);
            prop_assert!(to_come <= ready, "never more than one for each");
        }

        #[test]
        fn more_load_or_less_patience_never_means_fewer(
            rate in 0.001f64..50.0, more in 0.0f64..10.0, task_s in 0.1f64..600.0, wait_s in 1.0f64..300.0
        ) {
            let few = servers(traffic(rate, task_s, wait_s), 0.05, 10_000);
            prop_assert!(servers(traffic(rate + more, task_s, wait_s), 0.05, 10_000) >= few);
            prop_assert!(servers(traffic(rate, task_s, wait_s / 2.0), 0.05, 10_000) >= few);
            prop_assert!(few == 10_000 || f64::from(few) > rate * task_s);
        }
    }
}
