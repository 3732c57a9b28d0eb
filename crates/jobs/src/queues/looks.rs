//! Looking at queues, and saying why their tasks do not run. Definitions are in the store; what waits and who is there is
//! asked of the owners.

use mutirao_broker::Shared as Broker;
use mutirao_core::envelope::{results_of, shard_of, tasks_of};
use mutirao_core::id::{QueueName, TaskKey};
use mutirao_core::job::{JobView, TaskView};
use mutirao_core::{Problem, ShardId};
use mutirao_queues::{Explanation, QueueFacts, QueueLoad, QueueView, Reason, TaskFacts, explain};
use mutirao_store::refused;

use crate::question::{Answer, Question};
use crate::service::{Jobs, LOOK_PATIENCE};
use crate::store::queues::QueueRow;

impl Jobs {
    /// Every queue, by name, and the shards whose owners did not say how theirs stand.
    pub async fn queues(&self) -> Result<(Vec<QueueView>, Vec<ShardId>), Problem> {
        let rows = self.0.store.queues(0).await.map_err(refused)?;
        let (mut loads, mut silent) = (Vec::new(), Vec::new());
        for (shard, answer) in self.ask_all(Question::Loads).await {
            match answer {
                Ok(Answer::Loads(some)) => loads.extend(some),
                _ => silent.push(shard),
            }
        }
        let load = |name: &QueueName| match loads.iter().find(|(queue, _)| queue == name) {
            Some((_, load)) => Some(*load),
            None => (!silent.contains(&shard_of(name))).then(QueueLoad::default),
        };
        Ok((rows.into_iter().map(|row| view(load(&row.spec.name), row)).collect(), silent))
    }

    pub async fn queue(&self, name: &QueueName) -> Result<QueueView, Problem> {
        let row = self.0.store.queue(name.clone()).await.map_err(refused)?.ok_or_else(|| self.missing(name))?;
        Ok(self.view(row).await)
    }

    /// What was written, with what its owner knows of it.
    pub(crate) async fn view(&self, row: QueueRow) -> QueueView {
        let facts = self.facts(&row.spec.name).await;
        let load = facts.map(|facts| QueueLoad { waiting: facts.waiting, out: facts.out, workers: facts.workers });
        view(load, row)
    }

    pub async fn explain_queue(&self, name: &QueueName) -> Result<Explanation, Problem> {
        let row = self.0.store.queue(name.clone()).await.map_err(refused)?.ok_or_else(|| self.missing(name))?;
        let mut explanation = match self.facts(name).await {
            Some(facts) => explain::queue(&row.spec, &facts),
            None => explain::silent(&row.spec, broker_trouble(&self.0.broker, name).as_deref()),
        };
        if let Some(why) = &row.unreadable {
            explanation.reasons.insert(0, explain::unreadable::reason(name, why));
        }
        explanation.reasons.extend(self.staffing(&row.spec).await);
        Ok(explanation)
    }

    pub async fn explain_task(&self, job: &JobView, task: &TaskView) -> Result<Explanation, Problem> {
        if !job.waits_for.is_empty() {
            return Ok(explain::after_others(task, &job.waits_for));
        }
        let row = self.0.store.queue(job.queue.clone()).await.map_err(refused)?;
        let unreadable = row.as_ref().and_then(|row| row.unreadable.clone());
        let spec = row.map_or_else(|| mutirao_queues::QueueSpec::new(job.queue.clone()), |row| row.spec);
        let facts = self.facts(&job.queue).await;
        let place = self.place_of(&job.queue, task.id).await;
        let mut explanation =
            explain::task(task, place, facts.as_ref().map(|facts| (&spec, facts)), self.0.clock.now());
        if explain::waits_for_its_queue(task, self.0.clock.now()) {
            explanation.reasons.extend(self.staffing(&spec).await);
        }
        if let Some(why) = unreadable {
            explanation.reasons.insert(0, explain::unreadable::reason(&job.queue, &why));
        }
        if job.finished_at.is_none()
            && let Some(why) = &job.reason
        {
            explanation.reasons.insert(0, Reason { why: format!("its job: {why}"), remedy: None });
        }
        Ok(explanation)
    }

    /// What the owner of a queue knows of it; none when it does not answer.
    async fn facts(&self, name: &QueueName) -> Option<QueueFacts> {
        let shard = shard_of(name);
        let question = Question::Facts { queue: name.clone() };
        let Ok(Answer::Facts(mut facts)) = self.0.asking.ask(shard, question, LOOK_PATIENCE).await else { return None };
        // The owner may have been refused what this process never asked for.
        facts.broker = facts.broker.or_else(|| broker_trouble(&self.0.broker, name));
        if let Some(door) = self.0.doors.of(shard) {
            facts.trouble.clone_from(&door.vitals.trouble.lock());
        }
        Some(*facts)
    }

    async fn place_of(&self, queue: &QueueName, task: TaskKey) -> Option<TaskFacts> {
        match self.0.asking.ask(shard_of(queue), Question::Place { task }, LOOK_PATIENCE).await {
            Ok(Answer::Place(facts)) => facts,
            _ => None,
        }
    }
}

/// As this process sees it. Its workers may have a way of their own, but what they report comes by the same broker.
pub(crate) fn broker_trouble(broker: &Broker, queue: &QueueName) -> Option<String> {
    let ways = [tasks_of(queue), results_of(queue)];
    ways.iter().find_map(|way| broker.trouble(way)).map(|error| error.to_string())
}

fn view(load: Option<QueueLoad>, row: QueueRow) -> QueueView {
    let QueueRow { spec, revision, created_at, changed_at, changed_by, unreadable } = row;
    QueueView { definition: spec, revision, created_at, changed_at, changed_by, unreadable, load }
}
