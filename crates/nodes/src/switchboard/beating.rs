//! What happens with time: beats to all, who is silent, what other managers heard, and what is written down late.

use std::collections::BTreeSet;
use std::time::Duration;

use mutirao_core::Timestamp;
use mutirao_core::clock::ClockExt;

use super::{Inner, Switchboard, bin};
use crate::Layer;
use crate::meters;
use crate::preference::Protocol;
use crate::pulse::Pulse;
use crate::registry::{Gone, Proof, Record};
use crate::wire;

const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// When a node was last heard of may be this old in the store.
const WRITE_EVERY: Duration = Duration::from_secs(30);
const LEFTOVERS_EVERY: Duration = Duration::from_secs(20);
const LEARN_EVERY: Duration = Duration::from_secs(5);
/// Clocks of managers differ, and writes take a while.
const LEARN_OVERLAP_MS: i64 = 30_000;
/// Woken this much too late, we did not run and could not hear.
const STOOD_STILL: Duration = Duration::from_secs(5);

pub async fn run(board: Switchboard) {
    let inner = &*board.0;
    let mut pulse = Pulse::starting(inner.pace, inner.clock.monotonic());
    let [mut swept, mut written, mut learnt, mut tidied] = [inner.clock.monotonic(); 4];
    let mut learnt_until = inner.clock.now();
    loop {
        let next = pulse.wake_at().min(swept.plus(SWEEP_EVERY));
        tokio::select! {
            biased;
            () = inner.stopping.cancelled() => return,
            () = inner.clock.sleep_until(next) => {}
        }
        let now = inner.clock.monotonic();
        if let Some(beat) = pulse.beat(now, inner.clock.now()) {
            let text = wire::written(&beat);
            for way in inner.ways() {
                way.beat(&text).await;
            }
        }
        if now.since(swept) >= SWEEP_EVERY {
            inner.tell_untold().await;
            if now.since(swept) >= SWEEP_EVERY + STOOD_STILL {
                inner.state.lock().registry.hear_again(now);
            }
            swept = now;
            inner.sweep().await;
        }
        if inner.others.is_some() && now.since(learnt) >= LEARN_EVERY {
            learnt = now;
            inner.learn(&mut learnt_until).await;
        }
        if now.since(tidied) >= LEFTOVERS_EVERY {
            tidied = now;
            let board = board.clone();
            // A broker may take its time to answer.
            inner.tasks.spawn(async move { board.0.dismiss_leftovers().await });
        }
        if now.since(written) >= WRITE_EVERY {
            written = now;
            inner.write_down().await;
        }
    }
}

impl Inner {
    async fn sweep(&self) {
        self.host_again();
        let (gone, standing) = {
            let mut state = self.state.lock();
            (state.sweep(self.clock.monotonic()), state.standing())
        };
        meters::standing(standing);
        let mut forgotten = Vec::new();
        for one in gone {
            let (Gone::Away(node) | Gone::Forgotten(node)) = &one;
            if let Some(taker) = self.taker.get() {
                taker.lost(node);
            }
            match one {
                Gone::Away(node) => tracing::info!(%node, "a node is away: it has not been heard of"),
                Gone::Forgotten(node) => forgotten.push(node),
            }
        }
        if !forgotten.is_empty() {
            // A restart brings them back, and they are forgotten then.
            let done = self.store.forget(forgotten).await;
            self.trouble.told("nodes that are long gone could not be removed", done);
        }
        self.empty_bin().await;
    }

    async fn empty_bin(&self) {
        let tossed = self.bin.empty();
        if tossed.is_empty() {
            return;
        }
        let done = self.store.toss(tossed, bin::KEPT_MAX).await;
        self.trouble.told("what nodes said and nobody could read was not kept", done);
    }

    async fn learn(&self, until: &mut Timestamp) {
        let now = self.now();
        let since = Timestamp(until.0 - LEARN_OVERLAP_MS);
        // Before what others heard: who was taken out is not learnt of anew.
        let removed = self.learn_removals(since).await;
        if self.trouble.told("who was taken out by other managers could not be read", removed).is_none() {
            return;
        }
        let read = self.store.records(since).await;
        if let Some(records) = self.trouble.told("what other managers heard of nodes could not be read", read) {
            self.state.lock().registry.learn(records, now);
            *until = now.wall;
        }
    }

    pub(super) async fn write_down(&self) {
        let records: Vec<Record> = self.state.lock().take_unwritten();
        if records.is_empty() {
            return;
        }
        let nodes: Vec<_> = records.iter().map(|record| record.node.clone()).collect();
        let kept = self.store.keep(records).await;
        if self.trouble.told("when nodes were last heard of could not be written; it is tried again", kept).is_none() {
            self.state.lock().unwritten.extend(nodes);
        }
    }

    /// The node of this process is there, with what it can do now.
    pub(super) fn host_again(&self) {
        let Some((node, hands)) = self.hands.get() else { return };
        let offers = hands.offers();
        let now = self.now();
        let mut state = self.state.lock();
        let first_at = match state.registry.node(node) {
            Some((record, _)) if record.offers == offers && record.heard_over == BTreeSet::from([Protocol::Here]) => {
                return state.registry.saw(node, now);
            }
            Some((record, _)) => record.first_at,
            None => now.wall,
        };
        let record = Record {
            node: node.clone(),
            layer: Layer::Cloud,
            kind: "manager".into(),
            endpoint: String::new(),
            offers,
            not_understood: 0,
            not_allowed: 0,
            vouched: true,
            near: true,
            parameters: Default::default(),
            labels: Default::default(),
            slots: hands.slots(),
            proof: Proof::Key(format!("manager {node}")),
            first_at,
            last_at: now.wall,
            heard_over: [Protocol::Here].into(),
            worked: true,
        };
        state.registry.host(record, now.mono);
    }
}
