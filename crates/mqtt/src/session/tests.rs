//! A session by properties: order, bounds, nothing lost that was taken, nothing given twice unmarked.

use proptest::prelude::*;

use super::*;
use crate::topics::tests::name;

fn message(number: u32) -> Arc<Message> {
    let payload = Bytes::copy_from_slice(&number.to_be_bytes());
    Arc::new(Message { topic: name("t"), payload, qos: Qos::AtLeastOnce, retain: false, wanted: None })
}

fn number(publish: &Publish) -> u32 {
    u32::from_be_bytes(publish.payload[..].try_into().unwrap())
}

fn at(seconds: u64) -> Mono {
    Mono(Duration::from_secs(seconds))
}

fn offer(session: &mut Session, number: u32, qos: Qos, now: Mono, limits: &Limits) -> Offer {
    session.offer(&message(number), qos, Telling::Live, Presence::Here, now, limits)
}

#[test]
fn no_more_than_a_window_is_unacknowledged_and_each_acknowledgement_lets_the_next_go() {
    let limits = Limits { in_flight_max: 2, ..Limits::default() };
    let mut session = Session::default();
    for number in 0..4 {
        assert_eq!(offer(&mut session, number, Qos::AtLeastOnce, at(0), &limits), Offer::Taken);
    }
    let first = session.pull(usize::MAX, at(0), &limits);
    assert_eq!(first.iter().map(number).collect::<Vec<_>>(), [0, 1]);
    assert!(session.pull(usize::MAX, at(0), &limits).is_empty());
    let Handling::AtLeastOnce { pid, dup: false } = first[1].handling else { panic!("{:?}", first[1]) };
    session.acknowledged(pid);
    session.acknowledged(pid);
    let next = session.pull(usize::MAX, at(0), &limits);
    assert_eq!(next.iter().map(number).collect::<Vec<_>>(), [2]);
}

#[test]
fn what_nobody_wants_any_more_is_not_given_and_takes_no_room() {
    let limits = Limits { queue_messages_max: 3, ..Limits::default() };
    let mut session = Session::default();
    let wanted = |number, seconds| {
        let given_up = CancellationToken::new();
        let wanted = Some(Wanted { until: at(seconds), given_up: given_up.clone() });
        (Arc::new(Message { wanted, ..(*message(number)).clone() }), given_up)
    };
    let offer = |session: &mut Session, message: &Arc<Message>, now| {
        session.offer(message, Qos::AtLeastOnce, Telling::Live, Presence::Away, now, &limits)
    };
    let [(old, _), (given_up, cancel), (stays, _), (more, _)] =
        [(0, 5), (1, 100), (2, 100), (3, 100)].map(|(n, s)| wanted(n, s));
    for one in [&old, &given_up, &stays] {
        assert_eq!(offer(&mut session, one, at(0)), Offer::Taken);
    }
    assert_eq!(offer(&mut session, &more, at(4)), Offer::Full);
    assert_eq!(offer(&mut session, &more, at(5)), Offer::Taken, "in the place of one that is over");
    cancel.cancel();
    let given = session.pull(usize::MAX, at(6), &limits);
    assert_eq!(given.iter().map(number).collect::<Vec<_>>(), [2, 3]);
    // Sent, and then the connection broke: it may not have come, and need not.
    session.parted();
    assert_eq!(session.pull(usize::MAX, at(99), &limits).len(), 2);
    session.parted();
    assert!(session.pull(usize::MAX, at(100), &limits).is_empty());
    assert_eq!((session.messages(), session.bytes(), session.dropped().old), (0, 0, 4));
}

