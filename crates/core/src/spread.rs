//! How a job spreads its task over many, and in what they differ.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exec::{check_commands, check_env};
use crate::limits::{ENTRY_BYTES_MAX, JOB_TASKS_MAX};
use crate::problem::Problem;
use crate::quantity::{Bytes, Cpus};
use crate::task::{Action, Needs, TaskSpec};

/// How a job spreads its task over many. A task's index is the number in its id and in `$MUTIRAO_TASK_INDEX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Spread {
    /// One task, with index 1.
    #[default]
    Single,
    /// One task for each index from `first` to `last`, both included.
    Array { first: u32, last: u32 },
    /// One task for each entry, in `$MUTIRAO_ENTRY`; indexes from 1, as lines are counted.
    Entries(Vec<String>),
    /// One task for each command, in place of the template's; indexes from 1.
    Commands(Vec<Vec<String>>),
    /// One task for each of these, with what it has of its own; indexes from 1.
    Tasks(Vec<Variation>),
}

/// What one task of a job has of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// The program and its arguments, in place of the template's commands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Commands that follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<Vec<String>>,
    /// Variables beside those of the template, or in their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// In place of the template's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// In `$MUTIRAO_ENTRY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
}

impl Variation {
    /// `template` is the command that a task without its own has.
    fn check(&self, template: &[String]) -> Result<(), Problem> {
        match (self.command.is_empty(), template.is_empty(), self.then.is_empty()) {
            (true, _, false) => {
                return Err(Problem::invalid("then", "follows no command").remedy("give the first as \"command\""));
            }
            (true, true, true) => {
                return Err(Problem::invalid("command", "is empty").remedy("give the program and its arguments"));
            }
            (true, false, true) => {}
            (false, ..) => check_commands(&self.command, &self.then)?,
        }
        check_env(&self.env)?;
        match &self.entry {
            Some(entry) => check_entry(entry).map_err(|problem| problem.under("entry")),
            None => Ok(()),
        }
    }
}

fn check_entry(entry: &str) -> Result<(), Problem> {
    let why = match entry.contains('\0') {
        true => "contains a NUL byte",
        false if entry.len() > ENTRY_BYTES_MAX => "is too long",
        false => return Ok(()),
    };
    Err(Problem::invalid("", why)
        .remedy(format!("an entry has at most {ENTRY_BYTES_MAX} bytes; put large inputs in files")))
}

impl Spread {
    pub fn first(&self) -> u32 {
        match self {
            Spread::Array { first, .. } => *first,
            _ => 1,
        }
    }

    pub fn count(&self) -> u64 {
        match self {
            Spread::Single => 1,
            Spread::Array { first, last } => u64::from(*last) + 1 - u64::from(*first).min(u64::from(*last) + 1),
            Spread::Entries(entries) => entries.len() as u64,
            Spread::Commands(commands) => commands.len() as u64,
            Spread::Tasks(tasks) => tasks.len() as u64,
        }
    }

    /// Whether tasks can be made of the template like this. The more exact complaint comes first.
    pub(crate) fn check(&self, template: &TaskSpec) -> Result<(), Problem> {
        self.check_parts(template)?;
        match self.count() {
            0 => return Err(Problem::invalid("spread", "there is no task in this job")),
            n if n > JOB_TASKS_MAX => {
                let why = format!("{n} tasks are too many, the most is {JOB_TASKS_MAX}");
                return Err(Problem::invalid("spread", why).remedy("split the job"));
            }
            _ => {}
        }
        let under_task = |problem: Problem| problem.under("task");
        match (self, &template.action) {
            // A command for each task stands in for the template's; the rest of it is checked.
            (Spread::Commands(_) | Spread::Tasks(_), Action::Exec(exec)) if exec.command.is_empty() => {
                let mut template = template.clone();
                if let Action::Exec(exec) = &mut template.action {
                    exec.command = vec!["-".into()];
                }
                template.check().map_err(under_task)
            }
            (Spread::Commands(_), Action::Exec(_)) => {
                Err(Problem::invalid("task.action.exec.command", "is given twice")
                    .remedy("leave it empty when spread.commands gives each task its own"))
            }
            _ => template.check().map_err(under_task),
        }
    }

