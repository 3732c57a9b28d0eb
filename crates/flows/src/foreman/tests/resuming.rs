//! What a node has had for a while is asked of it again by the next owner, and not done anew.

use super::words::Noted;
use super::*;

fn flow() -> Value {
    json!({"name": "f", "steps": [{"name": "a", "action": "x.a", "retries": 1}]})
}

fn key() -> StepKey {
    StepKey { run: RunKey(1), step: 0, item: 0 }
}

fn sent(dispatch: &Dispatch, node: &str) -> Input {
    let (key, attempt, node) = (dispatch.key, dispatch.attempt, node.parse().unwrap());
    Input::Sent { key, attempt, node, over: Protocol::Mqtt, why: "its turn".into() }
}

/// Read back by a new owner, with what the one before had noted.
fn next_owner(noted: Vec<Noted>) -> Foreman {
    let stored = Stored { admitted: admitted(1, flow(), json!({})), outcomes: vec![], tries: vec![], noted, end: None };
    Foreman::new(2, Rules::default(), vec![stored], at(0))
}

fn dispatched(foreman: &mut Foreman, now: Now) -> Dispatch {
    let effect = foreman.poll(now);
    let Some(Effect::Dispatch(dispatch)) = effect else { panic!("{effect:?}") };
    dispatch
}

fn noted() -> Noted {
    let (attempt, node) = (Attempt { generation: 1, n: 7 }, "n1".parse().unwrap());
    Noted { key: key(), attempt, node, since: Timestamp(2_000) }
}

/// When it is written down where a task is, of an action whose tasks took so long so far.
fn noted_after(took_ms: &[u64]) -> u64 {
    let mut foreman = Foreman::new(1, Rules::default(), vec![], at(0));
    let mut ms = 0;
    for (n, took) in took_ms.iter().enumerate() {
        foreman.handle(Input::Admit(admitted(10 + n as u64, flow(), json!({}))), at(ms));
        let out = dispatched(&mut foreman, at(ms));
        ms += took;
        let report = Report { key: out.key, attempt: out.attempt, end: ok(json!(1)), node: None, mark: 1 };
        foreman.handle(Input::Report(report), at(ms));
        while let Some(effect) = foreman.poll(at(ms)) {
            if let Effect::Write(batch) = effect {
                foreman.handle(Input::Written(batch.number), at(ms));
            }
        }
    }
    foreman.handle(Input::Admit(admitted(1, flow(), json!({}))), at(ms));
    let out = dispatched(&mut foreman, at(ms));
    foreman.handle(sent(&out, "n1"), at(ms));
    for after in 0..100 {
        foreman.handle(Input::Tick, at(ms + after));
        if let Some(Effect::Write(batch)) = foreman.poll(at(ms + after)) {
            let (node, since) = ("n1".parse().unwrap(), at(ms).wall);
            assert_eq!(batch.noted, [Noted { key: key(), attempt: out.attempt, node, since }]);
            return after;
        }
    }
    panic!("it is not written down");
}

#[test]
fn where_a_task_is_gets_written_down_at_once_unless_such_are_soon_over() {
    assert_eq!(noted_after(&[]), 0, "nobody knows yet");
    assert_eq!(noted_after(&[4_000]), 0);
    assert_eq!(noted_after(&[1]), 25);
    assert_eq!((noted_after(&[1, 30]), noted_after(&[30, 1])), (0, 25), "the last counts");
}

#[test]
fn one_that_ends_sooner_or_is_done_in_this_process_is_not_written_down() {
    let mut bench = Bench::new(flow(), json!({}));
    let out = bench.out().remove(0);
    let Input::Sent { key, attempt, node, why, .. } = sent(&out, "manager") else { panic!() };
    bench.say(Input::Sent { key, attempt, node, over: Protocol::Here, why });
    assert_eq!(bench.foreman.clockwork.len(), 1, "only when it will be overdue");
    let mut bench = Bench::new(flow(), json!({}));
    let out = bench.out().remove(0);
    bench.say(sent(&out, "n"));
    bench.report(&out, ok(json!(1)), 1);
    assert_eq!(bench.foreman.clockwork.len(), 0);
}

#[test]
fn the_next_owner_asks_the_same_node_under_the_same_attempt() {
    let mut foreman = next_owner(vec![noted()]);
    let now = at(0);
    let first = dispatched(&mut foreman, now);
    assert_eq!((first.attempt, first.place.node.as_ref().map(NodeId::as_str)), (noted().attempt, Some("n1")));
    // It has not come back yet.
    foreman.handle(Input::NoRoom { key: key(), attempt: first.attempt, why: "it is not there".into() }, now);
    let now = at(1_000);
    foreman.handle(Input::Tick, now);
    let again = dispatched(&mut foreman, now);
    assert_eq!((again.attempt, &again.place), (first.attempt, &first.place));
    foreman.handle(sent(&again, "n1"), now);
    let report = Report { key: key(), attempt: again.attempt, end: ok(json!("done before")), node: None, mark: 1 };
    foreman.handle(Input::Report(report), now);
    let Some(Effect::Write(batch)) = foreman.poll(now) else { panic!() };
    assert_eq!(batch.outcomes[0].end, ok(json!("done before")));
}

