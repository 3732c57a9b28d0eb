//! Taking runs in: durable when answered, and once for each key.

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_store::refused;

use super::{Flows, unknown};
use crate::foreman::words::{Admitted, Asker, RunKey};
use crate::meters;
use crate::post::{Full, Word};
use crate::start::RunRequest;
use crate::store::{Asked, Begun, NewRun};
use crate::view::{RunLine, RunState};

impl Flows {
    /// Durable when answered. Asked again with the same key, it is the same run.
    pub async fn run(&self, caller: &Principal, request: RunRequest) -> Result<RunLine, Problem> {
        request.check()?;
        let asked = request.idempotency_key.clone().map(|key| (format!("run:{key}"), request.fingerprint()));
        let spec = match self.flow(caller, &request.flow).await {
            Ok(view) => view.definition,
            // Its runs are there all the same.
            Err(missing) => return self.asked_before(&caller.namespace, &asked).await?.ok_or(missing),
        };
        let new = NewRun { by: self.by(caller), spec, input: request.input, asked, reply: None };
        self.begin(new).await
    }

    pub(super) async fn begin(&self, mut new: NewRun) -> Result<RunLine, Problem> {
        if let Some(full) = self.0.bench.doors.full(&self.0.bench.rules) {
            // One that was accepted takes no more room.
            return self.asked_before(&new.by.namespace, &new.asked).await?.ok_or_else(|| no_room(full));
        }
        let bench = &self.0.bench;
        new.spec = new.spec.with(bench.plans.namespace(), |action| bench.reach.parameters(action));
        let plan = self.0.bench.plans.of(&new.spec).await?;
        let begun = self.0.store.begin(new.clone()).await.map_err(refused)?;
        let started_at = new.by.at;
        match begun {
            Begun::New(run) => {
                meters::accepted();
                let asker = if new.reply.is_some() { Asker::Client } else { Asker::Reader };
                let admitted = Admitted { key: run, plan, input: new.input, started_at, asker };
                self.tell(run, Word::Admit(Box::new(admitted), new.reply.map(Box::new))).await;
                let (flow, owner) = (new.spec.name, new.by.who);
                Ok(RunLine { run: run.0, flow, state: RunState::Running, owner, started_at, ended_at: None })
            }
            Begun::Again(run) => self.again(run).await,
            Begun::Other(run) => Err(used(run)),
        }
    }

    async fn again(&self, run: RunKey) -> Result<RunLine, Problem> {
        let row = self.0.store.row(run).await.map_err(refused)?;
        row.as_ref().map(RunLine::from).ok_or_else(|| unknown(run.0))
    }

    /// The run that was begun with this key, whatever has become of its flow, and however much there is to do.
    pub(super) async fn asked_before(
        &self,
        namespace: &str,
        asked: &Option<Asked>,
    ) -> Result<Option<RunLine>, Problem> {
        let Some((key, print)) = asked else { return Ok(None) };
        match self.0.store.asked(namespace.into(), key.clone(), *print).await.map_err(refused)? {
            Some(Begun::Again(run)) => self.again(run).await.map(Some),
            Some(Begun::Other(run)) => Err(used(run)),
            Some(Begun::New(_)) | None => Ok(None),
        }
    }
}

fn no_room(full: Full) -> Problem {
    match full {
        Full::Runs => Problem::busy("too many runs are under way already", 5).remedy("try again when some have ended"),
        Full::Memory => Problem::busy("the runs under way take all the memory that flows may have", 5)
            .remedy("try again when some have ended, or set flows.memory higher"),
    }
}

fn used(run: RunKey) -> Problem {
    Problem::conflict(format!("this key was used for another run, {}", run.0))
        .remedy("give each run a key of its own; the same one only to ask for the same again")
}