    fn check_parts(&self, template: &TaskSpec) -> Result<(), Problem> {
        let at = |name: &str, i: usize| format!("spread.{name}[{i}]");
        match (self, &template.action) {
            (Spread::Array { first, last }, _) if first > last => {
                Err(Problem::invalid("spread.array", format!("{first}-{last} is empty"))
                    .remedy("write the smaller index first"))
            }
            (Spread::Single | Spread::Array { .. }, _) => Ok(()),
            (Spread::Entries(entries), _) => {
                let check = |(i, entry): (usize, &String)| check_entry(entry).map_err(|p| p.under(&at("entries", i)));
                entries.iter().enumerate().try_for_each(check)
            }
            (Spread::Commands(commands), Action::Exec(_)) => {
                let check = |(i, command): (usize, &Vec<String>)| {
                    let named = |p| Problem { field: Some(at("commands", i)), ..p };
                    check_commands(command, &[]).map_err(named)
                };
                commands.iter().enumerate().try_for_each(check)
            }
            (Spread::Tasks(tasks), Action::Exec(exec)) => {
                let check = |(i, task): (usize, &Variation)| {
                    task.check(&exec.command).map_err(|problem| problem.under(&at("tasks", i)))
                };
                tasks.iter().enumerate().try_for_each(check)
            }
            (Spread::Commands(_), _) => Err(Problem::invalid("spread.commands", "needs an exec action")),
            (Spread::Tasks(_), _) => Err(Problem::invalid("spread.tasks", "needs an exec action")),
        }
    }

    /// Has every task say what it needs if one does, and answers with the most that any needs.
    pub(crate) fn tell_needs(&mut self, template: Needs) -> Needs {
        let Spread::Tasks(tasks) = self else { return template };
        if tasks.iter().all(|task| task.needs.is_none()) {
            return template;
        }
        tasks.iter_mut().fold(Needs { cpus: Cpus::default(), memory: Bytes::default() }, |most, task| {
            let own = *task.needs.get_or_insert(template);
            Needs { cpus: most.cpus.max(own.cpus), memory: most.memory.max(own.memory) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Exec;
    use crate::job::JobSpec;

    fn job(tasks: Vec<Variation>) -> JobSpec {
        let task = TaskSpec::new(Action::Exec(Exec::default()));
        JobSpec { spread: Spread::Tasks(tasks), ..JobSpec::new(task) }
    }

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_is_wrong_with_one_of_many_is_said_with_its_place() {
        let good = Variation { command: words("make all"), then: vec![words("make test")], ..Variation::default() };
        assert_eq!(job(vec![good.clone()]).check(), Ok(()));
        for (bad, field) in [
            (Variation::default(), "spread.tasks[1].command"),
            (Variation { then: vec![words("x")], ..Variation::default() }, "spread.tasks[1].then"),
            (Variation { then: vec![vec![]], ..good.clone() }, "spread.tasks[1].then[0]"),
            (Variation { env: [("A=".into(), "".into())].into(), ..good.clone() }, "spread.tasks[1].env"),
            (Variation { entry: Some("\0".into()), ..good.clone() }, "spread.tasks[1].entry"),
        ] {
            let problem = job(vec![good.clone(), bad]).check().unwrap_err();
            assert_eq!(problem.field.as_deref(), Some(field), "{problem:?}");
        }
        let noop = JobSpec { spread: Spread::Tasks(vec![good]), ..JobSpec::new(TaskSpec::new(Action::Noop {})) };
        assert_eq!(noop.check().unwrap_err().field.as_deref(), Some("spread.tasks"));
    }

    #[test]
    fn a_job_needs_the_most_that_any_of_its_tasks_does_and_each_says_what() {
        let needs = |milli, mib: u64| Needs { cpus: Cpus { milli }, memory: Bytes(mib << 20) };
        let own = |needs| Variation { command: words("x"), needs, ..Variation::default() };
        let mixed = job(vec![own(Some(needs(250, 64))), own(None), own(Some(needs(500, 8)))]).with_needs_told();
        assert_eq!(mixed.task.needs, needs(1_000, 64));
        let Spread::Tasks(tasks) = &mixed.spread else { panic!() };
        assert_eq!(tasks[1].needs, Some(Needs::default()));
        let plain = job(vec![own(None), own(None)]);
        assert_eq!(plain.clone().with_needs_told(), plain, "nothing is added where nothing was said");
    }
}
