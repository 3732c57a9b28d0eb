use super::*;

fn why(spec: &QueueSpec, facts: &QueueFacts) -> Vec<String> {
    queue(spec, facts).reasons.into_iter().map(|reason| reason.why).collect()
}

fn spec(rest: &str) -> QueueSpec {
    serde_json::from_str(&format!(r#"{{"name": "gpu"{rest}}}"#)).unwrap()
}

#[test]
fn a_broker_that_is_away_is_named_whether_the_owner_answers_or_not() {
    let facts =
        QueueFacts { waiting: 1, workers: 1, slots: 1, broker: Some("refused".into()), ..QueueFacts::default() };
    assert_eq!(why(&spec(""), &facts)[0], "nothing is handed out: refused");
    let said = silent(&spec(r#", "paused": true"#), Some("refused"));
    assert_eq!(said.reasons.len(), 2);
    assert!(said.reasons[0].why.contains("paused") && said.reasons[1].why.contains("refused"));
    assert!(silent(&spec(""), None).reasons[0].why.contains("does not answer"));
}

#[test]
fn what_was_handed_out_is_called_with_a_worker_only_where_it_can_be() {
    let out = QueueFacts { out: 3, workers: 1, slots: 4, ..QueueFacts::default() };
    let said = |facts: &QueueFacts| queue(&spec(""), facts).summary;
    assert_eq!(said(&out), "queue gpu: every task is with a worker (3)");
    let refused = QueueFacts { broker: Some("it refuses the queue".into()), ..out };
    assert_eq!(said(&refused), "queue gpu: every task is with a worker or on its way to one (3)");
    let alone = QueueFacts { workers: 0, slots: 0, ..refused };
    assert_eq!(said(&alone), "queue gpu: every task is on its way to a worker (3)");
    assert_eq!(
        why(&spec(""), &alone),
        ["nothing is handed out: it refuses the queue", "no worker takes tasks of queue gpu"]
    );
}

#[test]
fn waiting_for_no_known_reason_is_not_met_with_silence() {
    let facts = QueueFacts { waiting: 1, workers: 1, slots: 4, ..QueueFacts::default() };
    assert!(queue(&spec(""), &facts).reasons[0].remedy.as_ref().unwrap().contains("doctor"));
}

#[test]
fn whatever_holds_a_queue_back_is_named_with_its_remedy() {
    let busy = QueueFacts { waiting: 9, out: 4, workers: 1, slots: 4, ..QueueFacts::default() };
    assert_eq!(why(&spec(""), &busy), ["the workers are busy: 4 run at once, 4 are out"]);
    assert_eq!(why(&spec(r#", "paused": true"#), &busy), ["it is paused"]);
    let dead = QueueFacts { silent: 1, silent_held: 3, given_up_ms: Some(5_000), ..busy.clone() };
    let silent = "silent workers: 1; what they hold (3) goes to others, the first of it in 5s";
    assert_eq!(why(&spec(""), &dead), ["the workers are busy: 4 run at once, 4 are out", silent]);
    assert_eq!(why(&spec(""), &QueueFacts { waiting: 0, ..dead }), [silent]);
    let limits = spec(r#", "limits": {"running": 4, "starts_per_second": 2}"#);
    let paced = QueueFacts { next_start_ms: Some(400), ..busy.clone() };
    assert_eq!(
        why(&limits, &paced),
        [
            "4 tasks are out, the limit is 4 (limits.running)",
            "2 may start in a second (limits.starts_per_second), the next in 400ms"
        ]
    );
    let empty = QueueFacts { workers: 0, slots: 0, out: 0, ..busy.clone() };
    assert_eq!(queue(&spec(""), &empty).reasons[0].why, "no worker takes tasks of queue gpu");
    let leaving = QueueFacts { leaving: 1, ..busy.clone() };
    assert_eq!(why(&spec(""), &leaving), ["all 1 workers of queue gpu are leaving"]);
    let retrying = QueueFacts { retrying: 9, next_retry_ms: Some(1_200), out: 0, ..busy.clone() };
    assert_eq!(
        why(&spec(""), &retrying),
        [
            "all that wait have failed, or came to a worker that is too small, and wait for their next try, the first in 2s"
        ]
    );
    let stuck = QueueFacts { trouble: Some("the disk is full".into()), ..busy };
    assert!(why(&spec(""), &stuck)[0].contains("the disk is full"));
    for facts in [empty, leaving, retrying, stuck] {
        assert!(queue(&spec(""), &facts).reasons.iter().all(|reason| reason.remedy.is_some()));
    }
}

#[test]
fn an_idle_queue_has_nothing_to_explain() {
    let idle = queue(&spec(""), &QueueFacts::default());
    assert_eq!((idle.summary.as_str(), idle.reasons.len()), ("queue gpu has nothing to do", 0));
}

#[test]
fn every_hint_of_a_command_names_the_queue_or_the_task() {
    let facts = QueueFacts { waiting: 3, out: 1, workers: 1, slots: 1, ..QueueFacts::default() };
    let elastic = spec(r#", "elastic": {"preset": "arrebol"}"#);
    let empty = QueueFacts { workers: 0, slots: 0, out: 0, ..facts.clone() };
    let leaving = QueueFacts { leaving: 1, ..facts.clone() };
    for facts in [&facts, &empty, &leaving] {
        let plain = &queue(&spec(""), facts).reasons[0];
        assert!(plain.remedy.as_ref().unwrap().contains("worker invite --queue gpu"), "{plain:?}");
        let by_itself = &queue(&elastic, facts).reasons[0];
        let remedy = by_itself.remedy.as_ref().unwrap();
        assert!(remedy.contains("elastic status") && !remedy.contains("invite"), "{by_itself:?}");
    }
    let retried = json(r#", "failures": 1, "not_before": 5000"#);
    let said = task(&retried, None, Some((&spec(""), &facts)), Timestamp(1_000));
    assert_eq!(said.reasons[0].why, "it failed once and is tried again in 4s");
    let logs = format!("mutirao job logs {} --task 7", retried.id.job);
    assert!(said.reasons[0].remedy.as_ref().unwrap().contains(&logs), "{said:?}");
    assert!(!waits_for_its_queue(&retried, Timestamp(1_000)) && waits_for_its_queue(&retried, Timestamp(5_000)));
}

fn json(rest: &str) -> TaskView {
    let id = mutirao_core::id::TaskKey { job: JobKey(9), index: 7 };
    let text = format!(r#"{{"id": "{id}", "state": "ready", "losses": 0{rest}}}"#);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn what_fits_no_worker_is_said_to_whether_or_not_one_is_there() {
    let needs = |memory: u64| Needs { memory: mutirao_core::quantity::Bytes(memory << 30), ..Needs::default() };
    let elastic = spec(r#", "elastic": {"preset": "arrebol"}"#);
    let stuck = QueueFacts {
        waiting: 2,
        too_big: 2,
        too_big_needs: Some(needs(1_024)),
        largest: Some(needs(12)),
        ..QueueFacts::default()
    };
    let all = ["2 of those that wait fit no worker: needs 1TiB of memory, the largest worker has 12GiB"];
    assert_eq!(why(&elastic, &stuck), all, "no worker is there, and none would help");
    assert_eq!(why(&elastic, &QueueFacts { workers: 1, slots: 1, ..stuck.clone() }), all);
    let others = QueueFacts { waiting: 5, ..stuck.clone() };
    assert_eq!(why(&elastic, &others), [all[0], "no worker takes tasks of queue gpu"]);
    let said =
        |facts: TaskFacts| task(&json(r#", "failures": 0"#), Some(facts), Some((&elastic, &others)), Timestamp(0));
    let big = said(TaskFacts { too_big: true, needs: Some(needs(64)), ..TaskFacts::default() });
    assert_eq!(big.reasons.len(), 1);
    assert_eq!(big.reasons[0].why, "it fits no worker: needs 64GiB of memory, the largest worker has 12GiB");
    let remedy = big.reasons[0].remedy.as_ref().unwrap();
    assert!(remedy.contains("more `memory` under `workers:`") && remedy.contains("job cancel"), "{remedy}");
    let unsaid = said(TaskFacts { too_big: true, ..TaskFacts::default() });
    assert!(unsaid.reasons[0].why.ends_with("the largest has 1 cpus and 12GiB of memory"), "{unsaid:?}");
    let small = said(TaskFacts::default());
    assert_eq!(small.reasons[0].why, "no worker takes tasks of queue gpu", "the others are no matter of its own");
}
