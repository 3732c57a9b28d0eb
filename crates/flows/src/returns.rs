//! What nodes gave back, on its way to whoever owns the run: through its door when that is here, else by a queue of its
//! shard, where whoever is the owner takes it. It is acknowledged once what came of it is durable.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use mutirao_broker::{BrokerError, Delivery};
use mutirao_core::envelope::{Version, open, seal};
use mutirao_core::{Problem, ShardId};
use mutirao_nodes::NodeId;
use mutirao_nodes::errand::{End as Said, Returned};
use mutirao_nodes::wire::MESSAGE_BYTES_MAX;
use mutirao_shards::Company;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::foreman::words::End;
use crate::post::{Bench, Word};
use crate::shard_of;
use crate::wire::{RequestId, data_of};

/// Of one result: what is larger is a failure of its action.
pub const RESULT_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
/// Results that may be with the post and not durable yet.
const CREDIT: u32 = 256;
const PAUSE: Duration = Duration::from_secs(1);

/// The queue of a shard.
pub fn queue_of(shard: ShardId) -> String {
    format!("results.flows.{}", shard.0)
}

/// A result for another process.
#[derive(Serialize, Deserialize)]
struct Passed {
    v: Version,
    request: String,
    ok: bool,
    said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
}

/// Ok once it is durable, or safe with the broker. What nobody was asked for is refused.
pub async fn bring(bench: &Bench, returned: Returned) -> Result<(), Problem> {
    let id = RequestId::unsealed(&returned.request, &bench.secret)
        .map_err(|error| Problem::invalid("requestID", error.to_string()))?;
    let shard = shard_of(id.key.run);
    if let Some(door) = bench.doors.of(shard) {
        let (end, node) = (end_of(returned.end.clone()), returned.node.clone());
        if let Some(told) = put(&door, id, end, node).await
            && told.await.is_ok()
        {
            return Ok(());
        }
    }
    if bench.company == Company::Alone {
        // Nobody else is there to take it, and what waits here is gone with the process.
        return Err(Problem::unavailable("nobody looks after this run at the moment").remedy("say it again"));
    }
    let Returned { request, end, node } = returned;
    let (ok, said) = match end {
        Said::Ok(text) => too_large(&text).map_or((true, text), |why| (false, why)),
        Said::Failed(why) => (false, why),
    };
    let passed = Passed { v: Version::default(), request, ok, said, node };
    let sent = bench.broker.publish(&queue_of(shard), vec![seal(&passed)]).await;
    sent.map_err(|error| Problem::unavailable(error.to_string()).remedy("say it again"))
}

async fn put(
    door: &mpsc::Sender<Word>,
    id: RequestId,
    end: End,
    node: Option<NodeId>,
) -> Option<oneshot::Receiver<()>> {
    let (told, durable) = oneshot::channel();
    door.send(Word::Returned { id, end, node, told }).await.ok()?;
    Some(durable)
}

fn end_of(said: Said) -> End {
    match said {
        Said::Ok(text) => too_large(&text).map_or_else(|| End::Ok(data_of(&text).into()), End::Failed),
        Said::Failed(why) => End::Failed(why),
    }
}

fn too_large(text: &str) -> Option<String> {
    let bytes = text.len();
    (bytes > RESULT_BYTES_MAX).then(|| format!("it gave back {bytes} bytes, the most is {RESULT_BYTES_MAX}"))
}

/// Takes what others brought for a shard of ours, for as long as it is not dropped.
pub async fn listen(bench: Bench, shard: ShardId, generation: u64) {
    if bench.company == Company::Alone {
        // Nobody is there who could bring anything.
        return std::future::pending().await;
    }
    loop {
        match hear(&bench, shard).await {
            // The post ends with its shard; this is only its ear.
            Ok(()) | Err(BrokerError::Closed) => std::future::pending().await,
            Err(error) => tracing::debug!(%error, %shard, generation, "results of flows are not heard; trying again"),
        }
        bench.clock.sleep(PAUSE).await;
    }
}

async fn hear(bench: &Bench, shard: ShardId) -> Result<(), BrokerError> {
    let Some(door) = bench.doors.of(shard) else { return Ok(()) };
    let mut consumer = bench.broker.consume(&queue_of(shard), CREDIT).await?;
    let mut waiting = FuturesUnordered::new();
    loop {
        tokio::select! {
            taken = consumer.next() => for Delivery { tag, body, .. } in taken? {
                let passed = match read(bench, &body) {
                    Ok(passed) => passed,
                    Err(why) => {
                        consumer.reject(tag, &why).await?;
                        continue;
                    }
                };
                let (id, end, node) = passed;
                let Some(durable) = put(&door, id, end, node).await else { return Ok(()) };
                waiting.push(async move { durable.await.ok().map(|()| tag) });
            },
            Some(durable) = waiting.next(), if !waiting.is_empty() => {
                let mut tags: Vec<u64> = durable.into_iter().collect();
                while let Some(Some(more)) = futures_util::FutureExt::now_or_never(waiting.next()) {
                    tags.extend(more);
                }
                consumer.ack_each(&tags).await?;
            }
        }
    }
}

fn read(bench: &Bench, body: &[u8]) -> Result<(RequestId, End, Option<NodeId>), String> {
    let passed: Passed = open(body).map_err(|error| error.to_string())?;
    let id = RequestId::unsealed(&passed.request, &bench.secret).map_err(|error| error.to_string())?;
    let end = if passed.ok { End::Ok(data_of(&passed.said).into()) } else { End::Failed(passed.said) };
    Ok((id, end, passed.node))
}
