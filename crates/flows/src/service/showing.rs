//! Runs as they are, and as their owners say that they are.

use std::time::Duration;

use mutirao_core::Problem;
use mutirao_core::auth::Principal;
use mutirao_store::refused;

use super::{Flows, GLANCE, LOOK_AGAIN, PAGE_MAX, unknown};
use crate::foreman::explaining::from_store;
use crate::foreman::run::Run;
use crate::foreman::words::{Admitted, Asker, RunKey};
use crate::store::{Progress, RunRecord, RunRow, RunsOf};
use crate::view::{RunExplained, RunLine, RunState, RunView};
use crate::{answer, shard_of};

/// The longest that somebody waits for a run: less than a request may take, so that there is always an answer.
pub const WAIT_MAX: Duration = Duration::from_secs(50);
/// How long an owner may take to explain.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(2);

impl Flows {
    pub async fn runs(
        &self,
        caller: &Principal,
        flow: Option<String>,
        before: Option<u64>,
        rows: u32,
    ) -> Result<Vec<RunLine>, Problem> {
        let (namespace, named) = (caller.namespace.clone(), flow.clone());
        let which = RunsOf { namespace, flow, before: before.map(RunKey), rows: rows.min(PAGE_MAX) };
        let runs = self.0.store.runs(which).await.map_err(refused)?;
        if let Some(name) = named.filter(|_| runs.is_empty() && before.is_none()) {
            // One that was removed is known by its runs; of this name there is nothing at all.
            self.flow(caller, &name).await?;
        }
        Ok(runs.iter().map(RunLine::from).collect())
    }

    /// As it is; waits for its end for a while, if asked to.
    pub async fn show(&self, caller: &Principal, run: u64, wait: Duration) -> Result<RunView, Problem> {
        let until = self.0.clock.monotonic().plus(wait.min(WAIT_MAX));
        let mut ended = self.0.bench.ended.subscribe();
        let mut is_over = false;
        loop {
            let left = until.since(self.0.clock.monotonic());
            is_over |= left.is_zero() || self.0.shutdown.is_cancelled();
            // All of it is read once, for it may be large.
            if is_over || self.row(caller, run).await?.end.is_some() {
                return Ok(self.look(caller, run).await?.0);
            }
            let here = async { while !matches!(ended.recv().await, Ok(key) if key.0 == run) {} };
            let known_here = self.0.bench.doors.of(shard_of(RunKey(run))).is_some();
            let glance = left.min(if known_here { LOOK_AGAIN } else { GLANCE });
            tokio::select! {
                // Its end is durable by then.
                () = here => is_over = true,
                () = self.0.shutdown.cancelled() => {}
                () = self.0.clock.sleep(glance) => {}
            }
        }
    }

    /// As it is, and how far that is.
    pub(super) async fn look(&self, caller: &Principal, run: u64) -> Result<(RunView, Progress), Problem> {
        let record = self.record(caller, run).await?;
        let progress = record.progress();
        Ok((self.view(record).await?, progress))
    }

    async fn record(&self, caller: &Principal, run: u64) -> Result<RunRecord, Problem> {
        let found = self.0.store.read(vec![RunKey(run)]).await.map_err(refused)?;
        let ours = found.into_iter().find(|record| record.row.namespace == caller.namespace);
        ours.ok_or_else(|| unknown(run))
    }

    pub(super) async fn row(&self, caller: &Principal, run: u64) -> Result<RunRow, Problem> {
        let found = self.0.store.row(RunKey(run)).await.map_err(refused)?;
        found.filter(|row| row.namespace == caller.namespace).ok_or_else(|| unknown(run))
    }

    /// A run as the store has it, and what is made of it: on a thread of its own, for it may be large.
    pub(super) async fn unfolded<T: Send + 'static>(
        &self,
        record: RunRecord,
        then: impl FnOnce(&Run) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let plan = self.0.bench.plans.written(&record.definition).await?;
        let unfolding = tokio::task::spawn_blocking(move || {
            let (key, started_at) = (record.row.key, record.row.started_at);
            let admitted = Admitted { key, plan, input: record.input, started_at, asker: Asker::Reader };
            let mut run = Run::new(admitted, record.outcomes, record.tries);
            run.unfold();
            then(&run)
        });
        unfolding.await.map_err(|_| Problem::internal())
    }

    async fn view(&self, record: RunRecord) -> Result<RunView, Problem> {
        let (end, line) = (record.row.end.clone(), RunLine::from(&record.row));
        let how = end.clone();
        let said = self.unfolded(record, move |run| {
            let said = match &how {
                Some((end, at)) => answer::of(run, end, *at),
                None => answer::so_far(run),
            };
            serde_json::from_value(said).map_err(|_| Problem::internal())
        });
        said.await.unwrap_or_else(|problem| Ok(RunView::unreadable(line, end.map(|(end, _)| end), problem)))
    }

    pub async fn explain(&self, caller: &Principal, run: u64) -> Result<RunExplained, Problem> {
        let record = self.record(caller, run).await?;
        let RunLine { flow, state, .. } = RunLine::from(&record.row);
        let (key, shard) = (record.row.key, shard_of(record.row.key));
        let elsewhere = state == RunState::Running && self.0.bench.doors.of(shard).is_none();
        let owned_at = self.0.shards.owner_of(shard).filter(|_| elsewhere).map(|(_, address)| address);
        if state == RunState::Running
            && let Some(steps) = self.0.bench.asking.explain(key, EXPLAIN_WITHIN).await
        {
            return Ok(RunExplained { run, flow, state, owned_at, steps });
        }
        let steps = self.unfolded(record, from_store).await?;
        Ok(RunExplained { run, flow, state, owned_at, steps })
    }
}
