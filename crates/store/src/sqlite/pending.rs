//! A write that waits: the closure, whoever wants its answer, and how the two meet after the group's COMMIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rusqlite::{Connection, Error, ffi};
use tokio::sync::oneshot;

use super::errors;
use crate::StoreError;

/// A [`Pending`] with its types forgotten, so that different writes can share a group.
pub(super) trait Write: Send {
    /// Runs the closure. An error means: undo what it did. It is a copy; the original goes with the answer.
    fn run(&mut self, conn: &Connection, file: &Path) -> Result<(), Error>;

    /// Tells the caller what became of the write, given what became of its group.
    fn answer(self: Box<Self>, group: Result<(), StoreError>);
}

pub(super) struct Pending<T, F> {
    step: Step<T, F>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

enum Step<T, F> {
    Waiting(F),
    Running,
    Ran(Result<T, StoreError>),
}

impl<T, F> Pending<T, F> {
    pub fn new(f: F, caller: oneshot::Sender<Result<T, StoreError>>) -> Self {
        Self { step: Step::Waiting(f), caller }
    }
}

impl<T, F> Write for Pending<T, F>
where
    T: Send,
    F: FnOnce(&Connection) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, conn: &Connection, file: &Path) -> Result<(), Error> {
        let Step::Waiting(f) = std::mem::replace(&mut self.step, Step::Running) else {
            return Err(errors::failure(ffi::SQLITE_MISUSE, "a write runs once"));
        };
        let (ran, told) = match catch_unwind(AssertUnwindSafe(|| f(conn))) {
            Ok(Ok(value)) => (Ok(value), Ok(())),
            Ok(Err(error)) => {
                let told = errors::copy(&error);
                (Err(errors::name(error, file)), Err(told))
            }
            Err(payload) => {
                let panicked = errors::panicked(&*payload);
                let told = errors::failure(ffi::SQLITE_ABORT, panicked.to_string());
                (Err(panicked), Err(told))
            }
        };
        self.step = Step::Ran(ran);
        told
    }

    fn answer(self: Box<Self>, group: Result<(), StoreError>) {
        let answer = match (self.step, group) {
            // Its own trouble says more than its group's.
            (Step::Ran(Err(own)), _) => Err(own),
            (Step::Ran(Ok(value)), Ok(())) => Ok(value),
            (_, Err(error)) => Err(error),
            (Step::Waiting(_) | Step::Running, Ok(())) => Err(StoreError::Closed),
        };
        // A caller that has gone away is told nothing.
        let _ = self.caller.send(answer);
    }
}
