//! The worker: takes parcels of one queue from the broker, runs their tasks, reports what came of them.
//!
//! It talks to the broker and to blobs, never to the database, and keeps nothing over a restart. What it decides is in
//! pure modules ([`desk`], [`room`]); what touches processes is in [`exec`]; the loops that connect both to the broker
//! are [`take`], [`report`] and [`control`].
//!
//! What is *not* here: when a task is tried again, what its outcome means for its job, and who may submit it.

mod cgroup;
mod config;
mod confinement;
mod control;
mod desk;
mod exec;
mod footprint;
mod hunt;
pub mod keeper;
mod patience;
mod report;
mod room;
mod run;
#[cfg(feature = "sim")]
pub mod sim;
mod stop;
mod take;
mod traces;

pub use config::{Config, CpuLimit, Limits};
pub use confinement::{Cell, Confinement};
pub use footprint::Gauge;
pub use keeper::Keeper;
pub use run::{WorkerError, run};
pub use stop::{Stop, Stopper, stop};

/// What programs see of this process's environment: a few variables, never its secrets. With the mark of a session, by which its
/// [`Keeper`] finds them wherever they have gone.
pub fn surroundings(session: &mutirao_core::SessionId) -> std::collections::BTreeMap<String, std::ffi::OsString> {
    exec::Surroundings::of_this_process().marked(session)
}

/// What this machine cannot do for tasks, in words for a person: for `doctor`, and logged once when a worker starts.
///
/// ```
/// for notice in mutirao_worker::notices() {
///     println!("{notice}");
/// }
/// ```
pub fn notices() -> Vec<String> {
    cgroup::notices()
}
