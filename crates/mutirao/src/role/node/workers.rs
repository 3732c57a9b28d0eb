//! A node of this machine that workers are put on, as the resource manager starts it. Asked to stop, it sends its workers home;
//! asked again, or after a while, or when nobody leads it any more, it hurries them. What is to take its time is asked for by
//! `mutirao node drain`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::{Clock, SystemClock};
use mutirao_elastic::packing::{Amounts, NodeName};
use mutirao_resource::local::wire::Words;
use mutirao_resource::local::{Agent, Haste};

use super::NodeArgs;
use crate::cli::Globals;
use crate::failure::Failure;
use crate::signals::Asked;
use crate::{logs, machine};

/// How long workers may take to finish when the node is asked to stop, and then to stop what they run.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const NOW_MAX: Duration = Duration::from_secs(20);

pub async fn run(globals: &Globals, args: NodeArgs, dir: &Path) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let mut asked = Asked::listen()?;
    let cpus = args.cpus.unwrap_or(Cpus { milli: machine::cpus().saturating_mul(1_000) });
    let memory = args.memory.unwrap_or_else(|| Bytes(machine::memory()));
    let words = Words {
        name: NodeName(args.name.unwrap_or_else(machine::host_name)),
        capacity: Amounts::of(cpus, memory),
        labels: args.labels.into_iter().flat_map(|labels| labels.0).collect(),
        layer: args.layer.0,
    };
    let dir = std::path::absolute(dir)?;
    let agent = Agent::open(dir, words, SystemClock::shared()).map_err(|error| Failure::failed(error.to_string()))?;
    let agent = Arc::new(agent);
    let heeding = async {
        asked.next().await;
        agent.leave(Haste::Drain);
        tokio::select! {
            () = asked.next() => {}
            () = SystemClock.sleep(DRAIN_MAX) => {}
            () = agent.alone() => {}
        }
        agent.leave(Haste::Now);
        tokio::select! {
            () = asked.next() => {}
            () = SystemClock.sleep(NOW_MAX) => {}
        }
        agent.leave(Haste::Kill);
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = agent.clone().serve() => {}
        () = heeding => {}
    }
    Ok(())
}
