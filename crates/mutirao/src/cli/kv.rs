//! `mutirao kv …`

mod bulk;
mod hour;
mod import;
mod list;
mod watch;

use std::io::Read;
use std::path::PathBuf;

use bytes::Bytes;
use clap::{Args, Subcommand};
use mutirao_client::ClientError;
use mutirao_client::kv::{OnlyIf, Seen, Until};
use mutirao_kv::problems::{STATE, WRITE};
use mutirao_kv::service::{WriteState, WriteView};

use super::out::{Out, Shape};
use super::{Globals, reach};
use crate::failure::{Exit, Failure};
use list::Shown;

/// More than any value may have, so that the server says what is wrong.
const READ_BYTES_MAX: u64 = 2 << 20;
const PAGE_ROWS: u32 = 1_000;

#[derive(Debug, Args)]
pub struct KvArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Keep a value under a key: `mutirao kv put greeting hello`
    Put {
        /// 1 to 512 bytes, none of them a control character
        key: String,
        /// The value; without it, or with `-`, it is read from the standard input
        #[arg(allow_negative_numbers = true)]
        value: Option<String>,
        /// Read the value from a file
        #[arg(long, conflicts_with = "value")]
        file: Option<PathBuf>,
        /// What the value is, like `application/json`
        #[arg(long)]
        content_type: Option<String>,
        /// How long it lasts, like `10m`; then the key is gone
        #[arg(long)]
        ttl: Option<String>,
        #[command(flatten)]
        only: Only,
    },
    /// Write the value under a key to the standard output
    Get {
        /// The whole of it, as it was put
        key: String,
        /// Wait until the key's value is at least of this revision
        #[arg(long)]
        min_rev: Option<u64>,
        /// Wait until this write is applied
        #[arg(long)]
        write: Option<String>,
        /// How long to wait for that, at most `1m`; `5s` when left out
        #[arg(long)]
        wait: Option<String>,
    },
    /// Remove a key; one that is not there is no mistake
    Del {
        /// The whole of it, as it was put
        key: String,
        /// Only if the key is at this revision
        #[arg(long)]
        if_revision: Option<u64>,
    },
    /// Show the keys that begin so
    List {
        /// All keys when left out
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// Show their values too
        #[arg(long)]
        values: bool,
        /// How many at most; all when left out
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
    },
    /// Show what changes, as it does
    Watch {
        /// All keys when left out
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// From there on, instead of from now on: a cursor that an event brought along (`--json`)
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show what became of a write
    Write {
        /// As the answer to the write named it
        id: String,
        /// How long to wait for it to be applied, at most `1m`; not at all when left out
        #[arg(long)]
        wait: Option<String>,
    },
    /// Write what `kv export` wrote, a JSON object a line
    Import {
        /// `-` for the standard input
        file: PathBuf,
    },
    /// Write the keys that begin so, and their values, a JSON object a line
    Export {
        /// All keys when left out
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
    },
}

/// What must hold for a write to be made.
#[derive(Debug, Args)]
struct Only {
    /// Only if the key is not there
    #[arg(long, conflicts_with = "if_revision")]
    create: bool,
    /// Only if the key is at this revision
    #[arg(long)]
    if_revision: Option<u64>,
}

impl Only {
    fn if_(&self) -> OnlyIf {
        match (self.create, self.if_revision) {
            (true, _) => OnlyIf::Absent,
            (false, Some(revision)) => OnlyIf::At(revision),
            (false, None) => OnlyIf::Always,
        }
    }
}

