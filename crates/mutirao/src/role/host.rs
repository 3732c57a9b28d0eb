//! `mutirao role host`: runs parts of streams as a process of its own. Who it is and how it reaches the broker is settled here, as
//! for a worker; the parts are the hosts crate's. Asked to stop, it writes down what its parts remember, says where, and goes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use mutirao_client::{Client, Credentials, HttpBlobs, Signer};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_hosts::{Ends, Files, Host, HostParts, Remote};
use mutirao_store::{FolderLock, StoreError};
use mutirao_streams::wire::{HostView, Standing};

use super::identity::{self, Identity};
use super::launched::Parent;
use super::reach::Reach;
use super::worker::{Contact, connect, first_contact, gone, line, manager_of, not_safe};
use crate::cli::Globals;
use crate::config::{InLayer, Labels, Settings, StreamFiles};
use crate::failure::{Exit, Failure};
use crate::signals::Asked;
use crate::{checks, logs, machine, tls};

/// Where its streams read and write files, in its folder, unless they may do so anywhere.
const FILES: &str = "files";

#[derive(Debug, Args)]
pub struct HostArgs {
    /// A folder of its own: its identity, and the files of its streams
    #[arg(long, default_value = "./mutirao-host")]
    dir: PathBuf,
    /// A name for people, and for streams that ask for it with `host: NAME` [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// How far from the devices it is: edge, fog or cloud
    #[arg(long, default_value = "cloud")]
    layer: InLayer,
    /// What it is like: zone=a,net=lab
    #[arg(long, default_value = "none")]
    labels: Labels,
    /// Threads that work on events [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Started by somebody who speaks over stdin
    #[arg(long, hide = true)]
    launched: bool,
    /// Where the manager of this machine keeps its certificate
    #[arg(long, hide = true, value_name = "FILE")]
    pin: Option<PathBuf>,
}

pub async fn run(globals: &Globals, args: HostArgs) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let mut asked = Asked::listen()?;
    let (mut parent, line_token) = match args.launched {
        true => Parent::meet(line()?).await.map(|(parent, token)| (Some(parent), token))?,
        false => (None, None),
    };
    let dir = std::path::absolute(&args.dir)?;
    let _lock = take_folder(&dir)?;
    let (url, pin) = manager_of(&settings, args.pin.clone())?;
    let trust = tls::trust(&settings, &url, pin)?;
    let token = line_token.or_else(|| std::env::var("MUTIRAO_ENROL_TOKEN").ok().filter(|token| !token.is_empty()));
    let name = args.name.clone().unwrap_or_else(machine::host_name);
    let identity = match (identity::load(&dir)?, token) {
        (Some(identity), _) => identity,
        (None, Some(token)) => {
            let client = Client::trusting(&url, Credentials::None, &trust)?;
            identity::enrol(&client, &dir, name.clone(), None, token).await?
        }
        (None, None) => return Err(nobody(&dir)),
    };
    check_duty(&identity, &dir)?;

    let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let signer = Signer::new(identity.worker.clone(), identity.key.clone(), clock.clone());
    let link = connect(&url, &trust, &signer, &clock, &dice);
    let mut state = link.state();
    let contact = tokio::select! {
        contact = first_contact(&mut state) => contact,
        () = asked.next() => return Ok(()),
        () = gone(&mut parent) => return Ok(()),
    };
    match contact {
        Contact::Made => {}
        Contact::Refused(why) => return Err(turned_away(&dir, &why)),
        Contact::Unsafe(why) => return Err(not_safe(&url, &why)),
    }
    let client = Client::with_clock(&url, Credentials::Key(signer), &trust, clock.clone(), dice.clone())?;
    let reach = Reach::find(&settings, &client, link, &clock, &dice).await?;
    let threads = args.threads.map_or(machine::cpus(), u32::from).max(1);
    let view = HostView {
        id: identity.worker.0.clone(),
        name,
        standing: Standing::Apart,
        layer: format!("{:?}", args.layer.0).to_lowercase(),
        labels: args.labels.0,
        cores: threads,
        memory_bytes: machine::memory(),
    };
    let ends = Ends {
        mqtt: None,
        amqp: None,
        web: Some(checks::calls(&settings, &clock)?),
        trust: tls::trust(&settings, "https://elsewhere", None)?,
        files: files(&settings, &dir)?,
    };
    let host = Host::start(HostParts {
        view,
        broker: reach.broker(),
        blobs: Arc::new(HttpBlobs::new(client.clone())),
        manager: Arc::new(Remote(client)),
        ends,
        threads: threads as usize,
        clock: clock.clone(),
        dice,
    });
    let host = host.map_err(|error| Failure::failed(format!("streams have no threads to run on: {error}")))?;
    tracing::info!(host = identity.worker.0, threads, "runs parts of streams");
    let ended = tokio::select! {
        why = reach.refused(&*clock) => Err(turned_away(&dir, &why)),
        why = host.followed() => Err(Failure::failed(why)),
        () = asked.next() => Ok(()),
        () = gone(&mut parent) => {
            tracing::info!("the parent is gone: writing down what is remembered, then going");
            Ok(())
        }
    };
    tokio::select! {
        () = host.stop(&*clock) => {}
        // Asked twice, it goes at once: what it did not write down, others read again.
        () = asked.next() => {}
    }
    reach.close();
    ended
}

