//! From what a probe saw to a verdict, with the reason when it is bad.

use mutirao_probes::{Check, Ended, Observation};

use crate::condition::Conditions;
use crate::health::Verdict;

/// From here on an answer over HTTP is a refusal, when no condition says otherwise.
const REFUSALS: u16 = 400;

pub fn judge(check: &Check, conditions: &Conditions, seen: &Observation) -> (Verdict, Option<String>) {
    match &seen.ended {
        Ended::Failed { phase, why } => return (Verdict::Bad, Some(format!("{phase}: {why}"))),
        Ended::TimedOut { phase } => {
            let after = std::time::Duration::from_micros(seen.timings.total).as_millis();
            return (Verdict::Bad, Some(format!("no answer after {after} ms, while {phase}")));
        }
        Ended::Answered => {}
    }
    if let Some(unmet) = conditions.unmet(seen).first() {
        return (Verdict::Bad, Some(unmet.to_string()));
    }
    let found = &seen.seen;
    match check {
        Check::Http(_) if conditions.is_empty() && found.status.is_some_and(|status| status >= REFUSALS) => {
            (Verdict::Bad, Some(format!("status {}", found.status.unwrap_or_default())))
        }
        Check::Exec(_) if conditions.is_empty() && found.exit != Some(0) => {
            let said = String::from_utf8_lossy(&found.body);
            let line = said.lines().next().unwrap_or_default().split('|').next().unwrap_or_default().trim();
            let word = match found.exit {
                Some(1) => "warning",
                Some(2) => "critical",
                _ => "unknown",
            };
            (Verdict::Bad, Some(format!("{word}: {line}")))
        }
        _ => (Verdict::Good, None),
    }
}

#[cfg(test)]
mod tests {
    use mutirao_probes::observation::Seen;
    use mutirao_probes::{Phase, Timings};

    use super::*;

    fn judged(check: &str, when: &[&str], ended: Ended, seen: Seen) -> (Verdict, Option<String>) {
        let check: Check = serde_json::from_str(check).unwrap();
        let when: Vec<String> = when.iter().map(|text| (*text).to_owned()).collect();
        let conditions = Conditions::compile(&when, &check).unwrap();
        judge(&check, &conditions, &Observation { ended, timings: Timings::default(), seen })
    }

    const HTTP: &str = r#"{"http": {"url": "http://x"}}"#;

    #[test]
    fn an_answer_is_good_unless_it_refuses_or_a_condition_says_so() {
        let answer = |status| Seen { status: Some(status), ..Seen::default() };
        assert_eq!(judged(HTTP, &[], Ended::Answered, answer(302)), (Verdict::Good, None));
        assert_eq!(judged(HTTP, &[], Ended::Answered, answer(503)), (Verdict::Bad, Some("status 503".into())));
        assert_eq!(judged(HTTP, &["status == 503"], Ended::Answered, answer(503)), (Verdict::Good, None));
        let (verdict, why) = judged(HTTP, &["status == 200"], Ended::Answered, answer(204));
        assert_eq!((verdict, why.as_deref()), (Verdict::Bad, Some("status == 200 does not hold")));
    }

    #[test]
    fn no_answer_is_bad_and_says_where_it_ended() {
        let ended = Ended::Failed { phase: Phase::Connect, why: "nobody listens there".into() };
        let (verdict, why) = judged(HTTP, &["true"], ended, Seen::default());
        assert_eq!((verdict, why.as_deref()), (Verdict::Bad, Some("connecting: nobody listens there")));
        let (_, why) = judged(HTTP, &[], Ended::TimedOut { phase: Phase::Dns }, Seen::default());
        assert!(why.unwrap().ends_with("while finding the address"));
    }

    #[test]
    fn a_plugin_says_how_bad_it_is() {
        let seen = |exit| Seen { exit: Some(exit), body: b"LOAD high | load=9\nmore".to_vec(), ..Seen::default() };
        let run = |exit| judged(r#"{"exec": {"command": ["x"]}}"#, &[], Ended::Answered, seen(exit));
        assert_eq!(run(0), (Verdict::Good, None));
        assert_eq!(run(2), (Verdict::Bad, Some("critical: LOAD high".into())));
        assert_eq!(run(7), (Verdict::Bad, Some("unknown: LOAD high".into())));
    }
}
