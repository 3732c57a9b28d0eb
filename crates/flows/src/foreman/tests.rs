mod ending;
mod reckoning;
mod resuming;
mod unfit;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mutirao_nodes::Namespace;
use serde_json::{Value, json};

use super::words::{Admitted, Asker, Dispatch, End, Outcome, Report, Stored, Try};
use super::*;
use crate::FlowSpec;
use crate::definition::check::Catalogue;

pub(super) fn admitted(run: u64, flow: Value, input: Value) -> Admitted {
    let spec: FlowSpec = serde_json::from_value(flow).unwrap();
    let plan =
        spec.plan(&Namespace::default(), Catalogue::Unknown).unwrap_or_else(|problem| panic!("{}", problem.line()));
    Admitted { key: RunKey(run), plan: Arc::new(plan), input, started_at: Timestamp(0), asker: Asker::Client }
}

fn at(ms: u64) -> Now {
    Now { mono: Mono(Duration::from_millis(ms)), wall: Timestamp(ms as i64) }
}

/// A foreman and a store that always works, for what is easier told one by one than by chance.
struct Bench {
    foreman: Foreman,
    now: Now,
    dispatched: Vec<Dispatch>,
    recalled: Vec<StepKey>,
    written: Vec<Outcome>,
    acknowledged: Vec<u64>,
    answers: Vec<Value>,
    reckoned: usize,
}

impl Bench {
    fn new(flow: Value, input: Value) -> Self {
        let now = at(0);
        let mut foreman = Foreman::new(1, Rules::default(), vec![], now);
        foreman.handle(Input::Admit(admitted(1, flow, input)), now);
        let mut bench = Self {
            foreman,
            now,
            dispatched: vec![],
            recalled: vec![],
            written: vec![],
            acknowledged: vec![],
            answers: vec![],
            reckoned: 0,
        };
        bench.settle();
        bench
    }

    /// Does all that is to be done.
    fn settle(&mut self) {
        while let Some(effect) = self.foreman.poll(self.now) {
            match effect {
                Effect::Dispatch(dispatch) => self.dispatched.push(dispatch),
                Effect::Recall { key, .. } => self.recalled.push(key),
                Effect::Write(batch) => {
                    self.written.extend(batch.outcomes.iter().cloned());
                    self.foreman.handle(Input::Written(batch.number), self.now);
                }
                Effect::Acknowledge(mark) => self.acknowledged.push(mark),
                Effect::Reckon(reckoning) => {
                    self.reckoned += 1;
                    self.foreman.handle(Input::Reckoned(Box::new(reckoning.reckon())), self.now);
                }
                Effect::Announce(told) => {
                    let run = told.key();
                    self.answers.push(told.answer());
                    self.foreman.handle(Input::Announced(run), self.now);
                }
            }
        }
    }

    fn out(&mut self) -> Vec<Dispatch> {
        std::mem::take(&mut self.dispatched)
    }

    fn report(&mut self, dispatch: &Dispatch, end: End, mark: u64) {
        let node = Some("n".parse().unwrap());
        self.say(Input::Report(Report { key: dispatch.key, attempt: dispatch.attempt, end, node, mark }));
    }

    fn say(&mut self, input: Input) {
        self.foreman.handle(input, self.now);
        self.settle();
    }

    fn wait(&mut self, ms: u64) {
        self.now =
            Now { mono: self.now.mono.plus(Duration::from_millis(ms)), wall: Timestamp(self.now.wall.0 + ms as i64) };
        self.say(Input::Tick);
    }
}

fn ok(value: Value) -> End {
    End::Ok(value.into())
}

fn failed() -> End {
    End::Failed("no".into())
}

fn names(dispatches: &[Dispatch]) -> Vec<String> {
    dispatches.iter().map(|one| one.action.short().to_owned()).collect()
}

