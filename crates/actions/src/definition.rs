//! An action of one's own, as people write it:
//!
//! ```yaml
//! kind: Action
//! name: actions.power_factor     # in the installation's namespace; or the whole URN
//! version: 2                     # raise it when it does something else
//! command: [ ./power_factor.py ] # found in the folder of this file, else in PATH
//! mode: lines                    # one process that stays; `once` starts one for each task
//! at_once: 4                     # tasks that it is given at the same time
//! timeout: 10s                   # and a step waits a little longer for it, unless it says otherwise
//! retries: 5                     # of a step that does not say
//! memory: 64MiB                  # of address space, for each process; of memory, for all of them together
//! cpus: 0.5                      # for all of them together
//! output_max: 64KiB
//! output: json                   # what is none has failed; without, it is a text
//! env: { UNIT: volt }
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_nodes::wire::Parameters;
use mutirao_nodes::{ActionName, Namespace, Offer};
use serde::Deserialize;
use serde_json::Value;

use crate::table::TIMEOUT;
use crate::{OUTPUT_BYTES, OUTPUT_BYTES_MAX};

/// Below the half hour after which RabbitMQ takes a message back that was not acknowledged.
const TIMEOUT_MAX: Duration = Duration::from_secs(20 * 60);
/// What a task and its result may take there and back, besides what the program takes.
const ON_THE_WAY: Duration = Duration::from_secs(5);
const RETRIES_MAX: u32 = 100;
const AT_ONCE_MAX: u32 = 64;
const COMMAND_BYTES_MAX: usize = 16 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A process for each task: input on stdin, output on stdout.
    #[default]
    Once,
    /// A process that stays: a line of JSON in, a line of JSON out.
    Lines,
}

