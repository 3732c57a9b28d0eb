//! What whoever takes next may rely on when the one before it leaves.

use mutirao_broker::Broker;
use mutirao_broker::suite::{bodies, numbers, take};

use super::OnRabbit;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_closed_gives_back_what_it_held_before_anybody_takes_what_comes_after() {
    let Some(harness) = OnRabbit::shared().await else { return };
    let staying = harness.rabbit().await;
    for round in 0..16 {
        let (queue, leaving) = (format!("kv.{round}"), harness.rabbit().await);
        staying.publish(&queue, bodies(0..64)).await.unwrap();
        let mut first = leaving.consume(&queue, 16).await.unwrap();
        take(&mut first, 16).await;
        let mut second = staying.consume(&queue, 16).await.unwrap();
        // Whoever stops lets go of its queues, and of the broker, at the same moment, or of the broker only.
        if round % 2 == 0 {
            drop(first);
        }
        leaving.close();
        let got = numbers(&take(&mut second, 16).await);
        assert_eq!(got[..16], (0..16).collect::<Vec<_>>(), "round {round}");
    }
}
