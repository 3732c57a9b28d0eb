//! The hub without sockets: who hears what, who is cut off, whose will is read, what is bounded.

use std::time::Duration;

use super::*;
use crate::codec::Handling;
use crate::gate::{Refusal, Rights, Standing};
use crate::topics::tests::{filter, name};

const FIRST: ConnId = ConnId(1);
const SECOND: ConnId = ConnId(2);
const THIRD: ConnId = ConnId(3);

fn at(seconds: u64) -> Mono {
    Mono(Duration::from_secs(seconds))
}

fn hub(limits: Limits) -> Hub<&'static str> {
    Hub::new(limits)
}

fn guest(who: &str, rights: &str) -> Guest {
    let rights = Rights { publish: vec![filter(rights)], subscribe: vec![filter(rights)] };
    Guest { who: who.into(), standing: Standing::Known, rights, sessions_max: 2 }
}

fn arrival(who: &str, client_id: &str) -> Arrival {
    Arrival { guest: guest(who, "#"), client_id: client_id.into(), clean: false, will: None }
}

fn will(topic: &str) -> Option<Will> {
    Some(Will { topic: name(topic), payload: "gone".into(), qos: Qos::AtLeastOnce, retain: false })
}

fn say(topic: &str, payload: &'static str) -> Publish {
    Publish { topic: name(topic), payload: payload.into(), handling: Handling::AtMostOnce, retain: false }
}

fn order(topic: &str, payload: &'static str, retain: bool) -> Message {
    Message { topic: name(topic), payload: payload.into(), qos: Qos::AtLeastOnce, retain, wanted: None }
}

/// Comes in and is cut loose: `gone` tells whether it was cut off.
fn come(hub: &mut Hub<&'static str>, conn: ConnId, arrival: Arrival) -> (bool, Handle) {
    let handle = Handle::default();
    let welcome = hub.connect(conn, arrival, handle.clone(), at(0)).unwrap();
    (welcome.session_present, handle)
}

fn heard(hub: &mut Hub<&'static str>, conn: ConnId) -> Vec<String> {
    let out = hub.pull(conn, usize::MAX, at(0));
    out.iter().map(|publish| String::from_utf8_lossy(&publish.payload).into_owned()).collect()
}

fn wants(hub: &mut Hub<&'static str>, conn: ConnId, wanted: &str) -> Option<Qos> {
    hub.subscribe(conn, &[(filter(wanted), Qos::ExactlyOnce)], at(0))[0]
}

#[test]
fn who_subscribed_by_several_filters_hears_once_with_the_best_quality_which_is_1() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "1"));
    assert_eq!(hub.subscribe(FIRST, &[(filter("x/+"), Qos::AtMostOnce)], at(0)), [Some(Qos::AtMostOnce)]);
    assert_eq!(wants(&mut hub, FIRST, "x/#"), Some(Qos::AtLeastOnce));
    hub.publish_from_program(order("x/y", "once", false), None, at(0));
    let out = hub.pull(FIRST, usize::MAX, at(0));
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].handling.qos(), Qos::AtLeastOnce);
    hub.unsubscribe(FIRST, &[filter("x/#"), filter("x/+"), filter("never")]);
    hub.publish_from_program(order("x/y", "again", false), None, at(0));
    assert!(heard(&mut hub, FIRST).is_empty());
    assert!(hub.subscribers.is_empty());
}

#[test]
fn nobody_hears_or_says_what_they_may_not_nor_what_they_may_no_longer() {
    let mut hub = hub(Limits::default());
    let device = |rights| Arrival { guest: guest("d", rights), ..arrival("d", "1") };
    come(&mut hub, FIRST, device("d/#"));
    assert_eq!(wants(&mut hub, FIRST, "#"), None);
    assert_eq!(wants(&mut hub, FIRST, "d/in"), Some(Qos::AtLeastOnce));
    assert_eq!(hub.publish(FIRST, say("e", "x"), at(0)).unwrap_err(), Fault::MayNotPublish(name("e")));
    assert_eq!(hub.publish(FIRST, say("$SYS/d", "x"), at(0)).unwrap_err(), Fault::MayNotPublish(name("$SYS/d")));
    let heir = Arrival { will: will("e"), ..device("d/#") };
    assert_eq!(hub.connect(SECOND, heir, Handle::default(), at(0)).unwrap_err(), Refusal::NotAuthorized);
    // Its rights shrink while it is away.
    hub.closed(FIRST, Farewell::Said, at(0));
    assert!(come(&mut hub, SECOND, device("d/out")).0);
    hub.publish_from_program(order("d/in", "x", false), None, at(0));
    assert!(heard(&mut hub, SECOND).is_empty());
    assert_eq!(hub.counts().publishes_denied, 3);
    assert_eq!(hub.counts().subscriptions_denied, 1);
}

