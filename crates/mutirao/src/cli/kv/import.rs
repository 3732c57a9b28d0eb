//! `mutirao kv import`: some hundreds of operations at a time, each batch when the one before it is applied. Wherever it ends, it says
//! how far it came.

mod lines;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use mutirao_client::kv::Until;
use mutirao_client::{Client, ClientError};
use mutirao_core::{Clock, Problem, SystemClock};
use mutirao_kv::view::{Operated, Operation};
use serde_json::json;

use super::super::out::Out;
use super::bulk::bar;
use crate::failure::Failure;
use lines::{Line, Lines};

/// Operations, and their bytes, that go together; one alone may have more.
const BATCH_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How often in a row the server may say that it is too much; it says how long to wait each time.
const REFUSALS_MAX: u32 = 120;
const WAIT_MIN: Duration = Duration::from_secs(1);

pub async fn run(client: &Client, file: &Path, out: Out) -> Result<(), Failure> {
    let input: Box<dyn BufRead> = if file == Path::new("-") {
        Box::new(BufReader::new(std::io::stdin()))
    } else {
        let opened = std::fs::File::open(file)
            .map_err(|error| Failure::usage(format!("{} cannot be read: {error}", file.display())))?;
        Box::new(BufReader::new(opened))
    };
    let bar = bar(out, "entries");
    let (mut batch, mut bytes, mut done) = (Vec::new(), 0, 0);
    for line in Lines::of(input) {
        let Line { operation, bytes: more } = line.map_err(|wrong| {
            let unsent = batch.len();
            Failure::usage(format!("{wrong}; {done} were written, {unsent} before it not yet"))
        })?;
        // Before it would be too much: a request has a bound of its own.
        if bytes + more > BATCH_BYTES_MAX && !batch.is_empty() {
            done = send(client, std::mem::take(&mut batch), done).await?;
            bytes = 0;
        }
        bytes += more;
        batch.push(operation);
        if batch.len() == BATCH_MAX {
            done = send(client, std::mem::take(&mut batch), done).await?;
            bytes = 0;
        }
        bar.set_position(done);
    }
    done = send(client, batch, done).await?;
    bar.finish_and_clear();
    out.answer(&json!({ "written": done }), |_| format!("{done} entries are kept"))
}

/// As fast as they are applied, so that they never pile up. Returns how many are written with these.
async fn send(client: &Client, mut operations: Vec<Operation>, mut done: u64) -> Result<u64, Failure> {
    let mut refusals = 0;
    while !operations.is_empty() {
        let batch = json!({ "operations": operations });
        let wait = match client.write_entries::<Vec<Operated>>(&batch, Until::Applied).await {
            Ok(told) => {
                let sorted = sort_out(operations, told, done)?;
                refusals = if sorted.written > 0 { 0 } else { refusals };
                done += sorted.written;
                operations = sorted.again;
                sorted.wait
            }
            Err(error) if error.is_busy() => error.retry_after(),
            Err(error) => return Err(ended(error, done, operations.len())),
        };
        if operations.is_empty() {
            break;
        }
        if refusals >= REFUSALS_MAX {
            return Err(ended(Problem::busy("the server takes no more writes", 1).into(), done, operations.len()));
        }
        refusals += 1;
        SystemClock.sleep(wait.max(WAIT_MIN)).await;
    }
    Ok(done)
}

/// What a batch came to.
#[derive(Debug, Default)]
struct Sorted {
    written: u64,
    /// To be sent again after a while, in their order.
    again: Vec<Operation>,
    wait: Duration,
}

/// Those that were too many go again, and with them what came after them for the same keys: else the older would be the last.
fn sort_out(operations: Vec<Operation>, told: Vec<Operated>, done: u64) -> Result<Sorted, Failure> {
    let mut sorted = Sorted::default();
    let mut again: HashSet<String> = HashSet::new();
    let all = operations.len();
    for (operation, told) in operations.into_iter().zip(told) {
        match told {
            Operated::Refused { problem } if problem.status == 429 => {
                let wait = Duration::from_secs(problem.retry_after_s.unwrap_or(0));
                sorted.wait = sorted.wait.max(wait);
                again.insert(operation.key.clone());
                sorted.again.push(operation);
            }
            Operated::Refused { problem } => {
                let before = done + sorted.written;
                let failure = Failure::from(ClientError::from(problem));
                return Err(failure.saying(|line| {
                    let with = format!("and perhaps some of the {all} that went with it");
                    format!("{}: {line}; {before} before it were written, {with}", operation.key)
                }));
            }
            Operated::Written(_) if again.contains(&operation.key) => sorted.again.push(operation),
            Operated::Written(_) => sorted.written += 1,
        }
    }
    Ok(sorted)
}

/// Why no more were sent, and how far it came.
fn ended(error: ClientError, done: u64, next: usize) -> Failure {
    let is_known = match &error {
        // Whatever arrived may have been done.
        ClientError::Broken { .. } | ClientError::TimedOut { .. } | ClientError::Unexpected { .. } => false,
        ClientError::Problem(problem) => problem.status < 500,
        _ => true,
    };
    let next =
        if is_known { format!("none of the next {next} was") } else { format!("of the next {next} it is not known") };
    Failure::from(error).saying(|line| format!("{line}; {done} before it were written, {next}"))
}

#[cfg(test)]
mod tests {
    use mutirao_kv::service::{WriteState, WriteView};

    use super::*;

    fn operation(key: &str, value: &str) -> Operation {
        Operation { key: key.into(), value: Some(value.into()), ..Operation::default() }
    }

    fn written() -> Operated {
        Operated::Written(WriteView { write: "w".into(), state: WriteState::Applied, revision: Some(1) })
    }

    fn refused(problem: Problem) -> Operated {
        Operated::Refused { problem }
    }

    #[test]
    fn what_was_too_much_goes_again_and_never_after_what_is_newer() {
        let operations = [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("c", "1")];
        let operations = operations.map(|(key, value)| operation(key, value)).to_vec();
        let told =
            vec![written(), refused(Problem::busy("x", 3)), written(), written(), refused(Problem::busy("x", 1))];
        let sorted = sort_out(operations, told, 7).unwrap();
        let again: Vec<_> = sorted.again.iter().map(|one| (one.key.as_str(), one.value.as_deref().unwrap())).collect();
        assert_eq!(again, [("b", "1"), ("b", "2"), ("c", "1")]);
        assert_eq!((sorted.written, sorted.wait), (2, Duration::from_secs(3)));
    }

    #[test]
    fn wherever_it_ends_it_says_how_far_it_came() {
        let said = |failure: Failure| match failure {
            Failure::Said { line, .. } => line,
            other => panic!("{other:?}"),
        };
        let told = vec![written(), refused(Problem::invalid("key", "it is empty"))];
        let line = said(sort_out(vec![operation("a", "1"), operation("b", "1")], told, 7).unwrap_err());
        assert!(line.starts_with("b: ") && line.contains("8 before it were written"), "{line}");
        let broken = ClientError::Broken { url: "http://h".into(), why: "reset".into() };
        let line = said(ended(broken, 7_000, 500));
        assert!(line.ends_with("; 7000 before it were written, of the next 500 it is not known"), "{line}");
        let line = said(ended(Problem::forbidden("x").into(), 500, 20));
        assert!(line.ends_with("; 500 before it were written, none of the next 20 was"), "{line}");
    }
}
