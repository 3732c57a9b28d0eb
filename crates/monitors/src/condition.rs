//! What must hold of an answer for it to be good, in CEL: `status == 200`, `json.queue.length < 100`,
//! `cert.days_left > 14`, `timings.total < 500.0`.
//!
//! | name | of which checks | what it is |
//! |---|---|---|
//! | `status` | http | the status code |
//! | `headers` | http | by name in lower case: `headers["content-type"]` |
//! | `body` | http | as text; what is not UTF-8 is replaced |
//! | `json` | http | the body read as JSON; a condition on it fails when it is none |
//! | `cert` | http, tls | `days_left`, `chain` (how many certificates were shown) |
//! | `answers` | dns | what the name server said, as a list of texts in order |
//! | `exit`, `output` | exec | how the program ended, and what it wrote |
//! | `timings` | all | milliseconds of `dns`, `connect`, `tls`, `first_byte`, `body`, `total`; those of phases that were not entered are 0 |
//! | `redirects` | http | how many were followed |
//!
//! Conditions are compiled once, when a monitor is taken in; whoever names something that its check never has is told so
//! then. One that cannot be evaluated (a missing field, a division by zero) does not hold, and says why.

use std::collections::HashMap;
use std::fmt;

use cel::{Context, Value};
use mutirao_core::Problem;
use mutirao_expression::{Expression, Flaw};
use mutirao_probes::{Check, Observation, Phase};

pub const CONDITIONS_MAX: usize = 32;

#[derive(Debug)]
pub struct Conditions(Vec<Expression>);

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub condition: String,
    /// Why it could not be evaluated, if so.
    pub why: Option<String>,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            None => write!(f, "{} does not hold", self.condition),
            Some(why) => write!(f, "{} cannot be evaluated: {why}", self.condition),
        }
    }
}

impl Conditions {
    /// `check` says what there is to speak of.
    pub fn compile(texts: &[String], check: &Check) -> Result<Self, Problem> {
        if texts.len() > CONDITIONS_MAX {
            let detail = format!("{} are too many, the most is {CONDITIONS_MAX}", texts.len());
            return Err(Problem::invalid("when", detail).remedy("join them with &&"));
        }
        let names = names_of(check);
        let compile = |(n, text): (usize, &String)| {
            let field = format!("when[{n}]");
            let expression = Expression::compile(text).map_err(|flaw| {
                let remedy = match flaw {
                    Flaw::Long => "write several shorter ones",
                    Flaw::Deep => "write several simpler ones",
                    Flaw::Veiled | Flaw::Unparsable { .. } => {
                        "conditions are CEL, like status == 200 && body.contains('ok')"
                    }
                };
                Problem::invalid(&field, flaw.to_string()).remedy(remedy)
            })?;
            let unknown = expression.names().iter().find(|name| !names.contains(&name.as_str())).cloned();
            match unknown {
                None => Ok(expression),
                Some(name) => {
                    Err(Problem::invalid(&field, format!("a check of kind {} has no \"{name}\"", check.word()))
                        .remedy(format!("it has {}", names.join(", "))))
                }
            }
        };
        texts.iter().enumerate().map(compile).collect::<Result<_, _>>().map(Self)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that do not hold of what was seen.
    pub fn unmet(&self, seen: &Observation) -> Vec<Unmet> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let context = context_of(seen);
        let judge = |expression: &Expression| {
            let why = match expression.value_in(&context) {
                Ok(Value::Bool(true)) => return None,
                Ok(Value::Bool(false)) => None,
                Ok(other) => Some(format!("it is {}, which is neither true nor false", other.type_of())),
                Err(why) => Some(why),
            };
            Some(Unmet { condition: expression.text().into(), why })
        };
        self.0.iter().filter_map(judge).collect()
    }
}

fn names_of(check: &Check) -> &'static [&'static str] {
    match check {
        Check::Http(_) => &["status", "headers", "body", "json", "cert", "timings", "redirects"],
        Check::Tls(_) => &["cert", "timings"],
        Check::Dns(_) => &["answers", "timings"],
        Check::Exec(_) => &["exit", "output", "timings"],
        Check::Tcp(_) | Check::Icmp(_) => &["timings"],
    }
}

/// Everything that was seen. What was not is left out, so that a condition on it cannot be evaluated and does not hold.
fn context_of(seen: &Observation) -> Context<'static, 'static> {
    let mut context = mutirao_expression::context();
    let found = &seen.seen;
    if let Some(status) = found.status {
        context.add_variable_from_value("status", i64::from(status));
        let headers: HashMap<String, String> = found.headers.clone().into_iter().collect();
        context.add_variable_from_value("headers", headers);
        context.add_variable_from_value("body", String::from_utf8_lossy(&found.body).into_owned());
        context.add_variable_from_value("redirects", i64::from(found.redirects));
        if let Some(json) =
            serde_json::from_slice::<serde_json::Value>(&found.body).ok().and_then(|json| cel::to_value(json).ok())
        {
            context.add_variable_from_value("json", json);
        }
    }
    if let Some(exit) = found.exit {
        context.add_variable_from_value("exit", i64::from(exit));
        context.add_variable_from_value("output", String::from_utf8_lossy(&found.body).into_owned());
    }
    context.add_variable_from_value("answers", found.answers.clone());
    if let Some(certificate) = &found.certificate {
        let cert = [("days_left", certificate.days_left), ("chain", certificate.chain as i64)];
        context.add_variable_from_value("cert", HashMap::from(cert.map(|(name, figure)| (name.to_owned(), figure))));
    }
    let millis = |micros: Option<u64>| micros.unwrap_or_default() as f64 / 1_000.0;
    let phases = Phase::ALL.map(|phase| (name_of(phase).to_owned(), millis(seen.timings.of(phase))));
    let timings: HashMap<String, f64> =
        phases.into_iter().chain([("total".into(), millis(Some(seen.timings.total)))]).collect();
    context.add_variable_from_value("timings", timings);
    context
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Dns => "dns",
        Phase::Connect => "connect",
        Phase::Tls => "tls",
        Phase::FirstByte => "first_byte",
        Phase::Body => "body",
    }
}