#[test]
fn a_node_that_does_not_come_back_is_not_waited_for() {
    let mut foreman = next_owner(vec![noted()]);
    let mut now = at(0);
    let until = Rules::default().resume_within.as_millis() as u64;
    for ms in (0..=until).step_by(1_000) {
        now = at(ms);
        foreman.handle(Input::Tick, now);
        let out = dispatched(&mut foreman, now);
        assert_eq!(out.place.node.is_some(), ms < until, "after {ms} ms");
        foreman.handle(Input::NoRoom { key: key(), attempt: out.attempt, why: "it is not there".into() }, now);
    }
    now = at(now.mono.0.as_millis() as u64 + 1_000);
    foreman.handle(Input::Tick, now);
    assert_eq!(dispatched(&mut foreman, now).attempt.generation, 2, "it is a new attempt, for any node");
}

#[test]
fn what_failed_or_was_lost_there_is_no_more_asked_for_there() {
    let mut foreman = next_owner(vec![noted()]);
    let first = dispatched(&mut foreman, at(0));
    foreman.handle(sent(&first, "n1"), at(0));
    foreman.handle(Input::NodeLost("n1".parse().unwrap()), at(1));
    foreman.handle(Input::Tick, at(1_000));
    let second = dispatched(&mut foreman, at(1_000));
    assert_eq!((second.attempt.generation, second.place.node.clone()), (2, None));
    // Its note, and that it failed, in one batch: the note is of no use.
    foreman.handle(sent(&second, "n2"), at(1_000));
    foreman.handle(Input::Tick, at(1_025));
    let report = Report { key: key(), attempt: second.attempt, end: failed(), node: None, mark: 1 };
    foreman.handle(Input::Report(report), at(1_025));
    let Some(Effect::Write(batch)) = foreman.poll(at(1_025)) else { panic!() };
    assert_eq!((batch.noted.len(), batch.tries.len()), (0, 1));
}

#[test]
fn a_step_took_as_long_as_its_node_had_it_whoever_owned_the_run() {
    for (since, took) in [(Timestamp(2_000), 10_000), (Timestamp(0), 7_000)] {
        let mut foreman = Foreman::new(2, Rules::default(), vec![], at(5_000));
        let noted = vec![Noted { since, ..noted() }];
        let admitted = admitted(1, flow(), json!({}));
        let stored = Stored { admitted, outcomes: vec![], tries: vec![], noted, end: None };
        foreman.handle(Input::Found(Box::new(stored)), at(5_000));
        let out = dispatched(&mut foreman, at(5_000));
        foreman.handle(sent(&out, "n1"), at(5_000));
        foreman.handle(Input::Tick, at(5_000));
        let Some(Effect::Write(batch)) = foreman.poll(at(5_000)) else { panic!("it is written down again") };
        assert_eq!(batch.noted[0].since.0, 12_000 - took, "for whoever owns it after this one");
        foreman.handle(Input::Written(batch.number), at(5_000));
        let report = Report { key: out.key, attempt: out.attempt, end: ok(json!(1)), node: None, mark: 1 };
        foreman.handle(Input::Report(report), at(12_000));
        let Some(Effect::Write(batch)) = foreman.poll(at(12_000)) else { panic!("it is written") };
        assert_eq!(batch.outcomes[0].ended_at.since(batch.outcomes[0].began_at), Duration::from_millis(took as u64));
    }
}

#[test]
fn a_step_took_as_long_as_its_node_had_it_also_where_nobody_waited_for_that_answer_any_more() {
    // The node says what it did before it says that it is there: nothing is out.
    for waited_ms in [6_000, 40_000] {
        let mut foreman = Foreman::new(2, Rules::default(), vec![], at(5_000));
        let admitted = admitted(1, flow(), json!({}));
        let stored = Stored { admitted, outcomes: vec![], tries: vec![], noted: vec![noted()], end: None };
        foreman.handle(Input::Found(Box::new(stored)), at(5_000));
        for ms in (5_000..waited_ms).step_by(1_000) {
            foreman.handle(Input::Tick, at(ms));
            let out = dispatched(&mut foreman, at(ms));
            foreman.handle(Input::NoRoom { key: key(), attempt: out.attempt, why: "it is not there".into() }, at(ms));
        }
        let report = Report { key: key(), attempt: noted().attempt, end: ok(json!(1)), node: None, mark: 1 };
        foreman.handle(Input::Report(report), at(waited_ms));
        let Some(Effect::Write(batch)) = foreman.poll(at(waited_ms)) else { panic!("it is written") };
        assert_eq!((batch.outcomes[0].began_at, batch.outcomes[0].ended_at), (Timestamp(2_000), at(waited_ms).wall));
    }
}