#[test]
fn steps_without_open_dependencies_go_together_and_the_rest_when_theirs_have_ended() {
    let mut bench = Bench::new(
        json!({"name": "f", "steps": [
            {"name": "a", "action": "a"}, {"name": "b", "action": "b"},
            {"name": "c", "action": "c", "input": "steps.a.output + steps.b.output"}
        ]}),
        json!({}),
    );
    let first = bench.out();
    assert_eq!(names(&first), ["a", "b"]);
    bench.report(&first[0], ok(json!(1)), 1);
    assert!(bench.out().is_empty());
    bench.wait(40);
    bench.report(&first[1], ok(json!(2)), 2);
    let last = bench.out();
    assert_eq!((names(&last), &last[0].input), (vec!["c".to_owned()], &json!(3)));
    bench.report(&last[0], ok(json!("x")), 3);
    let answer = &bench.answers[0];
    assert_eq!((&answer["state"], &answer["output"]), (&json!("done"), &json!("x")));
    assert_eq!(
        answer["steps"]["b"],
        json!({"state": "ok", "output": 2, "tries": 0, "began_at": 0, "node": "n", "took_ms": 40})
    );
    assert_eq!(bench.acknowledged, [1, 2, 3]);
    assert_eq!(bench.foreman.runs(), 0);
}

#[test]
fn a_list_goes_so_many_at_once_and_gives_a_list_in_its_order() {
    let mut bench = Bench::new(
        json!({"name": "f", "steps": [
            {"name": "each", "action": "a", "each": "input", "at_once": 2, "input": "item * 10"},
            {"name": "sum", "action": "b", "after": ["each"]}
        ]}),
        json!([1, 2, 3, 4]),
    );
    let mut waiting = bench.out();
    let mut most = 0;
    while let Some(one) = waiting.pop().filter(|one| one.action.short() == "a") {
        most = most.max(waiting.len() + 1);
        bench.report(&one, ok(one.input.clone()), 0);
        waiting.extend(bench.out());
    }
    assert_eq!(most, 2);
    let mut empty =
        Bench::new(json!({"name": "f", "steps": [{"name": "e", "action": "a", "each": "input"}]}), json!([]));
    assert!(empty.out().is_empty());
    assert_eq!(empty.answers[0]["output"], json!([]));
    let last = bench.written.iter().map(|outcome| outcome.key.item).collect::<BTreeSet<_>>();
    assert_eq!(last, (0..4).collect());
}

#[test]
fn what_is_skipped_is_not_sent_and_a_join_may_look_at_it() {
    let mut bench = Bench::new(
        json!({"name": "f", "steps": [
            {"name": "a", "action": "a", "when": "input.go"},
            {"name": "b", "action": "b", "after": ["a"]},
            {"name": "c", "action": "c", "when": "steps.a.skipped", "input": "{'from': 'c'}"}
        ], "output": "steps.c.output"}),
        json!({"go": false}),
    );
    let out = bench.out();
    assert_eq!(names(&out), ["c"]);
    bench.report(&out[0], ok(json!(5)), 1);
    assert_eq!(bench.answers[0]["output"], json!(5));
    assert_eq!(bench.answers[0]["steps"]["b"], json!({"state": "skipped"}));
}

#[test]
fn the_first_ok_counts_however_late_and_stale_failures_do_not() {
    let mut bench = Bench::new(
        json!({"name": "f", "steps": [{"name": "a", "action": "a", "timeout": "1s", "retries": 1}]}),
        json!({}),
    );
    let first = bench.out().remove(0);
    bench.wait(1_000);
    assert_eq!(bench.recalled, [first.key]);
    bench.wait(100);
    let second = bench.out().remove(0);
    assert!(second.attempt > first.attempt);
    bench.report(&first, failed(), 1);
    assert!(bench.answers.is_empty(), "the one that is out may yet do well");
    bench.report(&first, ok(json!("late")), 2);
    bench.report(&second, ok(json!("doubled")), 3);
    assert_eq!(bench.answers.len(), 1);
    assert_eq!(bench.answers[0]["output"], json!("late"));
    assert_eq!(bench.written.len(), 1);
    assert_eq!(bench.acknowledged, [1, 2, 3]);
}

