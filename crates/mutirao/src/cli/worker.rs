//! `mutirao worker …`

mod shown;

use clap::{Args, Subcommand};
use mutirao_client::PageArgs;
use mutirao_core::auth::EnrolmentSpec;
use mutirao_core::check::Kinds;
use mutirao_core::{Clock, QueueName, SystemClock};

use super::out::Out;
use super::{Globals, reach, show};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the workers that are there
    List,
    /// Show all that is known of one worker
    Show {
        /// The worker's id
        worker: String,
    },
    /// Hand a worker nothing more: it finishes what it has, and waits to be stopped
    Drain {
        /// The worker's id
        worker: String,
    },
    /// Let a worker that was drained be handed tasks again, from its next start on
    Resume {
        /// The worker's id
        worker: String,
    },
    /// Make a one-time token with which one worker may join
    Invite {
        /// The queue it will take tasks of
        #[arg(long, default_value_t)]
        queue: QueueName,
        /// Let a checker in instead, for these kinds of checks: http,tcp,tls,dns,icmp,exec
        #[arg(long, value_name = "KINDS", conflicts_with = "queue")]
        checks: Option<Kinds>,
        /// Let a host in instead, which runs parts of streams
        #[arg(long, conflicts_with_all = ["queue", "checks"])]
        streams: bool,
    },
    /// Show the keys that let workers in, the oldest first
    Keys {
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Go on where a former page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Keep a worker out: make its key worthless and close its link
    Revoke {
        /// The worker's id, as `mutirao worker keys` shows it
        worker: String,
    },
}

pub async fn run(globals: &Globals, args: WorkerArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::List => {
            let now = SystemClock.now();
            out.answer(&client.workers().await?, |workers| shown::workers(workers, now))?;
            // Time in which nobody could be heard counts against no worker, so the list alone looks like peace.
            if client.ready().await.is_err_and(|error| error.to_string().contains("broker: ")) {
                out.note("the broker is away: this is how workers stood when they were last heard; `mutirao doctor` says more");
            }
            Ok(())
        }
        Verb::Show { worker } => {
            let now = SystemClock.now();
            out.answer(&client.worker(&worker).await?, |worker| shown::worker(worker, now))
        }
        Verb::Drain { worker } => {
            let now = SystemClock.now();
            out.answer(&client.drain_worker(&worker).await?, |worker| shown::worker(worker, now))
        }
        Verb::Resume { worker } => {
            let now = SystemClock.now();
            out.answer(&client.resume_worker(&worker).await?, |worker| shown::worker(worker, now))?;
            out.note("a process that has drained stays so: `mutirao up` starts its own anew by itself, others are yours to start");
            Ok(())
        }
        Verb::Invite { checks: Some(kinds), .. } => {
            let spec = EnrolmentSpec { checks: Some(kinds), ..EnrolmentSpec::default() };
            let enrolment = client.create_enrolment(&spec).await?;
            out.answer(&enrolment, |enrolment| enrolment.token.clone())?;
            out.note(format!("good once, until {}. On the checker's machine:", enrolment.expires_at));
            let url = from_elsewhere(client.url(), enrolment.url.as_deref());
            out.note(format!("  MUTIRAO_ENROL_TOKEN=… mutirao role checker --url {url} --dir ./mutirao-checker"));
            Ok(())
        }
        Verb::Invite { streams: true, .. } => {
            let spec = EnrolmentSpec { streams: true, ..EnrolmentSpec::default() };
            let enrolment = client.create_enrolment(&spec).await?;
            out.answer(&enrolment, |enrolment| enrolment.token.clone())?;
            out.note(format!("good once, until {}. On the host's machine:", enrolment.expires_at));
            let url = from_elsewhere(client.url(), enrolment.url.as_deref());
            out.note(format!("  MUTIRAO_ENROL_TOKEN=… mutirao role host --url {url} --dir ./mutirao-host"));
            Ok(())
        }
        Verb::Invite { queue, checks: None, .. } => {
            // A worker for a queue that does not exist would wait for ever.
            client.queue(&queue).await?;
            let enrolment = client.create_enrolment(&EnrolmentSpec { queue, ..EnrolmentSpec::default() }).await?;
            out.answer(&enrolment, |enrolment| enrolment.token.clone())?;
            let queue = &enrolment.queue;
            let url = from_elsewhere(client.url(), enrolment.url.as_deref());
            out.note(format!("good once, until {}. On the worker's machine:", enrolment.expires_at));
            out.note(format!(
                "  MUTIRAO_ENROL_TOKEN=… mutirao role worker --url {url} --queue {queue} --dir ./mutirao-worker"
            ));
            if is_here_only(url) {
                out.note(
                    "only this machine reaches that address: for others, start the manager with --listen 0.0.0.0:7070",
                );
            } else if url != client.url() {
                out.note("that is where the manager takes itself to be reached; if others know it by another name, set api.url");
            }
            Ok(())
        }
        Verb::Keys { limit, cursor } => {
            let now = SystemClock.now();
            let keys = client.worker_keys(PageArgs { limit: Some(limit), cursor }).await?;
            out.answer(&keys, |keys| show::worker_keys(&keys.items, now))?;
            if let Some(cursor) = &keys.next {
                out.note(format!("there are more: add --cursor {cursor}"));
            }
            Ok(())
        }
        Verb::Revoke { worker } => {
            client.revoke_worker_key(&worker).await?;
            out.note(format!("the key of {worker} is worthless now; its link closes within seconds"));
            Ok(())
        }
    }
}

/// Where a worker on another machine goes: where we went, unless that leads nowhere from there and the manager knows better.
fn from_elsewhere<'a>(ours: &'a str, shown: Option<&'a str>) -> &'a str {
    match shown {
        Some(shown) if is_here_only(ours) => shown,
        _ => ours,
    }
}

fn is_here_only(url: &str) -> bool {
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    host.starts_with("127.") || host.starts_with("[::1]") || host.starts_with("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_invited_is_sent_where_others_reach_the_manager() {
        let shown = Some("https://lab.example.org:7070");
        assert_eq!(from_elsewhere("http://127.0.0.1:7070", shown), "https://lab.example.org:7070");
        assert_eq!(from_elsewhere("http://localhost:7070", shown), "https://lab.example.org:7070");
        assert_eq!(from_elsewhere("https://balancer:1", shown), "https://balancer:1", "that way was good for us");
        assert_eq!(from_elsewhere("http://[::1]:1", None), "http://[::1]:1");
        assert!(is_here_only("http://127.0.0.1:1") && !is_here_only("http://10.0.0.1:1"));
    }
}