fn take_folder(dir: &Path) -> Result<FolderLock, Failure> {
    FolderLock::take(dir).map_err(|error| match error {
        StoreError::InUse { path, pid } => {
            Failure::failed(format!("the host's folder {path} is in use by process {pid}; use another --dir"))
        }
        error => Failure::failed(error.to_string()),
    })
}

fn files(settings: &Settings, dir: &Path) -> Result<Files, Failure> {
    let folder = dir.join(FILES);
    std::fs::create_dir_all(&folder)?;
    Ok(match settings.streams_files {
        StreamFiles::Folder => Files::Within(folder),
        StreamFiles::Anywhere => Files::Anywhere(folder),
    })
}

fn check_duty(identity: &Identity, dir: &Path) -> Result<(), Failure> {
    let other = match (identity.streams, &identity.checks) {
        (true, _) => return Ok(()),
        (false, Some(_)) => "a checker's",
        (false, None) => "a worker's",
    };
    Err(Failure::usage(format!(
        "the identity in {} is {other}; use another --dir for a host of streams",
        dir.display()
    )))
}

fn nobody(dir: &Path) -> Failure {
    let line = format!(
        "this host is not enrolled ({} has no identity); make a one-time token with `mutirao worker invite --streams` and set \
         MUTIRAO_ENROL_TOKEN",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

fn turned_away(dir: &Path, why: &str) -> Failure {
    let line = format!(
        "the manager does not let this host in: {why}; if it is not known there any more, remove {}/identity and enrol it anew \
         with a token of `mutirao worker invite --streams`",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

#[cfg(test)]
mod tests {
    use mutirao_client::WorkerKey;
    use mutirao_core::WorkerId;

    use super::*;

    #[test]
    fn an_identity_of_another_kind_is_refused_by_name() {
        let identity = |checks: Option<&str>, streams| Identity {
            worker: WorkerId("h1".into()),
            queue: mutirao_core::QueueName::default(),
            checks: checks.map(|kinds| kinds.parse().unwrap()),
            streams,
            key: WorkerKey::generate(),
        };
        let refused = |identity: &Identity| match check_duty(identity, Path::new("x")) {
            Err(Failure::Said { line, .. }) => line,
            _ => String::new(),
        };
        assert_eq!(refused(&identity(None, true)), "");
        assert!(refused(&identity(None, false)).contains("a worker's"));
        assert!(refused(&identity(Some("http"), false)).contains("a checker's"));
    }
}
