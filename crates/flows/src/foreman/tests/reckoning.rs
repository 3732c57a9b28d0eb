//! What takes a while is worked out beside, and costs others no time.

use super::*;

fn large() -> Value {
    json!(vec![7; 20_000])
}

/// Each of two runs speaks of a large output in each of its items; a light one comes after them.
#[test]
fn what_takes_a_while_is_worked_out_beside_by_turns_while_others_are_sent() {
    let heavy = json!({"name": "heavy", "steps": [
        {"name": "big", "action": "x.big"},
        {"name": "many", "action": "x.many", "each": "input", "at_once": 1000, "input": "size(steps.big.output) + item"}]});
    let now = at(0);
    let mut foreman = Foreman::new(1, Rules::default(), vec![], now);
    let (mut asked, mut sent) = (Vec::new(), Vec::new());
    let list: Vec<u64> = (0..30).collect();
    for run in [1, 2] {
        foreman.handle(Input::Admit(admitted(run, heavy.clone(), json!(list))), now);
    }
    let mut pump = |foreman: &mut Foreman, sent: &mut Vec<Dispatch>| {
        while let Some(effect) = foreman.poll(now) {
            match effect {
                Effect::Reckon(reckoning) => asked.push(reckoning),
                Effect::Dispatch(dispatch) if dispatch.action.short() == "x.big" => {
                    let Dispatch { key, attempt, .. } = dispatch;
                    let report = Report { key, attempt, end: ok(large()), node: None, mark: key.run.0 };
                    foreman.handle(Input::Report(report), now);
                }
                Effect::Dispatch(dispatch) => sent.push(dispatch),
                Effect::Write(batch) => foreman.handle(Input::Written(batch.number), now),
                Effect::Recall { .. } | Effect::Acknowledge(_) | Effect::Announce(_) => {}
            }
        }
        asked.pop()
    };
    let first = pump(&mut foreman, &mut sent).expect("the first of the items");
    assert!(sent.is_empty());
    let light = json!({"name": "light", "steps": [{"name": "a", "action": "x.light", "input": "input + 1"}]});
    foreman.handle(Input::Admit(admitted(3, light, json!(1))), now);
    assert!(pump(&mut foreman, &mut sent).is_none(), "one at a time");
    assert_eq!(sent.pop().map(|one| (one.key.run, one.input)), Some((RunKey(3), json!(2))), "while that is worked out");
    let (mut next, mut turns) = (Some(first), Vec::new());
    while let Some(reckoning) = next {
        foreman.handle(Input::Reckoned(Box::new(reckoning.reckon())), now);
        next = pump(&mut foreman, &mut sent);
        let one = sent.pop().expect("what was worked out is sent");
        assert_eq!(one.input, json!(20_000 + u64::from(one.key.item)));
        turns.push(one.key.run.0);
    }
    assert_eq!(turns.len(), 60);
    assert!(turns[1..50].windows(2).all(|two| two[0] != two[1]), "each in its turn: {turns:?}");
}

#[test]
fn a_large_run_opens_its_steps_and_ends_as_a_small_one_does() {
    let flow = json!({"name": "f", "output": "steps.b.output.map(n, n + 1)", "steps": [
        {"name": "a", "action": "a"}, {"name": "skipped", "action": "a", "when": "size(steps.a.output) < 3"},
        {"name": "b", "action": "b", "each": "steps.a.output.filter(n, n > 7)", "input": "[item, steps.a.output[index]]"}]});
    let mut bench = Bench::new(flow, json!({}));
    let mut list = large();
    (list[5], list[6]) = (json!(8), json!(9));
    let first = bench.out().remove(0);
    bench.report(&first, ok(list), 1);
    let both = bench.out();
    assert_eq!(both.iter().map(|one| one.input.clone()).collect::<Vec<_>>(), [json!([8, 7]), json!([9, 7])]);
    assert_eq!(bench.reckoned, 4, "whether two of its steps begin, and what two tasks are given");
    bench.report(&both[0], ok(json!(1)), 2);
    bench.report(&both[1], ok(json!("x".repeat(20_000))), 3);
    assert_eq!(bench.answers[0]["failed_step"], Value::Null);
    assert!(bench.answers[0]["reason"].as_str().unwrap().starts_with("output: "), "{}", bench.answers[0]["reason"]);
    assert_eq!((bench.reckoned, bench.acknowledged.len(), bench.foreman.runs()), (5, 3, 0));
}

