//! Tasks that do nothing: what is left is what carrying them costs.

use std::path::Path;

use super::{Ground, Options, WORKERS, down, on};
use crate::experiments::overhead::{middle, one_run};
use crate::peers::{self, Peer, Peers};
use crate::report::{Goal, Report};
use crate::services::Backend;

/// Ours are more, so that they last as long: the peers are slower by an order.
const OURS: u32 = 10;
const TIMES_CELERY: Goal = Goal::AtLeast(8.0);

pub fn measure(options: &Options, ground: &Ground, report: &mut Report) -> anyhow::Result<()> {
    let peers = Peers::prepare(Path::new(peers::FOLDER))?;
    let mut distributed = 0.0;
    for backend in [Backend::Embedded, Backend::Distributed] {
        let up = ground.up(backend, WORKERS)?;
        let run = |_| one_run(&up, options.tasks * OURS);
        let rate = middle((0..options.runs).map(run).collect::<anyhow::Result<_>>()?);
        down(up);
        report.row(format!("no-op, mutirao, {}", on(backend)), rate, "tasks/s");
        if backend == Backend::Distributed {
            distributed = rate;
        }
    }
    for peer in Peer::ALL {
        let run = |_| peers.rate(peer, ground.servers.rabbitmq.url(), options.tasks, WORKERS as usize);
        let rate = middle((0..options.runs).map(run).collect::<anyhow::Result<_>>()?);
        report.row(format!("no-op, {}", peer.name()), rate, "tasks/s");
        if matches!(peer, Peer::Celery) {
            report.goal("distributed, times Celery", distributed / rate, "×", TIMES_CELERY);
        }
    }
    Ok(())
}
