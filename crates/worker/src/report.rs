//! Telling the manager: outcomes in batches, in order, each confirmed before the next leaves; and the heartbeat, which
//! travels in the same order, so that it never says less than what was said before it.

use bytes::Bytes;
use mutirao_broker::BrokerError;
use mutirao_core::Mono;
use mutirao_core::clock::ClockExt;
use mutirao_core::envelope::{Beat, RESULTS_FORMER, results_of, seal};
use std::sync::Arc;

use crate::desk::GATHER;
use crate::patience::Patience;
use crate::run::{Shop, WorkerError};
use crate::stop::{Stop, Urgency};
use crate::traces;

/// Reports until everything has been taken that will ever be, and all of it is reported; then says goodbye.
pub(crate) async fn report(shop: Arc<Shop>, all_taken: Stop) -> Result<(), WorkerError> {
    let mut beat_at = shop.clock.monotonic();
    loop {
        tokio::select! {
            biased;
            () = shop.clock.sleep_until(beat_at) => {}
            () = shop.bells.beat.notified() => beat_at = Mono::default(),
            () = shop.bells.outgoing.notified() => gather(&shop).await,
        }
        loop {
            if shop.clock.monotonic() >= beat_at {
                beat(&shop, Presence::Here).await?;
                beat_at = shop.clock.monotonic().plus(shop.config.limits.beat_every);
            }
            let Some((to, reports)) = shop.desk().take_reports() else { break };
            send(&shop, &to, seal(&reports)).await?;
            traces::ran(&reports);
            drop(reports);
            shop.with_desk(|desk| desk.confirm_reports());
        }
        let over = all_taken.urgency() >= Urgency::Drain && {
            let desk = shop.desk();
            desk.is_idle() && desk.unreported() == 0
        };
        if over {
            return beat(&shop, Presence::Leaving).await;
        }
    }
}

/// Until it is time that what is there leaves, or until there is so much, or so little to do, that it should at once.
async fn gather(shop: &Shop) {
    let began = shop.clock.monotonic();
    let mut before = None;
    loop {
        let heap = shop.desk().heap();
        if heap.leaves(before.replace(heap), shop.clock.monotonic().since(began)) {
            return;
        }
        let _ = shop.clock.timeout(GATHER, shop.bells.full.notified()).await;
    }
}

enum Presence {
    Here,
    Leaving,
}

async fn beat(shop: &Arc<Shop>, presence: Presence) -> Result<(), WorkerError> {
    let config = &shop.config;
    // With all that follows from it: what was turned down for a while may be taken again.
    shop.with_desk(|desk| desk.tidy(shop.clock.monotonic()));
    let footprint = shop.gauge.look(shop.clock.monotonic());
    let (mut reports, owner) = {
        let mut desk = shop.desk();
        let mut reports = desk.message();
        reports.beat = Some(Beat {
            queue: config.queue.clone(),
            host: config.host.clone(),
            pid: std::process::id(),
            capacity: config.capacity,
            draining: desk.is_draining(),
            leaving: matches!(presence, Presence::Leaving),
            held: desk.held(),
        });
        reports.footprint = Some(Box::new(footprint));
        (reports, desk.owner_at())
    };
    if let Some(owner) = owner {
        return send(shop, &owner, seal(&reports)).await;
    }
    let home = results_of(&config.queue);
    send(shop, &home, seal(&reports)).await?;
    // Nobody has spoken to us yet, so the manager may be of the version before there were shards. Others drop the copy.
    if home != RESULTS_FORMER {
        reports.detour = true;
        let _ = shop.broker.publish(RESULTS_FORMER, vec![seal(&reports)]).await;
    }
    Ok(())
}

/// Sends until it has arrived. What cannot be helped by waiting ends the worker.
async fn send(shop: &Shop, to: &str, message: Bytes) -> Result<(), WorkerError> {
    let mut patience = Patience::new();
    loop {
        match shop.broker.publish(to, vec![message.clone()]).await {
            Ok(()) => return Ok(()),
            Err(error @ (BrokerError::Unreachable(_) | BrokerError::Full { .. })) => {
                tracing::debug!(%error, "reports wait");
                patience.wait(&*shop.clock, &shop.dice).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
