//! The fence of what leaves: between the foreman's word and the broker a process may have been frozen, or the broker away for
//! minutes; and what a former owner removes, hands out or tells workers, its successor may just have filled, handed out or
//! told otherwise.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// Whether the shard is still ours.
pub type Ours = Arc<dyn Fn() -> bool + Send + Sync>;

/// Goes on with something only while the shard is ours: asked each time before it goes on, so also after every wait in the
/// middle of it. None when it was given up.
pub(super) async fn while_ours<T>(ours: &Ours, doing: impl Future<Output = T>) -> Option<T> {
    let mut doing = pin!(doing);
    poll_fn(|cx| if ours() { doing.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn what_waited_does_not_go_on_when_the_shard_was_lost_meanwhile() {
        let (holds, broker_is_back, left) =
            (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let ours: Ours = Arc::new({
            let holds = holds.clone();
            move || holds.load(Ordering::SeqCst)
        });
        let sending = || {
            let (broker_is_back, left) = (broker_is_back.clone(), left.clone());
            async move {
                broker_is_back.notified().await;
                left.store(true, Ordering::SeqCst);
            }
        };
        let lost = tokio::spawn({
            let (ours, sending) = (ours.clone(), sending());
            async move { while_ours(&ours, sending).await }
        });
        tokio::task::yield_now().await;
        holds.store(false, Ordering::SeqCst);
        broker_is_back.notify_one();
        assert_eq!((lost.await.unwrap(), left.load(Ordering::SeqCst)), (None, false));

        holds.store(true, Ordering::SeqCst);
        broker_is_back.notify_one();
        assert_eq!((while_ours(&ours, sending()).await, left.load(Ordering::SeqCst)), (Some(()), true));
    }
}
