//! Probes: real questions to services, and how they were answered, phase by phase.
//!
//! - [`check`] is what a user writes: one kind of check with its particulars.
//! - [`observation`] is what came of it: how far it got, how long each phase took, what was seen.
//! - [`reach`] finds and opens the way: names, addresses that may not be probed, connections, TLS.
//! - [`http`], [`tcp`] (which also looks at certificates), [`dns`], [`icmp`], [`exec`]: the kinds.
//!
//! A probe never panics, never outlives its deadline, and never reads more than it was allowed to, whatever the other side
//! does. It makes no judgement: whether what was seen is good is for whoever asked.
//!
//! Not here: when to probe, how many at once, conditions, history.

pub mod check;
pub mod dns;
pub mod exec;
pub mod http;
pub mod icmp;
mod idle;
pub mod observation;
pub mod reach;
pub mod tcp;

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;

pub use check::Check;
pub use observation::{Ended, Observation, Phase, Timings};
pub use reach::{Reach, Strangers};

/// What probes are made with, shared by all of them.
#[derive(Clone)]
pub struct Probes {
    reach: Reach,
    clock: Arc<dyn Clock>,
    kept: http::Kept,
}

impl Probes {
    pub fn new(reach: Reach, clock: Arc<dyn Clock>) -> Self {
        Self { reach, clock, kept: http::Kept::default() }
    }

    /// Asks once, within the deadline.
    pub async fn run(&self, check: &Check, within: Duration) -> Observation {
        let begin = self.clock.monotonic();
        let mut seen = observation::Watch::new(self.clock.clone());
        let asked = async {
            match check {
                Check::Http(http) => http::probe(http, &self.reach, &self.kept, &mut seen).await,
                Check::Tcp(tcp) => tcp::connect(tcp, &self.reach, &mut seen).await,
                Check::Dns(dns) => dns::ask(dns, &self.reach, &mut seen).await,
                Check::Icmp(icmp) => icmp::ping(icmp, &self.reach, &mut seen).await,
                Check::Exec(exec) => exec::run(exec, &mut seen).await,
                Check::Tls(tls) => tcp::certificate(tls, &self.reach, &mut seen).await,
            }
        };
        let ended = match self.clock.timeout(within, asked).await {
            Ok(Ok(())) => Ended::Answered,
            Ok(Err(fault)) => Ended::Failed { phase: seen.phase(), why: fault.to_string() },
            Err(_elapsed) => Ended::TimedOut { phase: seen.phase() },
        };
        seen.finish(ended, self.clock.monotonic().since(begin))
    }
}
