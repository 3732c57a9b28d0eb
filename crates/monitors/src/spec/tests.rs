use super::*;

fn read(rest: &str) -> MonitorSpec {
    let json = format!(r#"{{"name": "shop", "every": "30s", "http": {{"url": "http://x"}}{rest}}}"#);
    serde_json::from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"))
}

#[test]
fn a_short_definition_is_whole() {
    let spec = read("");
    assert!(spec.check().is_ok());
    assert_eq!((spec.timeout, spec.thresholds.failures, spec.missed), (Span::secs(5), 3, Missed::Skip));
    let again: MonitorSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
}

#[test]
fn it_makes_one_kind_of_check_and_knows_no_other_words() {
    for (json, words) in [
        (r#"{"name": "a", "every": "1m"}"#, "it checks nothing"),
        (r#"{"name": "a", "every": "1m", "tcp": {"address": "x:1"}, "icmp": {"host": "x"}}"#, "both tcp and icmp"),
        (r#"{"name": "a", "every": "1m", "tcp": {"address": "x:1"}, "push": {}}"#, "both tcp and push"),
        (r#"{"name": "a", "every": "1m", "tcp": {"address": "x:1"}, "retrys": 3}"#, "unknown field `retrys`"),
        (r#"{"name": "a", "every": "1m", "tcp": {"adress": "x:1"}}"#, "unknown field `adress`"),
    ] {
        let error = serde_json::from_str::<MonitorSpec>(json).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn one_that_waits_to_be_called_asks_for_nothing() {
    let read = |rest: &str| -> MonitorSpec {
        serde_json::from_str(&format!(r#"{{"name": "backup", "every": "1s"{rest}}}"#)).unwrap()
    };
    let spec = read(r#", "push": {}"#);
    assert!(spec.check().is_ok() && spec.route().is_none());
    let again: MonitorSpec = serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap();
    assert_eq!(again, spec);
    for (rest, line) in [
        (r#", "push": {"grace": "2s"}"#, "push.grace: 2s is longer"),
        (r#", "push": {}, "when": ["true"]"#, "when: nothing is asked"),
        (r#", "push": {}, "on": {"layer": "edge"}"#, "on: nothing is asked"),
    ] {
        let said = read(rest).check().expect_err(rest).line();
        assert!(said.starts_with(line), "{said}");
    }
}

#[test]
fn what_cannot_work_is_refused_with_its_place_and_the_reason() {
    for (rest, line) in [
        (r#", "timeout": "31s""#, "every: 30s is shorter than a check may take (31s, tried 1 times)"),
        (r#", "timeout": "11s", "retries": 2"#, "every: 30s is shorter than a check may take (11s, tried 3 times)"),
        (r#", "timeout": "0s""#, "timeout: no service answers in no time"),
        (r#", "retries": 11"#, "retries: 11 are too many"),
        (r#", "thresholds": {"failures": 0, "successes": 1, "silence": 3}"#, "thresholds.failures: 0 is not between"),
        (r#", "labels": {"": "x"}"#, "labels.: a label and its value"),
        (r#", "on": {}"#, "on: it names neither a layer nor labels"),
        (r#", "when": ["status = 200"]"#, "when[0]: status = 200 does not compile"),
    ] {
        let said = read(rest).check().expect_err(rest).line();
        assert!(said.starts_with(line), "{said}");
    }
    let short = MonitorSpec { every: Span(std::time::Duration::from_millis(500)), ..read("") };
    assert!(short.check().unwrap_err().line().starts_with("every: 500ms is not between 1s"));
    let bad = MonitorSpec { name: "a b".into(), ..read("") };
    assert!(bad.check().unwrap_err().line().starts_with("name: a name has"));
}