#[cfg(test)]
mod tests {
    use mutirao_core::Timestamp;
    use mutirao_probes::observation::{Certificate, Seen};
    use mutirao_probes::{Ended, Timings};

    use mutirao_expression::{NESTED_MAX, SIGNS_MAX};

    use super::*;

    fn http() -> Check {
        serde_json::from_str(r#"{"http": {"url": "http://x"}}"#).unwrap()
    }

    fn answer(body: &str) -> Observation {
        let seen = Seen {
            status: Some(200),
            headers: [("content-type".to_owned(), "text/plain".to_owned())].into(),
            body: body.into(),
            certificate: Some(Certificate { until: Timestamp(0), days_left: 20, chain: 3 }),
            ..Seen::default()
        };
        let mut timings = Timings::default();
        timings.total = 12_500;
        Observation { ended: Ended::Answered, timings, seen }
    }

    fn unmet(texts: &[&str], seen: &Observation) -> Vec<String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let conditions = Conditions::compile(&texts, &http()).unwrap_or_else(|problem| panic!("{}", problem.line()));
        conditions.unmet(seen).iter().map(Unmet::to_string).collect()
    }

    #[test]
    fn all_that_was_seen_can_be_spoken_of() {
        let good = [
            "status == 200",
            "status in [200, 204] && redirects == 0",
            "headers['content-type'].startsWith('text/')",
            "body.contains('\"ok\"')",
            "json.ok == true && json.queue.size() == 2 && json.queue[1] < 10",
            "cert.days_left > 14 && cert.chain == 3",
            "timings.total < 500.0 && timings.tls == 0.0",
            "body.matches('^[{].*[}]$')",
        ];
        assert_eq!(unmet(&good, &answer(r#"{"ok": true, "queue": [1, 2]}"#)), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_hold_says_so_and_what_cannot_be_said_says_why() {
        let found = unmet(&["status == 404", "json.ok", "status", "1 / (redirects) == 1"], &answer("no json"));
        assert_eq!(found[0], "status == 404 does not hold");
        assert!(found[1].starts_with("json.ok cannot be evaluated: "), "{}", found[1]);
        assert!(found[2].contains("neither true nor false"), "{}", found[2]);
        assert!(found[3].contains("cannot be evaluated"), "{}", found[3]);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let refusal = |text: &str, check: &Check| {
            Conditions::compile(&["true".into(), text.into()], check).expect_err(text).line()
        };
        let line = refusal("status ==", &http());
        assert!(line.starts_with("when[1]: status == does not compile"), "{line}");
        let line = refusal("stat == 200", &http());
        assert!(line.starts_with("when[1]: a check of kind http has no \"stat\"; it has status"), "{line}");
        let tcp: Check = serde_json::from_str(r#"{"tcp": {"address": "x:1"}}"#).unwrap();
        assert!(refusal("status == 200", &tcp).contains("kind tcp has no \"status\""));
    }

    #[test]
    fn however_deep_it_goes_it_is_refused_and_nothing_breaks() {
        let nested = |open: &str, close: &str, n: usize| format!("{}true{}", open.repeat(n), close.repeat(n));
        for text in [
            "(".repeat(900),
            "[".repeat(900),
            "-".repeat(900),
            nested("(", ")", 400),
            nested("!", "", 900),
            nested("[", "]", 400),
            format!("1{}", "+1".repeat(450)),
            format!("status{}", ".x".repeat(450)),
            format!("status{}", "[0]".repeat(300)),
            format!("//'\n{}", "(".repeat(400)),
            format!(r"r'\' == '{}'", "(".repeat(400)),
        ] {
            assert!(Conditions::compile(&[text], &http()).is_err());
        }
        // As deep as may be: compiled, and evaluated on an ordinary thread.
        for text in [
            nested("(", ")", NESTED_MAX),
            nested("!", "", SIGNS_MAX),
            nested("true ? true : ", "", SIGNS_MAX),
            format!("1{} == 1", "+1".repeat(SIGNS_MAX - 2)),
            format!("[[[[[[[[[[[[1]]]]]]]]]]]]{} == 1", "[0]".repeat(NESTED_MAX)),
            format!("json{} == 1", ".x".repeat(SIGNS_MAX - 2)),
            format!("json{} == 1", "[0]".repeat(SIGNS_MAX - 2)),
        ] {
            let conditions = Conditions::compile(std::slice::from_ref(&text), &http());
            let conditions = conditions.unwrap_or_else(|problem| panic!("{text}: {}", problem.line()));
            let _ = conditions.unmet(&answer("{}"));
        }
        let quoted = format!("body.contains('{}')", "(".repeat(500));
        assert!(Conditions::compile(&[quoted], &http()).is_ok(), "what is quoted is no depth");
    }
}
