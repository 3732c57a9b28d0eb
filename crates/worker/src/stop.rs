//! Asking a worker to go home, in two steps: first *drain* (finish what runs, give back the rest), then *now* (stop
//! what runs, give that back too); where nobody would hear a last report, *unheard* (stop what runs, and wait for nothing
//! else). Before that it may be asked to *rest*: the same as to drain, only that it stays.

use tokio::sync::watch;

/// How urgently. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    #[default]
    Stay,
    Rest,
    Drain,
    Now,
    Unheard,
}

/// The end that asks.
///
/// ```
/// let (stopper, _stop) = mutirao_worker::stop();
/// stopper.drain();
/// stopper.now();
/// ```
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<Urgency>);

/// The end that a worker listens to. When every [`Stopper`] is dropped nothing more is asked of it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<Urgency>);

pub fn stop() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(Urgency::Stay);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Finish what runs, give back what waits, take nothing new; and stay until asked to go.
    pub fn rest(&self) {
        self.raise(Urgency::Rest);
    }

    /// Finish what runs, give back what waits, take nothing new; and go.
    pub fn drain(&self) {
        self.raise(Urgency::Drain);
    }

    /// Stop what runs as well, after its grace.
    pub fn now(&self) {
        self.raise(Urgency::Now);
    }

    /// Stop what runs, after its grace, and go without a word: there is nobody to take one.
    pub fn unheard(&self) {
        self.raise(Urgency::Unheard);
    }

    fn raise(&self, to: Urgency) {
        self.0.send_if_modified(|urgency| {
            let grows = to > *urgency;
            if grows {
                *urgency = to;
            }
            grows
        });
    }
}

impl Stop {
    /// Waits until it is at least this urgent. Cancel-safe.
    pub(crate) async fn reached(&mut self, urgency: Urgency) {
        if self.0.wait_for(|now| *now >= urgency).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    pub(crate) fn urgency(&self) -> Urgency {
        *self.0.borrow()
    }
}