#[test]
fn a_place_is_taken_over_by_the_same_guest_only_and_the_will_is_read_before_anything_else() {
    let mut hub = hub(Limits::default());
    hub.open_port(&[filter("will")], "inbox");
    let (_, former) = come(&mut hub, FIRST, Arrival { will: will("will"), ..arrival("a", "1") });
    wants(&mut hub, FIRST, "x");
    let (present, stranger) = come(&mut hub, SECOND, arrival("b", "1"));
    assert!(!present && !former.gone.is_cancelled());
    let welcome = hub.connect(THIRD, arrival("a", "1"), Handle::default(), at(1)).unwrap();
    assert!(welcome.session_present && former.gone.is_cancelled() && !stranger.gone.is_cancelled());
    let routed = welcome.will.unwrap();
    assert_eq!((&routed.message.payload[..], routed.ports), (&b"gone"[..], vec!["inbox"]));
    // What the former one still says or leaves is nothing any more.
    assert_eq!(hub.publish(FIRST, say("x", "late"), at(1)).unwrap_err(), Fault::Gone);
    assert!(hub.closed(FIRST, Farewell::Unsaid, at(1)).is_none());
    hub.publish_from_program(order("x", "to the new one", false), None, at(1));
    assert_eq!(heard(&mut hub, THIRD), ["to the new one"]);
    assert_eq!(hub.counts().taken_over, 1);
}

#[test]
fn a_will_is_read_unless_goodbye_was_said() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "listener"));
    wants(&mut hub, FIRST, "will");
    for (farewell, expected) in [(Farewell::Said, 0), (Farewell::Unsaid, 1)] {
        come(&mut hub, SECOND, Arrival { will: will("will"), ..arrival("b", "1") });
        hub.closed(SECOND, farewell, at(0));
        assert_eq!(heard(&mut hub, FIRST).len(), expected, "{farewell:?}");
    }
}

#[test]
fn a_kept_session_finds_what_was_said_while_it_was_away_and_a_clean_one_finds_nothing() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "kept"));
    come(&mut hub, SECOND, Arrival { clean: true, ..arrival("a", "clean") });
    for conn in [FIRST, SECOND] {
        wants(&mut hub, conn, "x");
        hub.closed(conn, Farewell::Unsaid, at(0));
    }
    let routed = hub.publish_from_program(order("x", "meanwhile", false), None, at(0));
    assert_eq!((routed.here, routed.away, routed.full), (0, 1, 0));
    assert!(come(&mut hub, FIRST, arrival("a", "kept")).0);
    assert!(!come(&mut hub, SECOND, Arrival { clean: true, ..arrival("a", "clean") }).0);
    assert_eq!((heard(&mut hub, FIRST).len(), heard(&mut hub, SECOND).len()), (1, 0));
    // Whoever asks for a clean beginning has one, and what waited is gone.
    assert!(!come(&mut hub, THIRD, Arrival { clean: true, ..arrival("a", "kept") }).0);
    hub.publish_from_program(order("x", "to nobody", false), None, at(0));
    assert!(heard(&mut hub, THIRD).is_empty());
}

#[test]
fn what_is_retained_is_told_to_those_who_come_later_marked_and_live_ones_are_not_marked() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "1"));
    wants(&mut hub, FIRST, "x");
    hub.publish_from_program(order("x", "kept", true), None, at(0));
    come(&mut hub, SECOND, arrival("a", "2"));
    wants(&mut hub, SECOND, "#");
    let (live, later) = (hub.pull(FIRST, usize::MAX, at(0)), hub.pull(SECOND, usize::MAX, at(0)));
    assert_eq!((live[0].retain, later[0].retain), (false, true));
}

#[test]
fn messages_of_quality_2_are_routed_once_but_one_that_was_never_accepted_counts_as_unheard() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "1"));
    let pid = Pid::new(7).unwrap();
    let again = || Publish { handling: Handling::ExactlyOnce { pid, dup: true }, ..say("x", "y") };
    let routed = |hub: &mut Hub<_>, conn| matches!(hub.publish(conn, again(), at(0)), Ok(Heard::New(_)));
    assert!(routed(&mut hub, FIRST));
    // Its connection is taken over before the program accepted it.
    come(&mut hub, SECOND, arrival("a", "1"));
    assert!(routed(&mut hub, SECOND));
    hub.accepted(SECOND, pid);
    come(&mut hub, THIRD, arrival("a", "1"));
    assert!(!routed(&mut hub, THIRD));
    hub.released(THIRD, pid);
    assert!(routed(&mut hub, THIRD));
}

