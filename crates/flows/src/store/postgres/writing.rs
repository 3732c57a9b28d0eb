//! Writing a batch: what it says of tasks and runs in one statement, which is its own transaction where that is all.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_shards::Fence;
use mutirao_store::postgres::{Ask, Transaction};

use super::{Answer, text};
use crate::foreman::words::{Batch, Noted, Outcome, RunKey, StepKey, Try};
use crate::store::{Fate, said};

/// What tasks and runs came to, and which answers have left. Whoever lost the shard changes nothing.
const ENDED: &str = "
    WITH fence AS (SELECT 1 FROM shard_leases WHERE group_name = $1 AND shard = $2 AND generation = $3 FOR KEY SHARE),
    outcomes AS (
        INSERT INTO flow_outcomes (run, step, item, ok, said, tries, node, why, began_at, ended_at)
        SELECT * FROM unnest($4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::bigint[], $10::text[],
                             $11::text[], $12::bigint[], $13::bigint[]) WHERE EXISTS (SELECT FROM fence)
        ON CONFLICT DO NOTHING),
    -- The first end counts. A run is changed once, whether it ended, was announced, or both.
    runs AS (
        UPDATE flow_runs SET ended = coalesce(flow_runs.ended, said.ended), announced = greatest(flow_runs.announced, said.told),
            ended_at = coalesce(flow_runs.ended_at, said.at)
        FROM unnest($14::bigint[], $15::text[], $16::bigint[], $17::bigint[]) AS said (run, ended, at, told)
        WHERE flow_runs.run = said.run AND EXISTS (SELECT FROM fence))
    SELECT count(*) FROM fence";

pub async fn ended(ask: &impl Ask, fence: &Fence, batch: &Batch) -> Answer<Fate> {
    let (shard, generation) = (i64::from(fence.shard.0), fence.generation as i64);
    let all = &batch.outcomes;
    let (ok, said): (Vec<i64>, Vec<String>) =
        all.iter().map(|one| said(&one.end)).map(|(ok, said)| (i64::from(ok), said)).unzip();
    let number = |of: fn(&Outcome) -> i64| all.iter().map(of).collect::<Vec<i64>>();
    let nodes: Vec<Option<&str>> = all.iter().map(|one| one.node.as_ref().map(|node| node.as_str())).collect();
    let whys: Vec<Option<&str>> = all.iter().map(|one| one.why.as_deref()).collect();
    let mut told: BTreeSet<RunKey> = batch.announced.iter().copied().collect();
    let mut runs: Vec<(i64, Option<String>, Option<i64>, i64)> = Vec::new();
    for (run, end, at) in &batch.ends {
        runs.push((run.0 as i64, Some(text(end)?), Some(at.0), i64::from(told.remove(run))));
    }
    runs.extend(told.iter().map(|run| (run.0 as i64, None, None, 1)));
    let found = ask
        .row(
            ENDED,
            &[
                &fence.group,
                &shard,
                &generation,
                &number(|one| one.key.run.0 as i64),
                &number(|one| one.key.step.into()),
                &number(|one| one.key.item.into()),
                &ok,
                &said,
                &number(|one| one.tries.into()),
                &nodes,
                &whys,
                &number(|one| one.began_at.0),
                &number(|one| one.ended_at.0),
                &runs.iter().map(|one| one.0).collect::<Vec<i64>>(),
                &runs.iter().map(|one| one.1.as_deref()).collect::<Vec<Option<&str>>>(),
                &runs.iter().map(|one| one.2).collect::<Vec<Option<i64>>>(),
                &runs.iter().map(|one| one.3).collect::<Vec<i64>>(),
            ],
        )
        .await?;
    let holds = found.map(|row| row.try_get::<_, i64>(0)).transpose()?.unwrap_or(0);
    Ok(if holds > 0 { Fate::Durable } else { Fate::Fenced })
}

pub async fn tries(tx: &Transaction<'_>, all: &[Try]) -> Answer<()> {
    if all.is_empty() {
        return Ok(());
    }
    // One batch may have several of a task; a statement touches each row once.
    let last: BTreeMap<StepKey, &Try> = all.iter().map(|one| (one.key, one)).collect();
    let number = |of: fn(&Try) -> i64| last.values().map(|one| of(one)).collect::<Vec<i64>>();
    let reasons: Vec<&str> = last.values().map(|one| one.reason.as_str()).collect();
    tx.run(
        "INSERT INTO flow_tries (run, step, item, tries, reason)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[])
         ON CONFLICT (run, step, item) DO UPDATE SET tries = greatest(flow_tries.tries, EXCLUDED.tries),
             reason = EXCLUDED.reason",
        &[
            &number(|one| one.key.run.0 as i64),
            &number(|one| one.key.step.into()),
            &number(|one| one.key.item.into()),
            &number(|one| one.tries.into()),
            &reasons,
        ],
    )
    .await?;
    tx.run(
        "DELETE FROM flow_noted USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS tried (run, step, item)
         WHERE (flow_noted.run, flow_noted.step, flow_noted.item) = (tried.run, tried.step, tried.item)",
        &[&number(|one| one.key.run.0 as i64), &number(|one| one.key.step.into()), &number(|one| one.key.item.into())],
    )
    .await
    .map(drop)
}

pub async fn noting(tx: &Transaction<'_>, all: &[Noted]) -> Answer<()> {
    if all.is_empty() {
        return Ok(());
    }
    let last: BTreeMap<StepKey, &Noted> = all.iter().map(|one| (one.key, one)).collect();
    let number = |of: fn(&Noted) -> i64| last.values().map(|one| of(one)).collect::<Vec<i64>>();
    let nodes: Vec<&str> = last.values().map(|one| one.node.as_str()).collect();
    tx.run(
        "INSERT INTO flow_noted (run, step, item, generation, n, node, since)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])
         ON CONFLICT (run, step, item) DO UPDATE SET generation = EXCLUDED.generation, n = EXCLUDED.n, node = EXCLUDED.node,
             since = EXCLUDED.since",
        &[
            &number(|one| one.key.run.0 as i64),
            &number(|one| one.key.step.into()),
            &number(|one| one.key.item.into()),
            &number(|one| one.attempt.generation as i64),
            &number(|one| one.attempt.n.into()),
            &nodes,
            &number(|one| one.since.0),
        ],
    )
    .await
    .map(drop)
}
