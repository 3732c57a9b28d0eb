//! What the CPU time of a run on several processes went to.

use std::time::Duration;

use mutirao_testkit::Installation;

use crate::proc;
use crate::report::Report;
use crate::services::Servers;

/// CPU time so far, by whose it is.
#[derive(Clone, Default)]
pub struct Ledger(Vec<(&'static str, Duration)>);

impl Ledger {
    /// What children of the workers cost is not in it: that is the tasks' own.
    pub fn now(up: &Installation, servers: Option<&Servers>) -> Self {
        let workers = up.worker_pids().iter().map(|pid| proc::cpu(*pid)).sum();
        let family = |pid: Option<u32>| pid.map_or(Duration::ZERO, proc::cpu_of_family);
        let mut all = vec![("manager process", proc::cpu(up.pid())), ("both worker processes", workers)];
        if let Some(servers) = servers {
            all.push(("RabbitMQ", family(servers.rabbitmq.pid())));
            all.push(("PostgreSQL", family(servers.postgres.pid())));
        }
        Self(all)
    }

    /// What was spent since an earlier look at the same processes.
    pub fn since(self, before: &Self) -> Self {
        let spent =
            |((who, now), (_, before)): ((&'static str, Duration), &(_, Duration))| (who, now.saturating_sub(*before));
        Self(self.0.into_iter().zip(&before.0).map(spent).collect())
    }

    pub fn plus(self, more: Self) -> Self {
        if self.0.is_empty() {
            return more;
        }
        let sum = |((who, one), (_, more)): ((&'static str, Duration), (_, Duration))| (who, one + more);
        Self(self.0.into_iter().zip(more.0).map(sum).collect())
    }

    pub fn tell(&self, tasks: f64, report: &mut Report) {
        for (who, spent) in &self.0 {
            report.row(format!("  CPU, {who}"), spent.as_secs_f64() * 1e6 / tasks, "µs/task");
        }
    }
}
