//! How long events wait at a host, by its load: the queueing estimate.
//!
//! Two terms. *By chance*: events that come at random to `c` cores, each `s` seconds of work, wait `C(c, a) s / (c - a)` on
//! average, where `a` is the load in cores and `C` is Erlang's. *By backlog*: what lies there already, `q` seconds of work for
//! all cores, grows or shrinks by `a/c - 1` each second; over the time looked ahead the mean of `max(0, q + (a/c - 1) t)`.

/// A host as the estimate sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// More than none.
    pub cores: f64,
    /// Cores that would be busy if all were done that comes.
    pub load: f64,
    /// Core-seconds of work that lie there.
    pub backlog: f64,
    /// Seconds of work in an event.
    pub service: f64,
}

/// Where the first term stops growing: beyond, the second one speaks.
const LOAD_MAX: f64 = 0.98;

impl Line {
    /// Seconds that an event waits, on average over the next `ahead` seconds.
    pub fn wait(&self, ahead: f64) -> f64 {
        let cores = self.cores;
        let part = (self.load / cores).min(LOAD_MAX);
        // A share of a core is one that is slower.
        let servers = cores.round().max(1.0);
        let service = self.service * servers / cores;
        let chance = erlang_c(servers as u32, part * servers) * service / (servers * (1.0 - part));
        chance + mean_backlog(self.backlog / cores, self.load / cores - 1.0, ahead)
    }
}

/// The probability that an event finds all cores busy.
pub fn erlang_c(cores: u32, load: f64) -> f64 {
    // By the recursion of Erlang's B, which never overflows.
    let blocked = (1..=cores).fold(1.0, |blocked, core| load * blocked / (f64::from(core) + load * blocked));
    let part = load / f64::from(cores.max(1));
    (blocked / (1.0 - part * (1.0 - blocked))).clamp(0.0, 1.0)
}

/// The mean over `[0, ahead]` of `max(0, begin + growth t)`.
fn mean_backlog(begin: f64, growth: f64, ahead: f64) -> f64 {
    if ahead <= 0.0 {
        return begin;
    }
    let end = begin + growth * ahead;
    if end >= 0.0 {
        return (begin + end) / 2.0;
    }
    begin / 2.0 * (begin / -growth) / ahead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erlang_is_as_in_the_tables() {
        assert!((erlang_c(1, 0.5) - 0.5).abs() < 1e-12);
        assert!((erlang_c(2, 1.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(4, 3.0) - 0.509_433_962).abs() < 1e-6);
    }

    #[test]
    fn a_host_that_can_do_it_all_keeps_nobody_waiting_and_one_that_cannot_ever_longer() {
        let line = |load| Line { cores: 4.0, load, backlog: 0.0, service: 0.002 };
        assert!(line(1.0).wait(15.0) < 0.000_1);
        assert!(line(3.8).wait(15.0) < 0.015);
        // A tenth too much for 15 seconds: 1.5 s of backlog at the end.
        assert!((line(4.4).wait(15.0) - 0.75).abs() < 0.05);
    }

    #[test]
    fn a_fifth_of_a_core_is_a_core_that_is_five_times_as_slow() {
        let fifth = Line { cores: 0.2, load: 0.1, backlog: 0.04, service: 0.002 };
        let slow = Line { cores: 1.0, load: 0.5, backlog: 0.2, service: 0.01 };
        assert!((fifth.wait(15.0) - slow.wait(15.0)).abs() < 1e-9);
    }

    #[test]
    fn a_backlog_shrinks_where_there_is_room() {
        let line = Line { cores: 4.0, load: 2.0, backlog: 8.0, service: 0.002 };
        // Two seconds at first, gone after four; of fifteen.
        assert!((line.wait(15.0) - 2.0 / 2.0 * 4.0 / 15.0).abs() < 0.01);
    }
}
