//! `mutirao role checker`: makes checks as a process of its own. Who it is and how it reaches the broker is settled here, as
//! for a worker; the checks are the monitors crate's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mutirao_client::{Client, Credentials, Signer};
use mutirao_core::check::{CheckKind, Kinds};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_monitors::checker::{self, CheckerParts};
use mutirao_monitors::placement::Standing;
use mutirao_monitors::service::Programs;
use mutirao_store::FolderLock;
use mutirao_worker::Gauge;
use tokio_util::sync::CancellationToken;

use super::identity::{self, Identity};
use super::launched::Parent;
use super::reach::Reach;
use super::worker::{Contact, connect, first_contact, gone, line, manager_of, not_safe};
use crate::cli::Globals;
use crate::config::{InLayer, Labels};
use crate::failure::{Exit, Failure};
use crate::signals::Asked;
use crate::{checks, logs, machine, tls};

/// How long checks that are under way get to end and to be told, once it is asked to stop.
const LAST_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct CheckerArgs {
    /// The kinds of checks it makes, of those that it was invited for: http,tcp [default: all of them]
    #[arg(long)]
    kinds: Option<Kinds>,
    /// What it is like, for monitors that ask for it: zone=a,net=lab
    #[arg(long, default_value = "none")]
    labels: Labels,
    /// How far from the devices it is: edge, fog or cloud
    #[arg(long, default_value = "cloud")]
    layer: InLayer,
    /// A folder of its own, for its identity
    #[arg(long, default_value = "./mutirao-checker")]
    dir: PathBuf,
    /// A name for people [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// Started by a node, which speaks over stdin
    #[arg(long, hide = true)]
    launched: bool,
    /// Where the manager of this machine keeps its certificate
    #[arg(long, hide = true, value_name = "FILE")]
    pin: Option<PathBuf>,
}

pub async fn run(globals: &Globals, args: CheckerArgs) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let mut asked = Asked::listen()?;
    let (mut parent, line_token) = match args.launched {
        true => Parent::meet(line()?).await.map(|(parent, token)| (Some(parent), token))?,
        false => (None, None),
    };
    let dir = std::path::absolute(&args.dir)?;
    let _lock = FolderLock::take(&dir).map_err(|error| Failure::failed(error.to_string()))?;
    let (url, pin) = manager_of(&settings, args.pin.clone())?;
    let trust = tls::trust(&settings, &url, pin)?;
    let token = line_token.or_else(|| std::env::var("MUTIRAO_ENROL_TOKEN").ok().filter(|token| !token.is_empty()));
    let identity = match (identity::load(&dir)?, token) {
        (Some(identity), _) => identity,
        (None, Some(token)) => {
            let name = args.name.clone().unwrap_or_else(machine::host_name);
            identity::enrol(&Client::trusting(&url, Credentials::None, &trust)?, &dir, name, None, token).await?
        }
        (None, None) => return Err(nobody(&dir)),
    };
    let kinds = kinds_of(&identity, args.kinds, checks::programs(&settings), &dir)?;

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
    tracing::info!(%kinds, "makes checks");
    let gauge = Gauge::default();
    let parts = CheckerParts {
        broker: reach.broker(),
        probes: checks::probes(&settings, &clock)?,
        clock: clock.clone(),
        kinds,
        standing: Standing { layer: args.layer.0, labels: args.labels.0 },
        worker: Some(identity.worker),
        bounds: checks::bounds(&settings),
        gauge: Some(Arc::new(move |now| gauge.look(now))),
    };
    let parted = async {
        gone(&mut parent).await;
        tracing::info!("the parent is gone: making what was taken, then going");
    };
    let stop = CancellationToken::new();
    let mut work = tokio::spawn(checker::run(parts, stop.clone()));
    let broke = |broke: tokio::task::JoinError| Failure::failed(format!("the checker broke: {broke}"));
    let ended = tokio::select! {
        ended = &mut work => ended.map_err(broke),
        why = reach.refused(&*clock) => Err(turned_away(&dir, &why)),
        () = async { tokio::select! { () = asked.next() => {} () = parted => {} } } => {
            stop.cancel();
            tokio::select! {
                // Those that cannot be told by then are lost, and seen as silence.
                last = clock.timeout(LAST_WAIT, &mut work) => last.unwrap_or(Ok(())).map_err(broke),
                () = asked.next() => Ok(()),
            }
        }
    };
    reach.close();
    ended
}

/// Those that it was let in for, or fewer.
fn kinds_of(identity: &Identity, asked: Option<Kinds>, programs: Programs, dir: &Path) -> Result<Kinds, Failure> {
    let Some(allowed) = &identity.checks else {
        let line = format!("the identity in {} is a worker's; use another --dir for a checker", dir.display());
        return Err(Failure::usage(line));
    };
    let kinds = asked.unwrap_or_else(|| allowed.clone());
    if !kinds.is_subset(allowed) {
        let line = format!("this checker was invited for {allowed}, not for {kinds}; invite another one");
        return Err(Failure::usage(line));
    }
    if kinds.contains(CheckKind::Exec) && programs == Programs::Refused {
        let line = "programs would run as this checker's user; allow it here with --set monitors.exec=allowed, or leave \
                    exec out of --kinds";
        return Err(Failure::usage(line));
    }
    Ok(kinds)
}

fn nobody(dir: &Path) -> Failure {
    let line = format!(
        "this checker is not enrolled ({} has no identity); make a one-time token with `mutirao worker invite --checks \
         http,tcp` and set MUTIRAO_ENROL_TOKEN",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

fn turned_away(dir: &Path, why: &str) -> Failure {
    let line = format!(
        "the manager does not let this checker in: {why}; if it is not known there any more, remove {}/identity and enrol \
         it anew",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

#[cfg(test)]
mod tests {
    use mutirao_client::WorkerKey;
    use mutirao_core::WorkerId;

    use super::*;

    fn identity(checks: Option<&str>) -> Identity {
        Identity {
            worker: WorkerId("c1".into()),
            queue: mutirao_core::QueueName::default(),
            checks: checks.map(|kinds| kinds.parse().unwrap()),
            streams: false,
            key: WorkerKey::generate(),
        }
    }

    #[test]
    fn a_checker_makes_what_it_was_invited_for_or_less() {
        let kinds = |allowed: Option<&str>, asked: Option<&str>, programs| {
            let asked = asked.map(|kinds| kinds.parse().unwrap());
            let found = kinds_of(&identity(allowed), asked, programs, Path::new("x"));
            found.map(|kinds| kinds.to_string()).ok()
        };
        let refused = Programs::Refused;
        assert_eq!(kinds(Some("http,tcp"), None, refused).as_deref(), Some("http,tcp"));
        assert_eq!(kinds(Some("http,tcp"), Some("tcp"), refused).as_deref(), Some("tcp"));
        assert_eq!(kinds(Some("tcp"), Some("http"), refused), None, "not invited for it");
        assert_eq!(kinds(None, Some("http"), refused), None, "a worker is no checker");
        assert_eq!(kinds(Some("exec"), None, refused), None);
        assert_eq!(kinds(Some("exec"), None, Programs::Allowed).as_deref(), Some("exec"));
    }
}