/// What the output of a program of one task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// JSON, or else a text.
    #[default]
    Any,
    /// JSON, or it has failed: what is broken does not pass for a text.
    Json,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub offer: Offer,
    pub command: Vec<String>,
    pub mode: Mode,
    /// Tasks that a process that stays is given at once.
    pub at_once: usize,
    pub timeout: Duration,
    /// What managers are told of it.
    pub declared: Option<Parameters>,
    pub memory: Option<Bytes>,
    pub cpus: Option<Cpus>,
    pub output_bytes_max: usize,
    pub output: Output,
    pub env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    kind: String,
    name: String,
    #[serde(default)]
    version: u32,
    command: Vec<String>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    at_once: Option<u32>,
    #[serde(default)]
    timeout: Option<Span>,
    #[serde(default)]
    retries: Option<u32>,
    #[serde(default)]
    memory: Option<Bytes>,
    #[serde(default)]
    cpus: Option<Cpus>,
    #[serde(default)]
    output_max: Option<Bytes>,
    #[serde(default)]
    output: Option<Output>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl Definition {
    /// Why it is none, in a line.
    pub fn read(value: Value, namespace: &Namespace) -> Result<Self, String> {
        let written: Written = serde_json::from_value(value).map_err(|error| error.to_string())?;
        if written.kind != "Action" {
            return Err(format!("kind is {}: only kind: Action belongs in a folder of actions", written.kind));
        }
        let action = ActionName::within(namespace, &written.name).map_err(|error| format!("name: {error}"))?;
        if action.namespace() != namespace.as_str() {
            return Err(format!("name: {action} is not of the namespace {namespace}"));
        }
        if action.short().starts_with("builtin.") {
            return Err(format!("name: {} begins with builtin., which is kept for actions built in", action.short()));
        }
        let sent: usize =
            written.command.iter().chain(written.env.keys()).chain(written.env.values()).map(String::len).sum();
        if written.command.first().is_none_or(String::is_empty) {
            return Err("command: there is no program to run; write it like [ ./program, argument ]".into());
        }
        if sent > COMMAND_BYTES_MAX {
            return Err(format!("command: with env it has {sent} bytes, the most is {COMMAND_BYTES_MAX}"));
        }
        let broken = |text: &String| text.contains('\0');
        if written.command.iter().chain(written.env.values()).any(broken)
            || written.env.keys().any(|name| name.is_empty() || broken(name) || name.contains('='))
        {
            return Err("command: no argument or variable may have a zero byte, nor a variable's name a =".into());
        }
        let timeout = written.timeout.map_or(TIMEOUT, |span| span.0);
        if timeout.is_zero() || timeout > TIMEOUT_MAX {
            return Err("timeout: it must be above 0 and at most 20m".into());
        }
        if written.retries.is_some_and(|retries| retries > RETRIES_MAX) {
            return Err(format!("retries: it must be at most {RETRIES_MAX}"));
        }
        let says_so = written.timeout.is_some() || written.retries.is_some();
        let declared = says_so.then(|| Parameters {
            timeout: (timeout + ON_THE_WAY).as_millis() as u64,
            retry: written.retries.unwrap_or(Parameters::default().retry),
        });
        let output = written.output_max.map_or(OUTPUT_BYTES as u64, |bytes| bytes.0);
        if output == 0 || output > OUTPUT_BYTES_MAX as u64 {
            return Err(format!("output_max: it must be above 0 and at most {}", Bytes(OUTPUT_BYTES_MAX as u64)));
        }
        if written.cpus.is_some_and(|cpus| cpus.milli == 0) {
            return Err("cpus: it must be above 0, like 2 or 0.5".into());
        }
        let at_once = written.at_once.unwrap_or(1);
        if at_once == 0 || at_once > AT_ONCE_MAX {
            return Err(format!("at_once: it must be 1 to {AT_ONCE_MAX}"));
        }
        if written.at_once.is_some() && written.mode == Mode::Once {
            return Err("at_once: it is for mode: lines; with once each task has a process of its own".into());
        }
        if written.output.is_some() && written.mode == Mode::Lines {
            return Err("output: it is for mode: once; what a program of mode: lines says is JSON anyway".into());
        }
        Ok(Self {
            offer: Offer { action, version: written.version },
            command: written.command,
            mode: written.mode,
            at_once: at_once as usize,
            timeout,
            declared,
            memory: written.memory.filter(|memory| memory.0 > 0),
            cpus: written.cpus,
            output_bytes_max: output as usize,
            output: written.output.unwrap_or_default(),
            env: written.env,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_read_and_what_is_wrong_names_its_place() {
        let namespace = Namespace::default();
        let whole = json!({"kind": "Action", "name": "actions.pf", "version": 2, "command": ["./pf.py"], "mode": "lines",
            "at_once": 4, "timeout": "10s", "memory": "64MiB", "cpus": "500m", "output_max": "2KiB", "env": {"UNIT": "volt"}});
        let read = Definition::read(whole.clone(), &namespace).unwrap();
        assert_eq!(read.offer.to_string(), "urn:mutirao:Action:actions.pf@2");
        assert_eq!((read.at_once, read.output_bytes_max, read.mode), (4, 2_048, Mode::Lines));
        assert_eq!(read.declared, Some(Parameters { timeout: 15_000, retry: 3 }), "the way takes its time too");
        let silent = json!({"kind": "Action", "name": "a", "command": ["true"]});
        assert_eq!(Definition::read(silent.clone(), &namespace).unwrap().declared, None);
        let often = json!({"retries": 9, "kind": "Action", "name": "a", "command": ["true"]});
        assert_eq!(
            Definition::read(often, &namespace).unwrap().declared,
            Some(Parameters { timeout: 35_000, retry: 9 })
        );
        for (field, value, words) in [
            ("kind", json!("Queue"), "kind is Queue"),
            ("name", json!("a/b"), "name: "),
            ("name", json!("urn:other:Action:a"), "not of the namespace mutirao"),
            ("name", json!("builtin.http"), "kept for actions built in"),
            ("command", json!([]), "command: there is no program"),
            ("command", json!(["a\u{0}"]), "zero byte"),
            ("timeout", json!("0s"), "timeout: "),
            ("retries", json!(101), "retries: "),
            ("output_max", json!("1GiB"), "output_max: "),
            ("output", json!("json"), "output: it is for mode: once"),
            ("output", json!("yaml"), "unknown variant `yaml`"),
            ("cpus", json!("0"), "cpus"),
            ("at_once", json!(0), "at_once: "),
            ("mode", json!("once"), "at_once: it is for mode: lines"),
            ("tiemout", json!("1s"), "unknown field `tiemout`"),
        ] {
            let mut broken = whole.clone();
            broken[field] = value;
            let why = Definition::read(broken, &namespace).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
