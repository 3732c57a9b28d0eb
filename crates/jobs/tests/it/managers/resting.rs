//! Either of two managers sees how the other's queues stand, and has the other's workers rest.

use mutirao_broker::{Broker, Heard};
use mutirao_core::WorkerId;
use mutirao_core::envelope::{Control, control_of, open};
use mutirao_core::{Clock, SystemClock};
use mutirao_elastic::fleet::Activity;

use super::{PATIENCE, Town, array, shared_out};
use crate::house::{Played, submit};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_asked_sees_how_a_queue_of_another_stands_and_has_its_worker_rest() {
    let Some(town) = Town::found().await else { return };
    let (a, b) = (town.join().await, town.join().await);
    shared_out(&[&a, &b]).await;
    let (queue, other) = (a.queue().await, b.queue().await);
    let worker = Played::start(&queue, &town.broker).await;
    let mut control = town.broker.subscribe(&control_of(&queue)).await.unwrap();

    let (w1, deadline) = (WorkerId("w1".into()), SystemClock.monotonic().plus(PATIENCE));
    let both = [queue.clone(), other.clone()];
    loop {
        let asked = both.clone();
        let sights = b.on(move |jobs| async move { jobs.sights(&asked).await }).await;
        assert_eq!(sights.len(), 2, "both owners answer");
        let sight = sights.iter().find(|sight| sight.queue == queue).unwrap();
        if matches!(sight.sessions.as_ref().and_then(|all| all.get(&w1)), Some(Activity::Idle { .. })) {
            break;
        }
        assert!(SystemClock.monotonic() < deadline, "never seen: {sights:?}");
    }

    // Said by one that does not own the queue; the owner tells the worker, and hands out nothing on its account.
    let (all, news) = (vec![(w1.clone(), queue.clone())], queue.clone());
    b.on(move |jobs| async move { jobs.rest(&all, Some(&news)).await }).await;
    loop {
        let Heard::Message(body) = control.next().await.unwrap() else { continue };
        if open::<Control>(&body).unwrap().rest == [w1.clone()] {
            break;
        }
    }
    let spec = array(&queue, 5);
    let job = b.on(move |jobs| async move { submit(&jobs, spec).await }).await;
    loop {
        let asked = [queue.clone()];
        let sight = b.on(move |jobs| async move { jobs.sights(&asked).await }).await.remove(0);
        assert_eq!(sight.tasks.unacknowledged, 0, "nothing is handed out");
        if sight.tasks.ready == 5 {
            break;
        }
        assert!(SystemClock.monotonic() < deadline, "job {} is never seen: {sight:?}", job.id);
    }
    drop(worker);
    town.remove([a, b]).await;
}
