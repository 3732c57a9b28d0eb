//! Tasks that no worker of their queue can hold, in words.

use mutirao_core::JobKey;
use mutirao_core::task::Needs;

use super::{QueueFacts, Reason, because, larger};
use crate::spec::QueueSpec;

/// Of a queue.
pub(super) fn some(spec: &QueueSpec, facts: &QueueFacts) -> Reason {
    let (beyond, resource) = beyond(facts.too_big_needs, facts.largest);
    because(
        format!("{} of those that wait fit no worker: {beyond}", facts.too_big),
        format!("{}, or cancel what needs so much (`mutirao job cancel ID`)", larger(spec, resource)),
    )
}

/// One task.
pub(super) fn one(spec: &QueueSpec, needs: Option<Needs>, largest: Option<Needs>, job: JobKey) -> Reason {
    let (beyond, resource) = beyond(needs, largest);
    because(
        format!("it fits no worker: {beyond}"),
        format!("{}, or cancel it (`mutirao job cancel {job}`)", larger(spec, resource)),
    )
}

/// What is missing, and of what.
fn beyond(needs: Option<Needs>, largest: Option<Needs>) -> (String, &'static str) {
    match (needs, largest) {
        (Some(needs), Some(most)) if needs.cpus > most.cpus => {
            (format!("needs {} cpus, the largest worker has {}", needs.cpus, most.cpus), "cpus")
        }
        (Some(needs), Some(most)) if needs.memory > most.memory => {
            let (needs, most) = needs.memory.beside(most.memory);
            (format!("needs {needs} of memory, the largest worker has {most}"), "memory")
        }
        (_, Some(most)) => {
            let (cpus, memory) = (most.cpus, most.memory.rough());
            (format!("each worker turned it down, the largest has {cpus} cpus and {memory} of memory"), "memory")
        }
        (_, None) => ("each worker turned it down".into(), "memory"),
    }
}
