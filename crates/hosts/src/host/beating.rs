//! The loop of a host: a beat each second, orders applied, ended parts noticed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_streams::definition;
use mutirao_streams::graph::Graph;
use mutirao_streams::wire::{BEAT_MS, Beat, Orders, Part, Standing, StreamId};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{HostParts, LAST_WORDS_MAX, roster};
use crate::manager::ManagerError;
use crate::measure::node::Machine;
use crate::running::{Means, Running, Stop};

const BEAT: Duration = Duration::from_millis(BEAT_MS);
/// An answer that takes longer is not waited for: the next beat says it all again.
const ANSWER_MAX: Duration = Duration::from_secs(3);

pub async fn run(parts: HostParts, stop: CancellationToken, followed: watch::Sender<Option<String>>) {
    let clock = parts.clock.clone();
    let mut host = Beating::of(parts, followed);
    loop {
        let begun = clock.monotonic();
        let orders = tokio::select! {
            orders = host.beat() => orders,
            () = stop.cancelled() => break,
        };
        if let Some(orders) = orders {
            host.apply(orders);
        }
        let next = begun.plus(BEAT);
        loop {
            tokio::select! {
                () = clock.sleep_until(next) => break,
                () = stop.cancelled() => break,
                part = host.ended() => host.bury(&part),
            }
        }
        if stop.is_cancelled() {
            break;
        }
    }
    host.leave().await;
}

struct Beating {
    parts: HostParts,
    means: Means,
    boot: u64,
    machine: Machine,
    looked: Mono,
    graphs: HashMap<StreamId, Result<Arc<Graph>, String>>,
    running: BTreeMap<Part, Running>,
    /// As they were ordered last, so that what waits for its former self is started at once.
    orders: Option<Orders>,
    followed: watch::Sender<Option<String>>,
    unheard: bool,
}

impl Beating {
    fn of(parts: HostParts, followed: watch::Sender<Option<String>>) -> Self {
        let means = Means::of(&parts);
        let looked = parts.clock.monotonic();
        let mut machine = Machine::here();
        machine.look(1.0);
        let boot = means.boot;
        let (graphs, running) = (HashMap::new(), BTreeMap::new());
        Self { parts, means, boot, machine, looked, graphs, running, orders: None, followed, unheard: false }
    }

    async fn beat(&mut self) -> Option<Orders> {
        let beat = self.report();
        let answer = self.parts.clock.timeout(ANSWER_MAX, self.parts.manager.beat(beat)).await;
        let answer = answer.unwrap_or_else(|_| Err(ManagerError::Away("it does not answer".into())));
        match &answer {
            Ok(_) => {
                if std::mem::take(&mut self.unheard) && !self.is_inside() {
                    tracing::info!("the manager hears this host of streams again");
                }
            }
            // What it runs is the other's now.
            Err(ManagerError::Followed(why)) => {
                self.running.values_mut().for_each(|running| running.stop(Stop::Leave));
                self.orders = None;
                self.followed.send_replace(Some(why.clone()));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.unheard, true) && !self.is_inside() {
                    tracing::warn!("{error}; streams go on with what they have");
                }
            }
        }
        answer.ok()
    }

    /// What is wrong inside a manager, the manager says.
    fn is_inside(&self) -> bool {
        self.parts.view.standing == Standing::Inside
    }

    fn report(&mut self) -> Beat {
        let now = self.parts.clock.monotonic();
        let passed = now.since(std::mem::replace(&mut self.looked, now));
        Beat {
            host: self.parts.view.clone(),
            boot: self.boot,
            parts: self.running.values().map(|running| running.report(passed)).collect(),
            node: self.machine.look(passed.as_secs_f64()),
            knows: self.graphs.keys().cloned().collect(),
        }
    }

    fn apply(&mut self, orders: Orders) {
        // Of parts that are started from now on.
        self.means.log_bytes = orders.log_bytes;
        for (id, text) in &orders.definitions {
            self.graphs.insert(id.clone(), read(text));
        }
        let streams: Vec<&StreamId> = orders.parts.iter().map(|order| &order.part.stream).collect();
        self.graphs.retain(|id, _| streams.contains(&id));
        self.orders = Some(Orders { definitions: vec![], ..orders });
        self.arrange();
    }

    fn arrange(&mut self) {
        let Some(orders) = &self.orders else { return };
        let running = self.running.iter().map(|(part, running)| (part.clone(), running.epoch())).collect();
        let changes = roster::changes(&running, &orders.parts);
        for part in &changes.stop {
            if let Some(running) = self.running.get_mut(part) {
                running.stop(Stop::Leave);
            }
        }
        for order in changes.go_on {
            if let Some(running) = self.running.get(&order.part) {
                running.order(order);
            }
        }
        for order in changes.start {
            // A definition that is not known yet is asked for by the next beat.
            if let Some(graph) = self.graphs.get(&order.part.stream) {
                self.running.insert(order.part.clone(), Running::start(order, graph.clone(), &self.means));
            }
        }
    }

    /// Waits until a part that was told to stop has ended. Cancel-safe.
    async fn ended(&mut self) -> Part {
        std::future::poll_fn(|context| {
            for (part, running) in &mut self.running {
                if running.poll_ended(context).is_ready() {
                    return std::task::Poll::Ready(part.clone());
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    fn bury(&mut self, part: &Part) {
        let asked = self.running.remove(part).is_some_and(|running| running.epoch().is_none());
        // One that broke is started again with the next orders, and not at once for ever.
        if asked {
            self.arrange();
        }
    }

    /// What parts remember is written down, and the manager is told where.
    async fn leave(mut self) {
        self.orders = None;
        self.running.values_mut().for_each(|running| running.stop(Stop::WithSnapshot));
        let clock = self.parts.clock.clone();
        let all = async {
            for running in self.running.values_mut() {
                std::future::poll_fn(|context| running.poll_ended(context)).await;
            }
        };
        if clock.timeout(LAST_WORDS_MAX, all).await.is_err() {
            tracing::warn!("not all parts of streams ended in time: they are read on from older snapshots");
        }
        let last = self.report();
        let _ = clock.timeout(ANSWER_MAX, self.parts.manager.beat(last)).await;
    }
}

fn read(text: &str) -> Result<Arc<Graph>, String> {
    let graphs = definition::check(text).map_err(|faults| {
        let shown: Vec<String> = faults.iter().take(3).map(ToString::to_string).collect();
        format!("this host cannot read the definition ({}): is it of another version?", shown.join("; "))
    })?;
    let graph = graphs.into_iter().next().ok_or_else(|| "the definition has no stream".to_owned())?;
    Ok(Arc::new(graph))
}