#[test]
fn what_was_sent_and_not_acknowledged_is_sent_again_first_in_order_and_marked() {
    let limits = Limits { in_flight_max: 3, ..Limits::default() };
    let mut session = Session::default();
    for number in 0..5 {
        offer(&mut session, number, Qos::AtLeastOnce, at(0), &limits);
    }
    let first = session.pull(usize::MAX, at(0), &limits);
    let Handling::AtLeastOnce { pid, .. } = first[1].handling else { panic!() };
    session.acknowledged(pid);
    session.parted();
    let again = session.pull(usize::MAX, at(1), &limits);
    let marks: Vec<_> = again
        .iter()
        .map(|publish| match publish.handling {
            Handling::AtLeastOnce { dup, .. } => (number(publish), dup),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(marks, [(0, true), (2, true), (3, false)]);
    assert_eq!(again[0].handling, Handling::AtLeastOnce { pid: Pid::new(1).unwrap(), dup: true });
}

#[test]
fn past_its_bounds_it_refuses_the_newest_and_forgets_what_is_old_and_counts_both() {
    let cost = message(0).cost_bytes();
    let limits = Limits {
        queue_messages_max: 3,
        queue_bytes_max: 2 * cost,
        queue_age_max: Duration::from_secs(10),
        ..Limits::default()
    };
    let mut session = Session::default();
    let offers: Vec<_> = (0..3).map(|n| offer(&mut session, n, Qos::AtLeastOnce, at(0), &limits)).collect();
    assert_eq!(offers, [Offer::Taken, Offer::Taken, Offer::Full]);
    session.pull(1, at(10), &limits);
    session.parted();
    assert!(session.pull(usize::MAX, at(11), &limits).is_empty());
    assert_eq!(session.dropped(), Dropped { full: 1, old: 2 });
    assert_eq!((session.messages(), session.bytes()), (0, 0));

    let few = Limits { queue_messages_max: 1, ..Limits::default() };
    offer(&mut session, 0, Qos::AtLeastOnce, at(11), &few);
    assert_eq!(offer(&mut session, 1, Qos::AtLeastOnce, at(11), &few), Offer::Full);
}

#[test]
fn quality_0_waits_for_nobody() {
    let limits = Limits::default();
    let mut session = Session::default();
    let away = session.offer(&message(0), Qos::AtMostOnce, Telling::Live, Presence::Away, at(0), &limits);
    assert_eq!(away, Offer::Missed);
    offer(&mut session, 1, Qos::AtMostOnce, at(0), &limits);
    offer(&mut session, 2, Qos::AtLeastOnce, at(0), &limits);
    session.parted();
    let out = session.pull(usize::MAX, at(0), &limits);
    assert_eq!(out.iter().map(number).collect::<Vec<_>>(), [2]);
}

#[derive(Clone, Debug)]
enum Step {
    Offer { qos: bool },
    Pull { bytes: usize },
    Acknowledge { at: usize },
    Part,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => any::<bool>().prop_map(|qos| Step::Offer { qos }),
        3 => (0usize..600).prop_map(|bytes| Step::Pull { bytes }),
        3 => (0usize..4).prop_map(|at| Step::Acknowledge { at }),
        1 => Just(Step::Part),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// A client that acknowledges what it likes, through any number of connections: it hears every message of quality 1
    /// that was taken, first hearings in order, a second one only marked, and the bounds hold at each moment.
    #[test]
    fn what_was_taken_with_quality_1_is_heard_in_order_through_any_breaks(steps in steps()) {
        let cost = message(0).cost_bytes();
        let limits = Limits { in_flight_max: 3, queue_messages_max: 8, queue_bytes_max: 7 * cost, ..Limits::default() };
        let mut session = Session::default();
        let (mut next, mut taken, mut heard, mut open) = (0, vec![], vec![], vec![]);
        let hear = |session: &mut Session, bytes, heard: &mut Vec<u32>, open: &mut Vec<Pid>| {
            for publish in session.pull(bytes, at(0), &limits) {
                let Handling::AtLeastOnce { pid, dup } = publish.handling else { continue };
                let number = number(&publish);
                assert_eq!(heard.contains(&number), dup, "heard before, and said so");
                if !dup {
                    heard.push(number);
                }
                assert!(!open.contains(&pid), "an identifier in use was used");
                open.push(pid);
            }
        };
        for step in steps {
            match step {
                Step::Offer { qos } => {
                    let qos = if qos { Qos::AtLeastOnce } else { Qos::AtMostOnce };
                    if offer(&mut session, next, qos, at(0), &limits) == Offer::Taken && qos == Qos::AtLeastOnce {
                        taken.push(next);
                    }
                    next += 1;
                }
                Step::Pull { bytes } => hear(&mut session, bytes, &mut heard, &mut open),
                Step::Acknowledge { at } if at < open.len() => session.acknowledged(open.remove(at)),
                Step::Acknowledge { .. } => {}
                Step::Part => { session.parted(); open.clear(); }
            }
            prop_assert!(session.messages() <= 8 && session.bytes() <= 7 * cost && open.len() <= 3);
        }
        session.parted();
        open.clear();
        while session.messages() > 0 {
            hear(&mut session, usize::MAX, &mut heard, &mut open);
            prop_assert!(!open.is_empty() || session.messages() == 0);
            open.drain(..).for_each(|pid| session.acknowledged(pid));
        }
        prop_assert_eq!(heard, taken);
        prop_assert_eq!(session.bytes(), 0);
    }
}
