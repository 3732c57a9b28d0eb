//! `mutirao submit -- CMD…`: from flags to a job, and, with `--wait`, to its end.

mod input;

use std::path::PathBuf;

use clap::Args;
use mutirao_client::{Client, Reach};
use mutirao_core::exec::Exec;
use mutirao_core::job::{JobSpec, JobView, Spread};
use mutirao_core::limits::{RETRIES_MAX, STDIN_BYTES_MAX};
use mutirao_core::quantity::{Bytes, Cpus, Span};
use mutirao_core::task::{Action, Needs, Retry, TaskSpec};
use mutirao_core::{JobKey, QueueName, TaskKey};
use mutirao_queues::Policy;

use super::logs::{self, Streams};
use super::out::{Out, Shape};
use super::{Globals, flags, held_up, reach, wait};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct SubmitArgs {
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// The queue whose workers run it
    #[arg(long, default_value_t)]
    queue: QueueName,
    /// One task for each index from A to B, in $MUTIRAO_TASK_INDEX
    #[arg(long, value_name = "A-B", value_parser = input::indexes, conflicts_with = "each_line")]
    array: Option<(u32, u32)>,
    /// One task for each line of a text file (UTF-8; - is stdin), in $MUTIRAO_ENTRY
    #[arg(long, value_name = "FILE")]
    each_line: Option<PathBuf>,
    /// One task for each of a list in a JSON file (- is stdin): objects with command, then, env, needs and entry
    #[arg(long, value_name = "FILE", conflicts_with_all = ["array", "each_line"])]
    from_json: Option<PathBuf>,
    /// Tries after the first, when a try fails or times out [default: the queue's, else 0]
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    retries: Option<u32>,
    /// Goes first where the queue's policy goes by it, from -1000 to 1000
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Workers that may die under a task before it is given up; 0: none may [default: the queue's, else 5]
    #[arg(long, value_name = "N", allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(..=i64::from(RETRIES_MAX)))]
    crash_limit: Option<u32>,
    /// While a job with this key is open, give that one instead of submitting another
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// Begin when this job has ended; may be repeated
    #[arg(long, value_name = "ID")]
    after: Vec<JobKey>,
    /// Begin when this job has ended ok, and be cancelled if it has not; may be repeated
    #[arg(long, value_name = "ID")]
    after_ok: Vec<JobKey>,
    /// How long one try may run, such as 30s, 5m or 2h [default: the queue's, else for ever]
    #[arg(long)]
    timeout: Option<Span>,
    /// The cpus each task needs, such as 2, 0.5 or 250m
    #[arg(long, default_value_t = Cpus::ONE, allow_negative_numbers = true)]
    cpus: Cpus,
    /// The memory each task needs and is held to, such as 512M or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = input::memory)]
    mem: Option<Bytes>,
    /// A variable for the tasks; without a value, the one it has here
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// The folder in which the tasks run, on the worker's machine; without it, each gets an empty one of its own
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A text file (UTF-8; - is stdin) that each task reads on its stdin
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Something to know the job by
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// Submitting again under the same key gives the same job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Stay until the job has ended, and end as it did
    #[arg(long)]
    wait: bool,
    /// The command and its arguments; no shell is involved
    #[arg(last = true, required_unless_present = "from_json", value_name = "CMD")]
    command: Vec<String>,
}

pub async fn run(globals: &Globals, args: SubmitArgs) -> Result<u8, Failure> {
    let out = Out::new(globals.shape());
    let (wait, key) = (args.wait, args.idempotency_key.clone());
    let spec = args.into_spec(|name| std::env::var(name).ok())?;
    // What can be refused here costs no round trip.
    spec.check().map_err(|problem| Failure::usage(flags::named(problem).line()))?;
    let client = reach::client(&globals.config(vec![])?)?;
    let job = match &key {
        Some(key) => client.submit_as(&spec, key).await?,
        None => client.submit(&spec).await?,
    };
    if job.joined {
        let key = job.unique.as_deref().unwrap_or_default();
        out.note(format!("nothing was submitted: job {} is open, and has the unique key {key}", job.id));
    } else if spec.priority != 0 {
        say_if_priority_is_ignored(&client, &spec, out).await;
    }
    match (wait, &spec.spread) {
        (false, _) => out.answer(&job, |job| job.id.to_string()).map(|()| 0),
        (true, Spread::Single) if out.shape == Shape::People => attend(&client, &job, out).await,
        (true, _) => {
            if out.shape == Shape::People {
                out.line(job.id)?;
            }
            wait::with_bar(&client, &job, out).await
        }
    }
}

/// A priority that changes nothing would be found out late. The job is accepted either way, so whoever cannot find it out
/// says nothing.
async fn say_if_priority_is_ignored(client: &Client, spec: &JobSpec, out: Out) {
    let Ok(queue) = client.queue(&spec.queue).await else { return };
    if queue.definition.policy == Policy::Fifo {
        let name = &spec.queue;
        out.note(format!(
            "--priority changes nothing: the queue {name} goes by first come, first served; `mutirao queue edit {name} \
             --policy priority` makes it count"
        ));
    }
}

/// Stays with a single task as if it ran here: its output is ours. Ctrl-C leaves it alone. When nobody reads the output
/// any more, the job's end is still waited for: whoever started us goes by our exit code.
async fn attend(client: &Client, job: &JobView, out: Out) -> Result<u8, Failure> {
    out.note(format!("job {}", job.id));
    let task = TaskKey { job: job.id, index: Spread::Single.first() };
    let attended = async {
        let copied = logs::copy(client, task, Streams::Both, Reach::ToTheEnd, out);
        let (copied, ended) = tokio::join!(copied, wait::until_final(client, job.id, |_| {}));
        match copied {
            Ok(()) | Err(Failure::BrokenPipe) => ended,
            Err(failure) => Err(failure),
        }
    };
    let ended = tokio::select! {
        ended = attended => ended?,
        never = held_up::say(client, job.id, |line| out.note(line)) => match never {},
        _ = tokio::signal::ctrl_c() => return Err(wait::detached(job.id, out)),
    };
    wait::conclude(client, &ended, out).await
}

impl SubmitArgs {
    /// The job that was meant. `env` looks up a variable of ours.
    fn into_spec(self, env: impl Fn(&str) -> Option<String>) -> Result<JobSpec, Failure> {
        let files = [("--each-line", &self.each_line), ("--from-json", &self.from_json), ("--stdin", &self.stdin)];
        let is_ours = |file: &Option<PathBuf>| file.as_ref().is_some_and(|file| file.as_os_str() == "-");
        let ours: Vec<&str> = files.into_iter().filter(|(_, file)| is_ours(file)).map(|(flag, _)| flag).collect();
        if ours.len() > 1 {
            let why = format!("{} cannot both be -; put one of them in a file", ours.join(" and "));
            return Err(Failure::usage(why));
        }
        let dir = self.dir.map(std::path::absolute).transpose()?;
        let exec = Exec {
            command: self.command,
            then: Vec::new(),
            env: input::variables(&self.env, &env)?,
            dir: dir.map(|dir| dir.to_string_lossy().into_owned()),
            stdin: self.stdin.map(|file| input::text_of("--stdin", &file, STDIN_BYTES_MAX)).transpose()?,
        };
        let spread = match (self.array, self.each_line, self.from_json) {
            (Some((first, last)), ..) => Spread::Array { first, last },
            (None, Some(file), _) => input::entries(&file)?,
            (None, None, Some(file)) => input::tasks(&file)?,
            (None, None, None) => Spread::Single,
        };
        let task = TaskSpec {
            needs: Needs { cpus: self.cpus, memory: self.mem.unwrap_or_default() },
            retry: self.retries.map(|retries| Retry { retries, ..Retry::default() }),
            timeout: self.timeout,
            ..TaskSpec::new(Action::Exec(exec))
        };
        let labels = input::labels(&self.label)?;
        Ok(JobSpec {
            name: self.name,
            queue: self.queue,
            spread,
            labels,
            priority: self.priority,
            crash_limit: self.crash_limit,
            unique: self.unique,
            after: self.after,
            after_ok: self.after_ok,
            ..JobSpec::new(task)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Noun};

    fn spec(args: &[&str]) -> Result<JobSpec, String> {
        let line = ["mutirao", "submit"].iter().chain(args);
        let Noun::Submit(args) = Cli::try_parse_from(line).map_err(|error| error.to_string())?.noun else {
            return Err("another noun".into());
        };
        let env = |name: &str| (name == "HERE").then(|| "there".to_owned());
        args.into_spec(env).map_err(|failure| format!("{failure:?}"))
    }

    fn exec(spec: &JobSpec) -> &Exec {
        let Action::Exec(exec) = &spec.task.action else { panic!("not an exec") };
        exec
    }

    #[test]
    fn a_bare_command_is_a_single_task_with_the_defaults_of_the_api() {
        let spec = spec(&["--", "echo", "--wait", "-x"]).unwrap();
        assert_eq!(exec(&spec).command, ["echo", "--wait", "-x"]);
        let expected = JobSpec::new(TaskSpec::new(Action::Exec(exec(&spec).clone())));
        assert_eq!(spec, expected);
    }

    #[test]
    fn every_flag_finds_its_field() {
        let spec = spec(&[
            "--name",
            "n",
            "--queue",
            "q",
            "--array",
            "3-9",
            "--retries",
            "2",
            "--timeout",
            "5m",
            "--cpus",
            "0.5",
            "--mem",
            "64M",
            "--env",
            "A=b=c",
            "--env",
            "HERE",
            "--dir",
            "/tmp",
            "--label",
            "k=v",
            "--",
            "true",
        ])
        .unwrap();
        assert_eq!((spec.name.as_deref(), spec.queue.as_str()), (Some("n"), "q"));
        assert_eq!(spec.spread, Spread::Array { first: 3, last: 9 });
        assert_eq!((spec.task.retry.unwrap().retries, spec.task.timeout), (2, Some(Span::secs(300))));
        assert_eq!(spec.task.needs, Needs { cpus: Cpus { milli: 500 }, memory: Bytes(64 << 20) });
        assert_eq!((exec(&spec).env["A"].as_str(), exec(&spec).env["HERE"].as_str()), ("b=c", "there"));
        assert_eq!((exec(&spec).dir.as_deref(), spec.labels["k"].as_str()), (Some("/tmp"), "v"));
    }

    #[test]
    fn lines_become_entries_and_the_last_needs_no_break() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a b\n\nc").unwrap();
        let path = file.path().display().to_string();
        assert_eq!(
            spec(&["--each-line", &path, "--", "true"]).unwrap().spread,
            Spread::Entries(vec!["a b".into(), "".into(), "c".into()])
        );
        std::fs::write(file.path(), b"ok\n\xff\n").unwrap();
        assert!(spec(&["--each-line", &path, "--", "true"]).unwrap_err().contains("line 2 is not UTF-8"));
        std::fs::write(file.path(), b"").unwrap();
        assert!(spec(&["--each-line", &path, "--", "true"]).unwrap_err().contains("there is no line in it"));
    }

    #[test]
    fn a_list_of_tasks_is_read_and_a_bad_one_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().display().to_string();
        let read = |text: &str, rest: &[&str]| {
            std::fs::write(file.path(), text).unwrap();
            let spec = spec(&[&["--from-json", &path][..], rest].concat())?;
            spec.check().map_err(|problem| flags::named(problem).line()).map(|()| spec)
        };
        let two = r#"[{"command": ["make"], "then": [["make", "test"]], "env": {"A": "1"}, "needs": {"cpus": "500m"}},
                      {"command": ["true"], "entry": "e"}]"#;
        let Spread::Tasks(tasks) = read(two, &[]).unwrap().spread else { panic!() };
        assert_eq!((tasks.len(), tasks[0].then[0][1].as_str(), tasks[1].entry.as_deref()), (2, "test", Some("e")));
        assert!(read(r#"[{"entry": "a"}, {}]"#, &["--", "cat"]).is_ok(), "those without a command have this one");
        for (text, why) in [
            (r#"[{"command": ["a"]}, {"comand": ["b"]}]"#, "task 2: unknown field `comand`"),
            (r#"[{"command": ["a"]}, {"command": "b c"}]"#, "task 2: invalid type"),
            (r#"[{"command": ["a"]}, {}]"#, "--from-json, task 2, command: is empty"),
            (r#"[{"command": ["a"], "needs": {"memory": "lots"}}]"#, "task 1: "),
            ("[]", "there is no task in it"),
            ("{}", "is not a list of tasks"),
            ("[{", "task 1: EOF"),
            ("x", "is not JSON"),
        ] {
            let error = read(text, &[]).unwrap_err();
            assert!(error.contains(why), "{text} gave {error}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_how_to_write_it() {
        for (args, remedy) in [
            (&["--array", "5", "--", "true"][..], "write it like 1-100"),
            (&["--array", "9-3", "--", "true"], "the smaller index first"),
            (&["--timeout", "soon", "--", "true"], "200ms, 30s, 5m"),
            (&["--mem", "lots", "--", "true"], "512M"),
            (&["--mem", "4", "--", "true"], "4M or 4GiB"),
            (&["--retries", "1001", "--", "true"], "0..=1000"),
            (&["--env", "A=1", "--env", "A=2", "--", "true"], "--env A is given twice"),
            (&["--label", "k=v", "--label", "k=w", "--", "true"], "--label k is given twice"),
            (&["--env", "NOTHERE", "--", "true"], "--env NOTHERE=VALUE"),
            (&["--label", "x", "--", "true"], "NAME=VALUE"),
            (&["--each-line", "-", "--stdin", "-", "--", "true"], "cannot both be -"),
            (&["--each-line", "/no/such", "--", "true"], "there is no such file"),
            (&["true"], "-- "),
            (&[], "<CMD>"),
        ] {
            let error = spec(args).unwrap_err();
            assert!(error.contains(remedy), "{args:?} gave {error}");
        }
    }
}
