//! A task as the worker holds it: unpacked from its parcel, sharing what the parcel's tasks have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use mutirao_core::envelope::{Parcel, ParcelId};
use mutirao_core::exec::Exec;
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::task::{Action, Needs, TaskSpec};
use mutirao_core::{Attempt, TaskKey};

/// Which try at which task.
pub type Try = (TaskKey, Attempt);

#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub key: TaskKey,
    pub attempt: Attempt,
    /// In which it came.
    pub parcel: ParcelId,
    pub reply_to: Arc<str>,
    pub trace: Arc<str>,
    pub spec: Arc<TaskSpec>,
    pub entry: Option<String>,
    /// In place of the one in `spec`, and of those that follow it.
    pub command: Option<Vec<String>>,
    /// What follows `command`.
    pub then: Vec<Vec<String>>,
    /// Beside the variables in `spec`, or in their place.
    pub env: BTreeMap<String, String>,
}

impl Task {
    pub fn id(&self) -> Try {
        (self.key, self.attempt)
    }

    pub fn exec(&self) -> Option<&Exec> {
        match &self.spec.action {
            Action::Exec(exec) => Some(exec),
            Action::Noop {} => None,
        }
    }

    /// Its commands, in order.
    pub fn commands<'a>(&'a self, exec: &'a Exec) -> Vec<&'a [String]> {
        let (first, then) = match &self.command {
            Some(command) => (command, &self.then),
            None => (&exec.command, &exec.then),
        };
        std::iter::once(first).chain(then).map(Vec::as_slice).collect()
    }

    /// What it takes from the worker's capacity while it runs. A no-op is over before it could take anything.
    pub fn takes(&self) -> Needs {
        match &self.spec.action {
            Action::Exec(_) => self.spec.needs,
            Action::Noop {} => Needs { cpus: Cpus { milli: 0 }, memory: Bytes(0) },
        }
    }
}

/// A parcel that reads well but makes no sense.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("task {index} names template {t}, and the parcel has {templates}")]
pub(crate) struct BadParcel {
    index: u32,
    t: u16,
    templates: usize,
}

/// A parcel laid out.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub id: ParcelId,
    pub reply_to: Arc<str>,
    pub tasks: Vec<Task>,
}

/// The parcel's tasks, all or none.
pub(crate) fn unpack(parcel: Parcel) -> Result<Unpacked, BadParcel> {
    let reply_to: Arc<str> = parcel.reply_to.into();
    let traces: Vec<Arc<str>> = parcel.templates.iter().map(|template| template.trace.as_str().into()).collect();
    let mut tasks = Vec::with_capacity(parcel.tasks.len());
    for handout in parcel.tasks {
        let at = usize::from(handout.t);
        let Some(template) = parcel.templates.get(at) else {
            return Err(BadParcel { index: handout.index, t: handout.t, templates: parcel.templates.len() });
        };
        tasks.push(Task {
            key: TaskKey { job: template.job, index: handout.index },
            attempt: Attempt { generation: parcel.id.generation, n: handout.n },
            parcel: parcel.id,
            reply_to: reply_to.clone(),
            trace: traces[at].clone(),
            spec: template.spec.clone(),
            entry: handout.entry,
            command: handout.command,
            then: handout.then,
            env: handout.env,
        });
    }
    Ok(Unpacked { id: parcel.id, reply_to, tasks })
}