#[test]
fn a_guest_has_only_so_many_sessions_and_loses_its_own_that_is_away_longest() {
    let mut hub = hub(Limits::default());
    for (conn, id) in [(FIRST, "1"), (SECOND, "2")] {
        come(&mut hub, conn, arrival("a", id));
    }
    let third = hub.connect(THIRD, arrival("a", "3"), Handle::default(), at(0));
    assert_eq!(third.unwrap_err(), Refusal::Unavailable);
    come(&mut hub, ConnId(9), arrival("b", "1"));
    hub.closed(SECOND, Farewell::Said, at(1));
    hub.closed(FIRST, Farewell::Said, at(2));
    come(&mut hub, THIRD, arrival("a", "3"));
    assert!(come(&mut hub, FIRST, arrival("a", "1")).0);
    assert_eq!((hub.gauges().sessions, hub.counts().sessions_forgotten), (3, 1));
}

#[test]
fn what_waits_for_all_together_is_bounded_and_is_freed_with_what_held_it() {
    let cost = order("x", "1234", false).cost_bytes();
    let mut hub = hub(Limits { held_bytes_max: 2 * cost, ..Limits::default() });
    for (conn, id) in [(FIRST, "1"), (SECOND, "2")] {
        come(&mut hub, conn, arrival("a", id));
        wants(&mut hub, conn, "x");
    }
    let first = hub.publish_from_program(order("x", "1234", false), None, at(0));
    let second = hub.publish_from_program(order("x", "1234", false), None, at(0));
    assert_eq!((first.here, first.full, second.here, second.full), (2, 0, 0, 2));
    assert_eq!(hub.counts().dropped_full, 2);
    let Handling::AtLeastOnce { pid, .. } = hub.pull(FIRST, usize::MAX, at(0))[0].handling else { panic!() };
    hub.acknowledged(FIRST, pid);
    assert_eq!(hub.gauges().waiting_bytes, cost);
    assert_eq!(hub.expel("a"), 2);
    assert_eq!(hub.gauges(), Gauges::default());
}

#[test]
fn who_stays_away_too_long_is_forgotten_and_so_is_what_waited_too_long() {
    let limits = Limits {
        queue_age_max: Duration::from_secs(10),
        session_away_max: Duration::from_secs(20),
        ..Limits::default()
    };
    let mut hub = hub(limits);
    come(&mut hub, FIRST, arrival("a", "1"));
    wants(&mut hub, FIRST, "x");
    hub.closed(FIRST, Farewell::Unsaid, at(0));
    hub.publish_from_program(order("x", "y", false), None, at(0));
    hub.sweep(at(10));
    assert_eq!(hub.gauges().waiting_messages, 1);
    hub.sweep(at(11));
    assert_eq!((hub.gauges().waiting_messages, hub.counts().dropped_old), (0, 1));
    hub.sweep(at(21));
    assert_eq!((hub.gauges(), hub.counts().sessions_forgotten), (Gauges::default(), 1));
    assert!(hub.subscribers.is_empty());
}

#[test]
fn an_inbox_that_is_gone_takes_nothing_until_its_topics_are_given_back() {
    let mut hub = hub(Limits::default());
    come(&mut hub, FIRST, arrival("a", "1"));
    let id = hub.open_port(&[filter("x")], "inbox");
    let routed = |hub: &mut Hub<_>| match hub.publish(FIRST, say("x", "y"), at(0)) {
        Ok(Heard::New(routed)) => (routed.ports, routed.port_gone),
        other => panic!("{other:?}"),
    };
    assert_eq!(routed(&mut hub), (vec!["inbox"], false));
    assert!(hub.publish_from_program(order("x", "own", false), None, at(0)).ports.is_empty());
    hub.close_ports();
    assert_eq!(routed(&mut hub), (vec![], true));
    hub.close_port(id, &[filter("x")]);
    assert_eq!(routed(&mut hub), (vec![], false));
}

#[test]
fn a_session_has_only_so_many_subscriptions() {
    let mut hub = hub(Limits { subscriptions_max: 1, ..Limits::default() });
    come(&mut hub, FIRST, arrival("a", "1"));
    assert!(wants(&mut hub, FIRST, "x").is_some() && wants(&mut hub, FIRST, "y").is_none());
    assert!(wants(&mut hub, FIRST, "x").is_some());
    let same = [(filter("x"), Qos::AtMostOnce), (filter("x"), Qos::AtMostOnce)];
    assert_eq!(hub.subscribe(FIRST, &same, at(0)), [Some(Qos::AtMostOnce), None]);
    assert_eq!(hub.counts().subscriptions_denied, 2);
}
