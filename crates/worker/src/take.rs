//! Taking parcels from the broker, no more than there is room for. A parcel is acknowledged on receipt; from then on the
//! session answers for its tasks. What was sent ahead and finds no room goes back to the broker, what was taken and does
//! not begin goes back to the manager: either way to whoever is free.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use mutirao_broker::{BrokerError, Consumer, Delivery};
use mutirao_core::envelope::{open, tasks_of};

use crate::desk::{Unpacked, unpack};
use crate::patience::Patience;
use crate::run::{Shop, WorkerError};
use crate::stop::{Stop, Urgency};

/// How long a worker without room keeps what the broker may have sent ahead; after that it goes back to whoever has room.
const LINGER: Duration = Duration::from_millis(200);
/// Between two looks at what waits here for its turn.
const LOOK: Duration = Duration::from_millis(100);

/// Takes parcels until told to rest; then only waits to be told to drain.
pub(crate) async fn take(shop: Arc<Shop>, mut stop: Stop) -> Result<(), WorkerError> {
    tokio::select! {
        taken = take_until_rest(&shop, &mut stop) => taken?,
        never = give_back(&shop) => match never {},
    }
    if stop.urgency() < Urgency::Drain {
        shop.rest();
        stop.reached(Urgency::Drain).await;
    }
    Ok(())
}

async fn take_until_rest(shop: &Arc<Shop>, stop: &mut Stop) -> Result<(), WorkerError> {
    let queue = tasks_of(&shop.config.queue);
    let mut patience = Patience::new();
    loop {
        tokio::select! {
            biased;
            () = stop.reached(Urgency::Rest) => return Ok(()),
            () = room(shop) => {}
        }
        let consumed = tokio::select! {
            biased;
            () = stop.reached(Urgency::Rest) => return Ok(()),
            consumed = shop.broker.consume(&queue, shop.config.limits.credit_parcels) => consumed,
        };
        let result = match consumed {
            Ok(mut consumer) => {
                patience.reset();
                take_from(shop, &mut *consumer, stop).await
            }
            Err(error) => Err(error),
        };
        match result {
            Ok(Paused::NoRoom) => {}
            Ok(Paused::Resting) => return Ok(()),
            Err(error @ (BrokerError::Unreachable(_) | BrokerError::Full { .. })) => {
                tracing::warn!(%error, "no parcels for now");
                patience.wait(&*shop.clock, &shop.dice).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

enum Paused {
    NoRoom,
    Resting,
}

async fn take_from(shop: &Arc<Shop>, consumer: &mut dyn Consumer, stop: &mut Stop) -> Result<Paused, BrokerError> {
    // Sent ahead and not acknowledged: if there is no room for long, it goes back with the consumer.
    let mut ahead = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            () = stop.reached(Urgency::Rest) => return Ok(Paused::Resting),
            () = room(shop) => {}
            () = shop.clock.sleep(LINGER) => return Ok(Paused::NoRoom),
        }
        if ahead.is_empty() {
            let deliveries = tokio::select! {
                biased;
                () = stop.reached(Urgency::Rest) => return Ok(Paused::Resting),
                deliveries = consumer.next() => deliveries?,
            };
            ahead.extend(readable(consumer, deliveries).await?);
        }
        let count = shop.desk().room_for(ahead.iter().map(|(_, parcel)| parcel), shop.clock.monotonic());
        let parcels: Vec<(u64, Unpacked)> = ahead.drain(..count).collect();
        // What could not be acknowledged is not ours: the broker hands it out again.
        if let Some((last, _)) = parcels.last() {
            consumer.ack_through(*last).await?;
        }
        let now = shop.clock.now();
        // All at once: what they make ready starts in one go.
        shop.with_desk(|desk| {
            for (_, parcel) in parcels {
                desk.accept(parcel, now);
            }
        });
    }
}

/// What can be read, with its tags; the rest is put with the dead letters.
async fn readable(consumer: &mut dyn Consumer, deliveries: Vec<Delivery>) -> Result<Vec<(u64, Unpacked)>, BrokerError> {
    let mut parcels = Vec::with_capacity(deliveries.len());
    for delivery in deliveries {
        match read(&delivery) {
            Ok(parcel) => parcels.push((delivery.tag, parcel)),
            Err(reason) => {
                tracing::warn!(%reason, "a parcel cannot be read");
                consumer.reject(delivery.tag, &reason).await?;
            }
        }
    }
    Ok(parcels)
}

fn read(delivery: &Delivery) -> Result<Unpacked, String> {
    let parcel = open(&delivery.body).map_err(|error| error.to_string())?;
    unpack(parcel).map_err(|error| error.to_string())
}

/// Ready when there is room for another parcel.
async fn room(shop: &Shop) {
    loop {
        if shop.desk().has_room(shop.clock.monotonic()) {
            return;
        }
        shop.bells.room.notified().await;
    }
}

/// Looks, for as long as anything waits here, whether it waits in vain.
async fn give_back(shop: &Arc<Shop>) -> Infallible {
    loop {
        shop.bells.waiting.notified().await;
        while shop.desk().has_waiting() {
            shop.clock.sleep(LOOK).await;
            let (now, mono) = (shop.clock.now(), shop.clock.monotonic());
            shop.with_desk(|desk| desk.give_back(now, mono));
        }
    }
}
