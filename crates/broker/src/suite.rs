//! How a broker behaves, as tests that every implementation runs: one function for each behaviour, over a [`Harness`]
//! that knows how to make the broker and how to cut it off. What only one implementation has (files, permits) is tested
//! beside it and not here.
//!
//! ```ignore
//! mod memory {
//!     async fn harness() -> InMemory { … }
//!     mutirao_broker::broker_suite!(harness);
//! }
//! ```

pub mod cuts;
pub mod fanout;
pub mod logs;
pub mod queues;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use mutirao_core::SystemClock;
use mutirao_core::clock::{Clock, ClockExt};

use crate::{Broker, BrokerError, Consumer, Counts, Deletion, Delivery, Letters, Name, Shared};

/// The broker under test and its surroundings.
#[async_trait]
pub trait Harness: Send + Sync {
    /// A handle of its own on the one broker under test.
    async fn broker(&self) -> Shared;

    /// What the broker under test is bounded by. Small, so that the suite reaches it.
    fn bounds(&self) -> Bounds;

    /// Breaks every connection and lets no new one through, until [`heal`](Self::heal).
    async fn cut(&self) {}

    async fn heal(&self) {}
}

/// The bounds a suite needs to know.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Messages that a work queue takes before it is full.
    pub queue_messages: usize,
    /// Announcements behind which even the slowest subscriber has missed some.
    pub backlog_messages: usize,
    /// Bytes that, appended to a log, certainly push its first record out.
    pub log_bytes: usize,
}

/// Longer than anything here should take, shorter than a person's patience.
const SOON: Duration = Duration::from_secs(30);
/// Long enough to see that nothing comes.
const MOMENT: Duration = Duration::from_millis(150);

/// The value of a future that must be ready before long.
pub async fn soon<F: Future + Send>(what: &str, future: F) -> F::Output
where
    F::Output: Send,
{
    match SystemClock.timeout(SOON, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} took longer than {SOON:?}"),
    }
}

/// Nothing comes of the future for a moment.
pub async fn not_yet<F: Future + Send>(future: F) -> bool
where
    F::Output: Send,
{
    SystemClock.timeout(MOMENT, future).await.is_err()
}

/// Asks until the answer is the expected one: some effects (a consumer that was dropped) travel.
pub async fn counts_become(broker: &Shared, queue: &Name, expected: Counts) {
    let mut counts = Counts::default();
    for _ in 0..400 {
        counts = soon("counts", broker.counts(queue)).await.expect("counts");
        if counts == expected {
            return;
        }
        SystemClock.sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(counts, expected, "counts of {queue}");
}

pub fn bodies(numbers: std::ops::Range<usize>) -> Vec<Bytes> {
    numbers.map(|number| Bytes::from(number.to_string())).collect()
}

pub fn number(body: &Bytes) -> usize {
    std::str::from_utf8(body).expect("a number").parse().expect("a number")
}

pub fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    deliveries.iter().map(|delivery| number(&delivery.body)).collect()
}

/// Exactly `count` deliveries, none acknowledged.
pub async fn take(consumer: &mut Box<dyn Consumer>, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(soon("a delivery", consumer.next()).await.expect("next"));
    }
    assert_eq!(taken.len(), count, "more came than was expected: {:?}", numbers(&taken));
    taken
}