#[test]
fn tries_in_vain_are_so_many_and_then_the_run_fails_with_its_step_and_reason() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "a", "retries": 2}]}), json!({}));
    for tries in 0..3 {
        let out = bench.out();
        assert_eq!(out.len(), 1, "after {tries} tries");
        assert_eq!(out[0].not.is_some(), tries > 0, "it is told where not to go again");
        bench.report(&out[0], failed(), tries);
        assert!(bench.dispatched.is_empty(), "not without a pause");
        bench.wait(10_000);
    }
    let answer = &bench.answers[0];
    assert_eq!(
        (&answer["state"], &answer["failed_step"], &answer["reason"]),
        (&json!("failed"), &json!("a"), &json!("no"))
    );
    assert_eq!(answer["steps"]["a"]["tries"], json!(3));
}

#[test]
fn a_node_that_goes_away_costs_no_try_unless_that_is_a_habit() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "a", "retries": 0}]}), json!({}));
    for _ in 0..Rules::default().losses_max {
        let out = bench.out().remove(0);
        let node: NodeId = "gone".parse().unwrap();
        bench.say(Input::Sent {
            key: out.key,
            attempt: out.attempt,
            node: node.clone(),
            over: Protocol::Mqtt,
            why: "its turn".into(),
        });
        bench.say(Input::NodeLost("other".parse().unwrap()));
        assert!(bench.dispatched.is_empty());
        bench.say(Input::NodeLost(node));
        bench.wait(10_000);
    }
    let out = bench.out().remove(0);
    assert!(bench.answers.is_empty());
    bench.say(Input::Lost { key: out.key, attempt: out.attempt });
    assert_eq!(bench.answers[0]["reason"], json!("its node went away 6 times"));
}

#[test]
fn cancelled_and_timed_out_runs_end_and_what_is_out_is_called_back() {
    for cancelled in [true, false] {
        let mut bench = Bench::new(
            json!({"name": "f", "timeout": "5s", "steps": [{"name": "a", "action": "a"}, {"name": "b", "action": "b"}]}),
            json!({}),
        );
        let out = bench.out();
        bench.report(&out[0], ok(json!(1)), 1);
        if cancelled {
            bench.say(Input::Cancel(RunKey(1)))
        } else {
            bench.wait(5_000)
        }
        assert_eq!(bench.answers[0]["state"], json!(if cancelled { "cancelled" } else { "timed_out" }));
        assert_eq!(bench.answers[0]["steps"]["a"]["output"], json!(1));
        assert_eq!(bench.recalled, [out[1].key]);
        bench.report(&out[1], ok(json!(2)), 2);
        assert_eq!(bench.acknowledged, [1, 2], "what comes after the end is taken away and means nothing");
        assert_eq!(bench.written.len(), 1);
    }
}

#[test]
fn a_clock_that_was_set_back_gives_a_run_no_more_time_than_it_has() {
    let flow = json!({"name": "f", "timeout": "5s", "steps": [{"name": "a", "action": "a"}]});
    // An hour from now, as its next owner's clock has it.
    let admitted = Admitted { started_at: Timestamp(3_600_000), ..admitted(1, flow, json!({})) };
    let stored = Stored { admitted, outcomes: vec![], tries: vec![], noted: vec![], end: None };
    let mut foreman = Foreman::new(2, Rules::default(), vec![stored], at(0));
    foreman.handle(Input::Tick, at(5_000));
    let written = std::iter::from_fn(|| foreman.poll(at(5_000))).find_map(|effect| match effect {
        Effect::Write(batch) => Some(batch.ends.clone()),
        _ => None,
    });
    assert!(matches!(&written.as_deref(), Some([(RunKey(1), RunEnd::TimedOut, _)])), "{written:?}");
}

#[test]
fn what_cannot_be_mapped_fails_the_run_without_a_try() {
    let mut bench = Bench::new(
        json!({"name": "f", "steps": [{"name": "a", "action": "a", "input": {"x": "input.missing"}}]}),
        json!({}),
    );
    assert!(bench.out().is_empty());
    let answer = &bench.answers[0];
    assert!(answer["reason"].as_str().unwrap().starts_with("input.x: "), "{answer}");
}

