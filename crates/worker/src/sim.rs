//! The worker's desk for a simulation to drive: the real decisions, with whoever simulates in the place of processes,
//! broker and time. Behind the feature `sim`; nothing of it is in the program.
//!
//! What is *not* here: a decision. Each method is the desk's own, in types that others can name.

use std::sync::Arc;

use mutirao_core::envelope::{Control, Held, Parcel, Reports};
use mutirao_core::task::Needs;
use mutirao_core::{Mono, Outcome, SessionId, Timestamp, Verdict, WorkerId};

use crate::config::Limits;
use crate::desk;

pub use crate::desk::Try;

/// A task that shall run now.
#[derive(Debug)]
pub struct Run(desk::Run);

impl Run {
    pub fn id(&self) -> Try {
        self.0.task.id()
    }

    pub fn takes(&self) -> Needs {
        self.0.task.takes()
    }

    /// The words of its command; none for a no-op.
    pub fn command(&self) -> &[String] {
        self.0.task.exec().map_or(&[], |exec| &exec.command)
    }

    /// How it shall be said to have ended, once it was told to stop.
    pub fn halted(&self) -> Option<Verdict> {
        self.0.halt.reason().map(|reason| reason.verdict())
    }
}

/// What one worker holds.
#[derive(Debug)]
pub struct Desk(desk::Desk);

impl Desk {
    pub fn new(capacity: Needs, limits: Limits, session: SessionId, worker: WorkerId) -> Self {
        Self(desk::Desk::new(capacity, limits, session, worker))
    }

    /// Takes a parcel in, or says why it makes no sense.
    pub fn accept(&mut self, parcel: Parcel, now: Timestamp) -> Result<(), String> {
        let parcel = desk::unpack(parcel).map_err(|bad| bad.to_string())?;
        self.0.accept(parcel, now);
        Ok(())
    }

    pub fn next(&mut self, now: Timestamp, mono: Mono) -> Option<Run> {
        self.0.next(now, mono).map(Run)
    }

    pub fn lasting(&mut self, id: Try, at: Timestamp) {
        self.0.lasting(id, at);
    }

    pub fn closing(&mut self, id: Try) {
        self.0.closing(id);
    }

    pub fn finish(&mut self, id: Try, outcome: Outcome, mono: Mono) {
        self.0.finish(id, outcome, mono);
    }

    pub fn cancel(&mut self, control: &Control, now: Timestamp, mono: Mono) {
        self.0.cancel(control, now, mono);
    }

    pub fn drain(&mut self, now: Timestamp) {
        self.0.drain(now);
    }

    pub fn halt(&mut self, now: Timestamp) {
        self.0.halt(now);
    }

    pub fn has_room(&mut self, mono: Mono) -> bool {
        self.0.has_room(mono)
    }

    pub fn is_idle(&self) -> bool {
        self.0.is_idle()
    }

    /// Who waits here first, and what it takes.
    pub fn first_waiting(&self) -> Option<(Try, Needs)> {
        self.0.first_waiting()
    }

    pub fn is_draining(&self) -> bool {
        self.0.is_draining()
    }

    pub fn unreported(&self) -> usize {
        self.0.unreported()
    }

    pub fn take_reports(&mut self) -> Option<(Arc<str>, Reports)> {
        self.0.take_reports()
    }

    pub fn message(&mut self) -> Reports {
        self.0.message()
    }

    pub fn confirm_reports(&mut self) {
        self.0.confirm_reports();
    }

    /// What it answers for, in an order that is the same in every run of a seed.
    pub fn held(&self) -> Vec<Held> {
        let mut held = self.0.held();
        held.sort_unstable_by_key(|held| (held.task, held.attempt));
        held
    }

    pub fn give_back(&mut self, now: Timestamp, mono: Mono) {
        self.0.give_back(now, mono);
    }

    pub fn tidy(&mut self, mono: Mono) {
        self.0.tidy(mono);
    }
}