#[test]
fn what_does_much_is_worked_out_beside_however_little_it_looks_at() {
    let busy = json!({"name": "f", "steps": [
        {"name": "a", "action": "a", "input": "size(input.map(a, input.map(b, a * b)))"}]});
    let list: Vec<u32> = (0..300).collect();
    let mut bench = Bench::new(busy, json!(list));
    assert_eq!((bench.out().remove(0).input, bench.reckoned), (json!(300), 1));
    let light = json!({"name": "f", "steps": [{"name": "a", "action": "a", "input": "input.map(a, a * 2)"}]});
    let mut bench = Bench::new(light, json!([1, 2]));
    assert_eq!((bench.out().remove(0).input, bench.reckoned), (json!([2, 4]), 0));
}

#[test]
fn nothing_is_worked_out_for_a_run_that_is_over() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "a", "each": "input", "input": "size(input) + size(item)"}]});
    let now = at(0);
    let mut foreman = Foreman::new(1, Rules::default(), vec![], now);
    foreman.handle(Input::Admit(admitted(1, flow, json!(vec!["x".repeat(9_000); 3]))), now);
    let Some(Effect::Reckon(reckoning)) = foreman.poll(now) else { panic!("it is large") };
    foreman.handle(Input::Cancel(RunKey(1)), now);
    foreman.handle(Input::Reckoned(Box::new(reckoning.reckon())), now);
    let mut answered = 0;
    while let Some(effect) = foreman.poll(now) {
        match effect {
            Effect::Write(batch) => foreman.handle(Input::Written(batch.number), now),
            Effect::Announce(told) => {
                answered += 1;
                foreman.handle(Input::Announced(told.key()), now);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((answered, foreman.runs()), (1, 0));
}

/// What a node says of a task that it had of the owner before may be there before it is known again that there is such a task.
#[test]
fn a_result_that_comes_while_its_step_is_worked_out_again_waits_for_it() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "a", "each": "input.map(one, size(one))"}]});
    let run = admitted(1, flow, json!(vec!["x".repeat(9_000); 2]));
    let stored = Stored { admitted: run, outcomes: vec![], tries: vec![], noted: vec![], end: None };
    let now = at(0);
    for cancelled in [false, true] {
        let mut foreman = Foreman::new(2, Rules::default(), vec![stored.clone()], now);
        let Some(Effect::Reckon(reckoning)) = foreman.poll(now) else { panic!("it is large") };
        let attempt = Attempt { generation: 1, n: 1 };
        let key = StepKey { run: RunKey(1), step: 0, item: 1 };
        foreman.handle(Input::Report(Report { key, attempt, end: ok(json!("done")), node: None, mark: 7 }), now);
        assert!(foreman.poll(now).is_none(), "nothing is durable yet");
        if cancelled {
            foreman.handle(Input::Cancel(RunKey(1)), now);
        }
        foreman.handle(Input::Reckoned(Box::new(reckoning.reckon())), now);
        let (mut written, mut acknowledged, mut sent) = (0, 0, Vec::new());
        while let Some(effect) = foreman.poll(now) {
            match effect {
                Effect::Write(batch) => {
                    written += batch.outcomes.len();
                    foreman.handle(Input::Written(batch.number), now);
                }
                Effect::Acknowledge(7) => acknowledged += 1,
                Effect::Dispatch(dispatch) => sent.push(dispatch.key.item),
                _ => {}
            }
        }
        let expected = if cancelled { (0, 1, vec![]) } else { (1, 1, vec![0]) };
        assert_eq!((written, acknowledged, sent), expected);
    }
}