/// Publishes, waiting whenever the queue is full.
pub async fn publish_patiently(broker: &dyn Broker, queue: &Name, batch: Vec<Bytes>) {
    loop {
        match broker.publish(queue, batch.clone()).await {
            Ok(()) => return,
            Err(BrokerError::Full { .. }) => SystemClock.sleep(Duration::from_millis(1)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes a test of every behaviour that any broker has. With `or skip` the harness may be `None`, because what it needs
/// is not there; it has said so.
#[macro_export]
macro_rules! broker_suite {
    ($harness:path $(, $or:ident $skip:ident)?) => {
        $crate::behaviours! { $harness $(, $or $skip)?;
            queues::messages_arrive_in_the_order_of_publication,
            queues::no_more_than_the_credit_is_unacknowledged,
            queues::what_a_dropped_consumer_held_returns_in_order_and_marked,
            queues::from_a_queue_in_order_one_takes_at_a_time,
            queues::ack_through_settles_everything_up_to_its_tag_and_nothing_after,
            queues::what_is_acknowledged_one_by_one_is_settled_and_nothing_before_it,
            queues::what_came_after_one_retired_goes_to_others_and_what_it_saw_is_its_own,
            queues::a_rejected_message_becomes_a_dead_letter_and_its_neighbours_go_on,
            queues::dead_letters_stay_in_their_order_however_often_and_how_many_of_them_are_looked_at,
            queues::dead_letters_are_removed_one_by_its_id_or_all_and_the_others_keep_their_order,
            queues::counts_follow_what_happens,
            queues::a_deleted_queue_is_gone_with_all_that_lay_in_it_and_one_in_use_stays,
            queues::work_is_shared_between_consumers_with_credit,
            queues::a_slow_consumer_loses_nothing_and_the_queue_stays_within_its_bound,
            queues::many_publishers_and_consumers_lose_and_double_nothing,
            queues::a_message_too_large_is_refused_and_the_rest_goes_on,
            queues::a_batch_past_what_travels_at_once_arrives_whole_and_in_order,
            queues::a_wait_for_deliveries_that_is_given_up_loses_nothing,
            fanout::every_subscriber_hears_what_is_announced_after_it_came,
            fanout::a_subscriber_that_falls_behind_hears_of_the_gap_and_then_the_newest,
            logs::records_have_consecutive_offsets_and_read_back,
            logs::a_read_at_the_end_waits_for_the_next_record,
            logs::offsets_that_are_not_there_are_an_error_that_says_what_is,
            logs::concurrent_appends_lose_nothing_and_tell_where_they_begin,
            logs::retention_takes_the_oldest_and_says_so,
            logs::a_wait_for_records_that_is_given_up_loses_nothing,
            logs::many_reads_that_wait_hold_nobody_up,
            logs::what_is_added_is_there_in_the_order_of_each_writer,
            logs::what_is_needed_survives_trimming,
            logs::a_forgotten_log_begins_anew_and_forgetting_it_again_changes_nothing,
            logs::a_read_that_waits_goes_on_with_the_log_that_is_made_anew,
        }
    };
}

/// Makes a test of every behaviour that a broker behind a connection has.
#[macro_export]
macro_rules! broker_cut_suite {
    ($harness:path $(, $or:ident $skip:ident)?) => {
        $crate::behaviours! { $harness $(, $or $skip)?;
            cuts::a_publish_that_was_cut_off_is_settled_and_nothing_is_lost,
            cuts::a_consumer_is_restored_and_what_it_held_comes_again_marked,
            cuts::an_acknowledgement_from_before_a_cut_settles_nothing_after_it,
            cuts::a_subscription_is_restored_and_hears_of_the_gap,
            cuts::a_read_that_waits_outlives_a_cut,
            cuts::what_is_confirmed_amid_cuts_is_in_the_log_once_and_in_its_order,
            cuts::one_that_retires_while_cut_off_takes_nothing_more_when_the_line_is_back,
            cuts::a_stream_of_work_survives_many_cuts,
        }
    };
}

/// Makes a test of each behaviour that is named.
#[macro_export]
macro_rules! behaviours {
    ($harness:path; $($module:ident :: $name:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let harness = $harness().await;
            $crate::suite::$module::$name(&harness).await;
        }
    )*};
    ($harness:path, or skip; $($module:ident :: $name:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let Some(harness) = $harness().await else { return };
            $crate::suite::$module::$name(&harness).await;
        }
    )*};
}
