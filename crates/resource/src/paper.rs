//! What would be done now, from what the manager keeps: a real pass, against a manager and a provider that only take note. It is
//! the pass of a resource manager that has just taken over, so it is right also while none acts, and it cannot differ from
//! what one does.
//!
//! - [`desk`] is the manager and the provider that take note.
//! - [`reading`] puts what they noted into words for people.
//!
//! Not here: who may ask, and where the figures come from.

mod desk;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt;
use mutirao_core::clock::ManualClock;
use mutirao_core::{Dice, QueueName};
use mutirao_elastic::Terms;
use mutirao_elastic::packing::Kind;
use mutirao_elastic::protocol::Balance;
use mutirao_elastic::view::Plan;

use crate::Ports;
use crate::pass::Active;
use desk::Desk;

/// The lease under which nothing is done.
const GENERATION: u64 = 0;

/// Of a balance, with the kinds of nodes that were last offered. The holder is left out.
pub fn plan(balance: Balance, kinds: Vec<Kind>) -> Plan {
    let desk = Arc::new(Desk::of(balance, kinds));
    // The first time shows who finds no room, as the pass before would have; the second goes by it.
    let mut unplaced = BTreeMap::new();
    for _ in 0..2 {
        desk.begin();
        let mut active = acting(&desk, std::mem::take(&mut unplaced));
        // Nobody on paper keeps anybody waiting.
        let passed = active.pass().now_or_never();
        unplaced = match desk.is_bare() {
            // That no node fits would be no reason where none is known.
            true => BTreeMap::new(),
            false => active.unplaced(),
        };
        if passed.is_none_or(|passed| passed.is_err()) {
            tracing::error!("a pass on paper could not be finished");
        }
        desk.emptied(active.emptying());
    }
    reading::plan(&desk, &unplaced)
}

fn acting(desk: &Arc<Desk>, unplaced: BTreeMap<QueueName, String>) -> Active {
    let ports = Ports {
        manager: desk.clone(),
        provider: desk.clone(),
        clock: ManualClock::starting_at(desk.balance.at),
        dice: Arc::new(Dice::seeded(GENERATION)),
        terms: Terms::default(),
        holds: Arc::new(|_| true),
    };
    Active::new(ports, GENERATION).knowing(&desk.balance, unplaced)
}

#[cfg(test)]
mod tests;