#[test]
fn while_writing_fails_nothing_is_sent_and_the_same_is_written_again() {
    let now = at(0);
    let mut foreman = Foreman::new(1, Rules::default(), vec![], now);
    let flow =
        json!({"name": "f", "steps": [{"name": "a", "action": "a"}, {"name": "b", "action": "b", "after": ["a"]}]});
    foreman.handle(Input::Admit(admitted(1, flow.clone(), json!({}))), now);
    let Some(Effect::Dispatch(first)) = foreman.poll(now) else { panic!() };
    let report = Report { key: first.key, attempt: first.attempt, end: ok(json!(1)), node: None, mark: 9 };
    foreman.handle(Input::Report(report), now);
    let Some(Effect::Write(batch)) = foreman.poll(now) else { panic!() };
    assert!(foreman.poll(now).is_none(), "not before it is durable");
    foreman.handle(Input::Unwritten(batch.number), now);
    foreman.handle(Input::Admit(admitted(2, flow, json!({}))), now);
    assert!(foreman.poll(now).is_none(), "nothing is sent while the store is ill");
    assert_eq!(foreman.wake_at(), Some(at(1_000).mono));
    let later = at(1_000);
    let Some(Effect::Write(again)) = foreman.poll(later) else { panic!() };
    assert_eq!(again, batch);
    foreman.handle(Input::Written(again.number), later);
    let mut effects = std::iter::from_fn(|| foreman.poll(later));
    assert!(matches!(effects.next(), Some(Effect::Acknowledge(9))));
    assert_eq!(effects.filter(|effect| matches!(effect, Effect::Dispatch(_))).count(), 2);
}

#[test]
fn a_run_that_holds_too_much_fails_and_takes_nobody_with_it() {
    let steps: Vec<Value> = (0..5).map(|n| json!({"name": format!("s{n}"), "action": "a"})).collect();
    let mut bench = Bench::new(json!({"name": "f", "steps": steps}), json!({}));
    for (n, out) in bench.out().iter().enumerate() {
        bench.report(out, ok(json!("x".repeat(run::RUN_BYTES_MAX / 4))), n as u64);
    }
    assert_eq!(bench.answers[0]["state"], json!("failed"));
    assert!(bench.answers[0]["reason"].as_str().unwrap().contains("more than"));
}

#[test]
fn tries_in_vain_are_remembered_by_the_next_owner() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "a", "retries": 2}]});
    let key = StepKey { run: RunKey(1), step: 0, item: 0 };
    let tries = vec![Try { key, tries: 2, reason: "no".into() }];
    let stored = Stored { admitted: admitted(1, flow, json!({})), outcomes: vec![], tries, noted: vec![], end: None };
    let mut foreman = Foreman::new(2, Rules::default(), vec![stored], at(0));
    let Some(Effect::Dispatch(last)) = foreman.poll(at(0)) else { panic!() };
    assert_eq!(last.attempt, Attempt { generation: 2, n: 1 });
    let report = Report { key, attempt: last.attempt, end: failed(), node: None, mark: 1 };
    foreman.handle(Input::Report(report), at(1));
    let Some(Effect::Write(batch)) = foreman.poll(at(1)) else { panic!() };
    assert_eq!(batch.outcomes[0].tries, 3, "it was the last try");
    assert_eq!(batch.outcomes[0].end, failed());
}

#[test]
fn a_list_of_ten_thousand_goes_through_in_its_order() {
    let flow = json!({"name": "f", "steps": [
        {"name": "list", "action": "a"},
        {"name": "each", "action": "b", "each": "steps.list.output", "at_most": 10_000, "input": {"v": "item"}}
    ]});
    let mut bench = Bench::new(flow, json!({}));
    let list: Vec<u32> = (0..10_000).collect();
    let first = bench.out().remove(0);
    bench.report(&first, ok(json!(list)), 0);
    loop {
        let out = bench.out();
        if out.is_empty() {
            break;
        }
        // The last first, so that order is not by chance.
        out.iter().rev().for_each(|one| bench.report(one, ok(one.input["v"].clone()), 0));
    }
    assert_eq!(bench.answers[0]["output"], json!(list));
}