pub async fn run(globals: &Globals, args: KvArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::Put { key, value, file, content_type, ttl, only } => {
            let value = read_value(value, file)?;
            let (content_type, ttl) = (content_type.as_deref(), ttl.as_deref());
            // Whoever types the next command expects it to see this one.
            let view = client.put_entry(&key, value, content_type, ttl, only.if_(), Until::Applied).await;
            let view: WriteView = view.or_else(|error| in_doubt(&key, error, out))?;
            out.answer(&view, |view| format!("{key} is kept, {}", stands(view)))
        }
        Verb::Get { key, min_rev, write, wait } => {
            let seen = Seen { min_rev, write: write.as_deref(), wait: wait.as_deref() };
            let read = client.entry(&key, seen).await.map_err(in_flags)?;
            match out.shape {
                // As it is, so that it can be piped into a file.
                Shape::People => out.bytes(&read.bytes),
                Shape::Json => out.answer(&bulk::shown(&key, &read), |_| String::new()),
            }
        }
        Verb::Del { key, if_revision } => {
            let only_if = if_revision.map_or(OnlyIf::Always, OnlyIf::At);
            let view = client.delete_entry(&key, only_if, Until::Applied).await;
            let view: WriteView = view.or_else(|error| in_doubt(&key, error, out))?;
            out.answer(&view, |view| format!("{key} is gone, {}", stands(view)))
        }
        Verb::List { prefix, values, limit } => {
            let shown = if values { Shown::Values } else { Shown::Types };
            list::run(&client, &prefix, shown, limit, out).await
        }
        Verb::Watch { prefix, cursor } => watch::run(&client, &prefix, cursor, out).await,
        Verb::Write { id, wait } => {
            let view: WriteView = client.entry_write(&id, wait.as_deref()).await.map_err(in_flags)?;
            out.answer(&view, how)
        }
        Verb::Import { file } => import::run(&client, &file, out).await,
        Verb::Export { prefix } => bulk::export(&client, &prefix, out).await,
    }
}

fn read_value(value: Option<String>, file: Option<PathBuf>) -> Result<Bytes, Failure> {
    let read = |from: &mut dyn Read| {
        let mut bytes = Vec::new();
        from.take(READ_BYTES_MAX).read_to_end(&mut bytes).map(|_| Bytes::from(bytes))
    };
    match (value.as_deref(), file) {
        (_, Some(file)) => std::fs::File::open(&file)
            .and_then(|mut opened| read(&mut opened))
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display()))),
        (None | Some("-"), None) => Ok(read(&mut std::io::stdin().lock())?),
        (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

/// A write of which nobody knows whether it will be made is told to programs in the form of an answer, and ends as a failure
/// all the same.
fn in_doubt(key: &str, error: ClientError, out: Out) -> Result<WriteView, Failure> {
    let ClientError::Problem(problem) = &error else { return Err(error.into()) };
    let text = |member: &str| problem.members.get(member).and_then(serde_json::Value::as_str);
    let (Some("in_doubt"), Some(write)) = (text(STATE), text(WRITE)) else { return Err(error.into()) };
    let view = WriteView { write: write.into(), state: WriteState::InDoubt, revision: None };
    if out.shape == Shape::Json {
        out.answer(&view, how)?;
    }
    let why = problem.detail.as_deref().unwrap_or(&problem.title);
    let line = format!(
        "{key} is in doubt, write {write}: {why}; `mutirao kv write {write} --wait 30s` says what became of it"
    );
    Err(Failure::new(Exit::Unreachable, line))
}

/// The API advises in its own terms.
fn in_flags(error: ClientError) -> Failure {
    Failure::from(error).saying(|line| line.replace("?wait=", "--wait "))
}

/// How one that was just made stands, and how to ask after it where that is not the end of it.
fn stands(view: &WriteView) -> String {
    match view.state {
        WriteState::Queued => {
            format!("queued; `mutirao kv write {} --wait 30s` says when it is applied", view.write)
        }
        _ => how(view),
    }
}

/// How a write stands.
fn how(view: &WriteView) -> String {
    let state = match view.state {
        WriteState::Queued => "queued",
        WriteState::Applied => "applied",
        WriteState::Superseded => "applied, and replaced by another since",
        WriteState::Conflict => "not made: its condition did not hold",
        WriteState::InDoubt => "in doubt: not applied so far, and nobody has confirmed it",
        WriteState::NotMade => "not made, and never will be",
        WriteState::SetAside => "set aside: the server's database refused it, and it is with the dead letters",
    };
    view.revision.map_or(state.into(), |revision| format!("{state}, revision {revision}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_types_a_command_is_advised_in_its_flags() {
        let problem = mutirao_core::Problem::new(504, "not-yet", "x").remedy("wait longer with ?wait=30s");
        match in_flags(problem.into()) {
            Failure::Said { line, .. } => assert_eq!(line, "x; wait longer with --wait 30s"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_write_that_is_not_applied_yet_is_told_with_the_name_to_ask_by() {
        let view = |state, revision| WriteView { write: "w3-1-2-0".into(), state, revision };
        assert!(stands(&view(WriteState::Queued, None)).contains("kv write w3-1-2-0 "));
        assert_eq!(stands(&view(WriteState::Applied, Some(7))), "applied, revision 7");
    }
}
