//! Reports that nobody should believe: of attempts that were never handed out, from sessions that never were, or in the name
//! of another's. Workers of another installation, a restored backup, or somebody with a broker console could send them.

use std::rc::Rc;

use mutirao_core::Timestamp;
use mutirao_core::envelope::{Done, Reports};
use mutirao_core::id::{Attempt, SessionId, TaskKey, WorkerId};
use mutirao_core::outcome::{Outcome, Verdict};

use super::wire::{Body, Name};
use super::world::World;

/// A generation that no owner will reach.
const FUTURE: u64 = 1_000_000;

impl World {
    /// One of them turns up in the results of some job's shard.
    pub fn stray(&mut self) {
        let dice = &self.ground.dice;
        let jobs = &self.store.rows.jobs;
        let Some((job, row)) = jobs.iter().nth(dice.below(jobs.len() as u64) as usize) else { return };
        let definition = &row.definition;
        let index = definition.first + dice.below(u64::from(definition.total)) as u32;
        let attempt = Attempt { generation: 1 + dice.below(6), n: 1 + dice.below(3) as u32 };
        let living = self.workers.values().nth(dice.below(self.workers.len() as u64) as usize);
        let (session, worker, attempt) = match (dice.below(3), living) {
            (0, Some(living)) => (living.session.clone(), WorkerId("impostor".into()), attempt),
            (1, Some(living)) => {
                let worker = super::worker::worker_of(living.pid);
                (living.session.clone(), worker, Attempt { generation: FUTURE, ..attempt })
            }
            _ => (SessionId("stranger".into()), WorkerId("stranger".into()), attempt),
        };
        let verdict = [Verdict::Ok, Verdict::Failed, Verdict::Refused, Verdict::Cancelled][dice.below(4) as usize];
        let outcome = Outcome::new(verdict, Timestamp(1));
        let (task, shard) = (TaskKey { job: *job, index }, definition.shard);
        let mut reports = Reports::new(session, worker);
        reports.done.push(Done { task, attempt, trace: String::new(), outcome });
        self.ground.note(|| format!("a stray comes to shard {shard}: {reports:?}"));
        self.ground.oracle.tally.strays += 1;
        self.broker.slip_in(Name::Results(shard), Body::Reports(Rc::new(reports)), &mut self.ground);
    }
}