#[test]
fn waiting_for_a_node_with_room_costs_no_try_however_long_it_takes() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "x.a", "retries": 0}]}), json!(1));
    for n in 1..=50 {
        let Dispatch { key, attempt, .. } = bench.dispatched.last().unwrap().clone();
        assert_eq!(attempt.n, n);
        bench.say(Input::NoRoom { key, attempt, why: "all are full".into() });
        bench.wait(1_000);
    }
    let explained = bench.foreman.explain(RunKey(1), bench.now.mono).unwrap();
    assert_eq!(explained.len(), 1);
    let Dispatch { key, attempt, .. } = bench.dispatched.last().unwrap().clone();
    bench.say(Input::Report(Report { key, attempt, end: ok(json!(2)), node: None, mark: 1 }));
    assert_eq!(bench.answers[0]["state"], "done");
    assert_eq!(bench.answers[0]["steps"]["a"]["tries"], 0);
}

#[test]
fn what_is_over_leaves_no_alarm_behind() {
    let step = json!({"name": "a", "action": "x.a", "timeout": "1h"});
    let mut bench = Bench::new(json!({"name": "f", "timeout": "1d", "steps": [step]}), json!(1));
    assert_eq!(bench.foreman.clockwork.len(), 2, "its own, and the run's");
    let Dispatch { key, attempt, .. } = bench.dispatched[0].clone();
    bench.say(Input::NoRoom { key, attempt, why: "all are full".into() });
    bench.wait(1_000);
    let Dispatch { key, attempt, .. } = bench.dispatched[1].clone();
    bench.say(Input::Report(Report { key, attempt, end: ok(json!(2)), node: None, mark: 1 }));
    bench.say(Input::Announced(RunKey(1)));
    assert_eq!((bench.foreman.runs(), bench.foreman.clockwork.len()), (0, 0));
}

#[test]
fn nobody_answers_for_another() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "x.a"}]}), json!(1));
    let Dispatch { key, attempt, .. } = bench.dispatched[0].clone();
    let report = |node: &str, mark| Report { key, attempt, end: ok(json!(node)), node: node.parse().ok(), mark };
    bench.say(Input::Sent { key, attempt, node: "n1".parse().unwrap(), over: Protocol::Mqtt, why: "its turn".into() });
    bench.say(Input::Report(report("n2", 1)));
    assert!(bench.written.is_empty() && bench.acknowledged == [1]);
    bench.say(Input::Report(report("n1", 2)));
    assert_eq!(bench.written[0].why.as_deref(), Some("its turn"));
}

#[test]
fn what_no_node_could_ever_take_fails_the_run_at_once() {
    let mut bench = Bench::new(json!({"name": "f", "steps": [{"name": "a", "action": "x.a"}]}), json!(1));
    let Dispatch { key, attempt, .. } = bench.dispatched[0].clone();
    bench.say(Input::Impossible { key, attempt, why: "it is too large".into() });
    assert_eq!(bench.answers[0]["reason"], "it is too large");
}

#[test]
fn room_for_one_lets_one_go_at_once_the_oldest_first() {
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "x.a", "each": "input", "at_once": 3}]});
    let mut bench = Bench::new(flow, json!([1, 2, 3]));
    let out = std::mem::take(&mut bench.dispatched);
    for Dispatch { key, attempt, .. } in &out {
        bench.say(Input::NoRoom { key: *key, attempt: *attempt, why: "all are full".into() });
    }
    assert!(bench.dispatched.is_empty());
    bench.say(Input::Room(out[0].action.clone()));
    assert_eq!(bench.dispatched.iter().map(|one| one.key.item).collect::<Vec<_>>(), [0]);
    bench.wait(5_000);
    assert_eq!(bench.dispatched.len(), 3, "the others look by themselves, and the first is not sent twice");
    bench.say(Input::Room(out[0].action.clone()));
    assert_eq!(bench.dispatched.len(), 3, "nobody waits any more");
}
