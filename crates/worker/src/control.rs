//! Hearing what the manager says to all workers of the queue: cancels, and who shall go home. Transient and repeated
//! while it matters, so that missing some is no harm.

use std::sync::Arc;

use mutirao_broker::{BrokerError, Heard};
use mutirao_core::envelope::{Control, control_of, open};

use crate::patience::Patience;
use crate::run::{Shop, WorkerError};
use crate::stop::Stopper;

pub(crate) async fn listen(shop: Arc<Shop>, stopper: Stopper) -> Result<(), WorkerError> {
    let mut patience = Patience::new();
    loop {
        match hear(&shop, &stopper, &mut patience).await {
            BrokerError::Unreachable(_) | BrokerError::Full { .. } => patience.wait(&*shop.clock, &shop.dice).await,
            error => return Err(error.into()),
        }
    }
}

async fn hear(shop: &Arc<Shop>, stopper: &Stopper, patience: &mut Patience) -> BrokerError {
    let mut subscription = match shop.broker.subscribe(&control_of(&shop.config.queue)).await {
        Ok(subscription) => subscription,
        Err(error) => return error,
    };
    patience.reset();
    loop {
        match subscription.next().await {
            Ok(Heard::Message(body)) => obey(shop, stopper, &body),
            Ok(Heard::Gap) => {}
            Err(error) => return error,
        }
    }
}

fn obey(shop: &Arc<Shop>, stopper: &Stopper, body: &[u8]) {
    let control: Control = match open(body) {
        Ok(control) => control,
        Err(error) => {
            tracing::warn!(%error, "a word from the manager cannot be read");
            return;
        }
    };
    if !control.cancel_jobs.is_empty() || !control.cancel_tasks.is_empty() {
        let (now, mono) = (shop.clock.now(), shop.clock.monotonic());
        shop.with_desk(|desk| desk.cancel(&control, now, mono));
    }
    if control.rest.contains(&shop.config.worker) {
        stopper.rest();
    }
    if control.drain.contains(&shop.config.session) {
        stopper.drain();
    }
}
