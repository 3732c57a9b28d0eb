//! What a command finds in its environment: a few variables of the worker's, the task's own, and the `MUTIRAO_…` ones.
//! Nothing else of the worker's environment gets through, its credentials least of all.

use std::collections::BTreeMap;
use std::ffi::OsString;

use mutirao_core::exec::Exec;
use mutirao_core::trace::{Followed, Step};
use mutirao_core::{Dice, SessionId};

use crate::desk::Task;

pub(crate) const SESSION_VAR: &str = "MUTIRAO_SESSION";
const TASK_VAR: &str = "MUTIRAO_TASK_ID";
const ATTEMPT_VAR: &str = "MUTIRAO_ATTEMPT";

/// The worker's variables that commands see.
const INHERITED: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Read once, when the worker starts.
#[derive(Debug)]
pub(crate) struct Surroundings(BTreeMap<String, OsString>);

pub(crate) type Variables = BTreeMap<String, OsString>;

impl Surroundings {
    pub fn of_this_process() -> Self {
        Self::from(|name| std::env::var_os(name))
    }

    fn from(read: impl Fn(&str) -> Option<OsString>) -> Self {
        let mut inherited: BTreeMap<_, _> =
            INHERITED.iter().filter_map(|name| Some((name.to_string(), read(name)?))).collect();
        inherited.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into());
        Self(inherited)
    }

    /// For programs that are no tasks, with the mark by which a keeper finds them.
    pub fn marked(self, session: &SessionId) -> Variables {
        let mut variables = self.0;
        variables.insert(SESSION_VAR.into(), session.0.clone().into());
        variables
    }

    pub fn variables(&self, session: &SessionId, task: &Task, exec: &Exec, dice: &Dice) -> Variables {
        let mut variables = self.0.clone();
        variables.extend(exec.env.iter().chain(&task.env).map(|(name, value)| (name.clone(), value.into())));
        let mut set = |name: &str, value: String| variables.insert(name.into(), value.into());
        set(SESSION_VAR, session.0.clone());
        set("MUTIRAO_JOB_ID", task.key.job.to_string());
        set(TASK_VAR, task.key.to_string());
        set("MUTIRAO_TASK_INDEX", task.key.index.to_string());
        set(ATTEMPT_VAR, task.attempt.n.to_string());
        if let Some(entry) = &task.entry {
            set("MUTIRAO_ENTRY", entry.clone());
        }
        let parent = match task.trace.parse::<Followed>() {
            Ok(followed) => Some(followed.traceparent(followed.step(Step::Run, task.key, task.attempt))),
            Err(_) => traceparent(&task.trace, dice.u64()),
        };
        if let Some(parent) = parent {
            set("TRACEPARENT", parent);
        }
        variables
    }

    /// By what the processes of this try are known, wherever they went.
    pub fn marks(&self, session: &SessionId, task: &Task) -> [String; 3] {
        [
            format!("{SESSION_VAR}={session}"),
            format!("{TASK_VAR}={}", task.key),
            format!("{ATTEMPT_VAR}={}", task.attempt.n),
        ]
    }
}

/// The W3C header's form of a trace id, if it is one. Span zero is reserved.
fn traceparent(trace: &str, span: u64) -> Option<String> {
    let is_id = trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit()) && trace.bytes().any(|b| b != b'0');
    is_id.then(|| format!("00-{}-{:016x}-01", trace.to_ascii_lowercase(), span.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trace_id_becomes_a_traceparent() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(traceparent(trace, 7), Some(format!("00-{trace}-0000000000000007-01")));
        assert_eq!(traceparent("", 7), None);
        assert_eq!(traceparent(&"0".repeat(32), 7), None);
        assert_eq!(traceparent(&"x".repeat(32), 7), None);
    }
}
