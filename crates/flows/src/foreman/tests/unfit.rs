//! What does not fit costs the run that it is in, and nobody else.

use super::*;

/// PostgreSQL takes no NUL in a text, and what is refused is tried for ever.
#[test]
fn a_failed_expression_is_written_without_what_a_store_does_not_take() {
    let step = json!({"name": "a", "action": "a", "input": "input.m[input.k]"});
    let mut bench = Bench::new(json!({"name": "f", "steps": [step]}), json!({"m": {}, "k": "\u{0}x"}));
    assert!(bench.out().is_empty());
    let End::Failed(why) = &bench.written[0].end else { panic!("{:?}", bench.written) };
    assert!(!why.is_empty() && !why.contains('\0'), "{why:?}");
    assert_eq!(bench.answers[0]["state"], json!("failed"));
}

#[test]
fn whoever_waits_for_room_stands_in_line_once_and_leaves_with_its_run() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "x.a"}]}), json!(1));
    for n in 1..=3_600 {
        let Dispatch { key, attempt, .. } = bench.dispatched.pop().unwrap();
        assert_eq!(attempt.n, n);
        bench.say(Input::NoRoom { key, attempt, why: "all are full".into() });
        assert_eq!((bench.foreman.parked.len(), bench.foreman.clockwork.len()), (1, 1));
        bench.wait(1_000);
        assert_eq!((bench.foreman.parked.len(), bench.foreman.clockwork.len()), (0, 1), "its own, while it is out");
    }
    let Dispatch { key, attempt, .. } = bench.dispatched.pop().unwrap();
    bench.say(Input::NoRoom { key, attempt, why: "all are full".into() });
    bench.say(Input::Cancel(RunKey(1)));
    bench.wait(1_000);
    assert_eq!((bench.foreman.parked.len(), bench.foreman.clockwork.len(), bench.foreman.runs()), (0, 0, 0));
}

#[test]
fn room_is_not_offered_to_whoever_has_ended_while_somebody_waits() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "x.a", "each": "input", "at_once": 3}]});
    let mut bench = Bench::new(flow, json!([1, 2, 3]));
    let out = bench.out();
    for Dispatch { key, attempt, .. } in &out {
        bench.say(Input::NoRoom { key: *key, attempt: *attempt, why: "all are full".into() });
    }
    bench.report(&out[0], ok(json!("a try of an owner before")), 1);
    bench.say(Input::Room(out[0].action.clone()));
    assert_eq!(bench.dispatched.iter().map(|one| one.key.item).collect::<Vec<_>>(), [1]);
}

#[test]
fn reports_wait_while_as_much_waits_to_be_written_as_one_statement_takes() {
    let now = at(0);
    let rules = Rules { pending_bytes_max: 1_000, ..Rules::default() };
    let mut foreman = Foreman::new(1, rules, vec![], now);
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "a", "each": "input"}]});
    foreman.handle(Input::Admit(admitted(1, flow, json!([1, 2, 3]))), now);
    let poll = |foreman: &mut Foreman| foreman.poll(now);
    let out: Vec<Dispatch> = std::iter::from_fn(|| match poll(&mut foreman) {
        Some(Effect::Dispatch(dispatch)) => Some(dispatch),
        _ => None,
    })
    .collect();
    let large = |one: &Dispatch, mark| {
        Input::Report(Report { key: one.key, attempt: one.attempt, end: ok(json!("x".repeat(600))), node: None, mark })
    };
    foreman.handle(large(&out[0], 1), now);
    assert!(foreman.takes_reports());
    foreman.handle(large(&out[1], 2), now);
    assert!(!foreman.takes_reports() && !foreman.takes_runs());
    let Some(Effect::Write(batch)) = foreman.poll(now) else { panic!() };
    assert!(foreman.takes_reports(), "the next batch has room");
    foreman.handle(Input::Written(batch.number), now);
    foreman.handle(large(&out[2], 3), now);
    assert_eq!(std::iter::from_fn(|| foreman.poll(now)).filter(|effect| matches!(effect, Effect::Write(_))).count(), 1);
}

/// Sixty times 200 KB, of which a message could take one.
#[test]
fn an_input_that_no_message_could_hold_fails_its_step_before_it_is_put_together() {
    let fields: serde_json::Map<String, Value> = (0..60).map(|n| (format!("f{n}"), json!("steps.a.output"))).collect();
    for input in [json!(fields), json!("[steps.a.output, steps.a.output]")] {
        let flow = json!({"name": "f", "steps": [
            {"name": "a", "action": "a"}, {"name": "b", "action": "b", "after": ["a"], "input": input}]});
        let mut bench = Bench::new(flow, json!({}));
        let first = bench.out().remove(0);
        bench.report(&first, ok(json!("x".repeat(200_000))), 1);
        let answer = &bench.answers[0];
        assert_eq!((&answer["state"], &answer["failed_step"]), (&json!("failed"), &json!("b")));
        assert!(answer["reason"].as_str().unwrap().contains("more than 262144 bytes"), "{}", answer["reason"]);
        assert_eq!(bench.acknowledged, [1]);
    }
}

/// Of small numbers, a text has few bytes for each.
#[test]
fn an_input_that_a_message_holds_is_sent_however_many_values_it_has() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "a"}, {"name": "b", "action": "b"},
                                             {"name": "c", "action": "c", "after": ["a", "b"]}]});
    let mut bench = Bench::new(flow, json!({}));
    for out in bench.out() {
        bench.report(&out, ok(json!(vec![1; 60_000])), 1);
    }
    assert_eq!(bench.out().remove(0).input["a"].as_array().map(Vec::len), Some(60_000));
}
