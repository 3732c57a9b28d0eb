//! How runs end, and what they take until then.

use serde_json::{Value, json};

use super::{admitted, at, ok};
use crate::foreman::rules::FEW;
use crate::foreman::words::{Admitted, Asker, Dispatch, Effect, Input, Report, RunEnd, RunKey};
use crate::foreman::{Foreman, Rules};

fn three() -> Value {
    let step = |name: &str, after: &[&str]| json!({"name": name, "action": "x.a", "after": after});
    json!({"name": "f", "steps": [step("a", &[]), step("b", &["a"]), step("c", &["a"])]})
}

#[test]
fn a_run_ends_in_the_write_of_what_it_waited_for_last() {
    for (asker, announced) in [(Asker::Reader, vec![RunKey(1)]), (Asker::Client, vec![])] {
        let mut foreman = Foreman::new(1, Rules::default(), vec![], at(0));
        foreman.handle(Input::Admit(Admitted { asker, ..admitted(1, three(), json!(1)) }), at(0));
        let (mut batches, mut mark) = (Vec::new(), 0);
        while let Some(effect) = foreman.poll(at(0)) {
            match effect {
                Effect::Dispatch(Dispatch { key, attempt, .. }) => {
                    mark += 1;
                    foreman
                        .handle(Input::Report(Report { key, attempt, end: ok(json!(mark)), node: None, mark }), at(0));
                }
                Effect::Write(batch) => {
                    batches.push(batch.clone());
                    foreman.handle(Input::Written(batch.number), at(0));
                }
                _ => {}
            }
        }
        let said: Vec<(usize, usize)> = batches.iter().map(|one| (one.outcomes.len(), one.ends.len())).collect();
        let last = batches.last().unwrap();
        assert!(
            said[0] == (1, 0) && said.last().is_some_and(|(outcomes, ends)| *outcomes > 0 && *ends == 1),
            "{said:?}"
        );
        assert_eq!((last.ends[0].1.clone(), last.announced.clone()), (RunEnd::Done, announced));
        assert_eq!(foreman.runs(), usize::from(asker == Asker::Client), "its answer is on its way, or need not leave");
    }
}

#[test]
fn a_result_that_comes_twice_while_the_end_is_written_is_acknowledged_with_it() {
    let mut foreman = Foreman::new(1, Rules::default(), vec![], at(0));
    let flow = json!({"name": "f", "steps": [{"name": "a", "action": "x.a"}]});
    foreman.handle(Input::Admit(Admitted { asker: Asker::Reader, ..admitted(1, flow, json!(1)) }), at(0));
    let Some(Effect::Dispatch(Dispatch { key, attempt, .. })) = foreman.poll(at(0)) else { panic!("it is sent") };
    let report = |mark| Input::Report(Report { key, attempt, end: ok(json!(2)), node: None, mark });
    foreman.handle(report(1), at(0));
    let Some(Effect::Write(batch)) = foreman.poll(at(0)) else { panic!("it is written") };
    foreman.handle(report(2), at(0));
    assert!(foreman.poll(at(0)).is_none(), "nothing is durable yet");
    foreman.handle(Input::Written(batch.number), at(0));
    let mut marks = Vec::new();
    while let Some(effect) = foreman.poll(at(0)) {
        marks.extend(if let Effect::Acknowledge(mark) = effect { Some(mark) } else { None });
    }
    assert_eq!(marks, [1, 2]);
}

#[test]
fn runs_that_take_too_much_memory_keep_new_ones_out_and_end_the_oldest_first() {
    let rules = Rules { bytes_max: 100_000, ..Rules::default() };
    let mut foreman = Foreman::new(1, rules, vec![], at(0));
    let flow = || json!({"name": "f", "steps": [{"name": "a", "action": "x.a"}]});
    let mut run = 0;
    while foreman.takes_runs() {
        run += 1;
        foreman.handle(Input::Admit(admitted(run, flow(), json!("x".repeat(10_000)))), at(0));
    }
    assert!((5..=10).contains(&run) && foreman.bytes() >= 100_000, "{run} runs of {} bytes", foreman.bytes());
    // As another owner may have taken in more: those are worked off, a few at a time.
    for more in run + 1..=40 {
        foreman.handle(Input::Admit(admitted(more, flow(), json!("x".repeat(10_000)))), at(0));
    }
    let mut ended = Vec::new();
    loop {
        let (mut out, mut some) = (Vec::new(), false);
        while let Some(effect) = foreman.poll(at(0)) {
            some = true;
            match effect {
                Effect::Dispatch(dispatch) => out.push(dispatch),
                Effect::Write(batch) => foreman.handle(Input::Written(batch.number), at(0)),
                Effect::Announce(told) => {
                    let run = told.key();
                    ended.push(run.0);
                    foreman.handle(Input::Announced(run), at(0));
                }
                _ => {}
            }
        }
        if !some {
            break;
        }
        assert!(out.len() <= FEW || !foreman.is_heavy(), "{} are out", out.len());
        for (mark, Dispatch { key, attempt, .. }) in out.into_iter().enumerate() {
            let report = Report { key, attempt, end: ok(json!(1)), node: None, mark: mark as u64 };
            foreman.handle(Input::Report(report), at(0));
        }
    }
    assert_eq!(ended, (1..=40).collect::<Vec<u64>>(), "the oldest first");
    assert_eq!((foreman.runs(), foreman.bytes()), (0, 0), "what ended takes no memory");
}
