//! `mutirao role worker`: who am I, how do I reach the manager, when do I go. The work itself is the worker crate's.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use mutirao_broker::link::{Link, LinkState};
use mutirao_client::{Client, Credentials, HttpBlobs, Signer, Trust};
use mutirao_core::quantity::Span;
use mutirao_core::{Clock, Dice, QueueName, SystemClock};
use mutirao_store::{FolderLock, StoreError};
use mutirao_worker::{Keeper, Stopper};
use tokio::net::unix::pipe;
use tokio::sync::watch;

use super::identity::{self, Identity};
use super::launched::{ORPHAN_WAIT, Parent};
use super::reach::Reach;
use crate::cli::{Globals, local_address};
use crate::config::Settings;
use crate::failure::{Exit, Failure};
use crate::signals::Asked;
use crate::{logs, machine, telemetry, tls};

/// The path of the link, which is also what its opening request signs.
const LINK_PATH: &str = "/v1/link";

/// How long the last reports may take of one that was told to go now, when there is somebody to hear them, and when not.
const LAST_WORDS_MAX: Duration = Duration::from_secs(20);
const LAST_WORDS_UNHEARD: Duration = Duration::from_secs(4);

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The queue whose tasks it takes
    #[arg(long, default_value_t)]
    queue: QueueName,
    /// A folder of its own: identity, spooled output, folders of tasks
    #[arg(long, default_value = "./mutirao-worker")]
    dir: PathBuf,
    /// A name for people [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// End after this long without a task
    #[arg(long, value_name = "SPAN")]
    idle_end: Option<Span>,
    /// Started by `mutirao up`, which speaks over stdin
    #[arg(long, hide = true)]
    launched: bool,
    /// Where the manager of this machine keeps its certificate
    #[arg(long, hide = true, value_name = "FILE")]
    pin: Option<PathBuf>,
}

pub async fn run(globals: &Globals, args: WorkerArgs) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let telemetry = telemetry::start(&settings, "worker")?;
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
    let identity = become_known(&url, &trust, &dir, &args, token).await?;

    let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let signer = Signer::new(identity.worker.clone(), identity.key.clone(), clock.clone());
    let link = connect(&url, &trust, &signer, &clock, &dice);
    let mut state = link.state();
    let contact = tokio::select! {
        contact = first_contact(&mut state) => contact,
        // Nothing is held yet, so there is nothing to wait for.
        () = asked.next() => return Ok(()),
        () = gone(&mut parent) => return Ok(()),
    };
    match contact {
        Contact::Made => {}
        Contact::Refused(why) => return Err(turned_away(&dir, &args, &why)),
        Contact::Unsafe(why) => return Err(not_safe(&url, &why)),
    }

    let client = Client::with_clock(&url, Credentials::Key(signer), &trust, clock.clone(), dice.clone())?;
    let reach = Reach::find(&settings, &client, link, &clock, &dice).await?;
    let blobs = HttpBlobs::new(client.clone());
    let capacity = machine::share(&settings, 1);
    let mut config = mutirao_worker::Config::new(identity.worker, identity.queue, capacity, dir.join("work"));
    config.host = machine::host_name();
    config.idle_end = args.idle_end.map(|span| span.0);
    config.keeper = Some(start_keeper(&config)?);
    let launched = parent.is_some();
    if launched {
        // An orphan waits with its last reports for a manager to come back.
        config.limits.goodbye_wait_max = ORPHAN_WAIT;
    }
    let (stopper, stop) = mutirao_worker::stop();
    let (orphaned, grace) = (AtomicBool::new(false), config.limits.stop_grace_max);
    let heeding = heed(asked, &stopper, &orphaned, || reach.is_up(), grace, &*clock);
    let watching = async {
        let Some(parent) = parent else { return std::future::pending().await };
        tokio::select! {
            () = parent.watch(stopper.clone(), &orphaned, || reach.is_up(), &*clock) => {}
            // Whoever launched it launches another, if one is wanted.
            why = reach.refused(&*clock) => {
                tracing::warn!("the manager lets this worker in no more ({why}): going");
                stopper.unheard();
                clock.sleep(grace + LAST_WORDS_UNHEARD).await;
            }
        }
    };
    let work = mutirao_worker::run(config, reach.broker(), Arc::new(blobs), clock.clone(), dice, stop);
    let refused = async {
        // One that was launched is told by whoever launched it, and has time to go.
        if launched { std::future::pending().await } else { reach.refused(&*clock).await }
    };
    let ended = tokio::select! {
        ended = work => ended.map_err(|error| Failure::failed(error.to_string())),
        () = watching => Ok(()),
        () = heeding => Ok(()),
        // What it runs is somebody else's by now, and nobody would take its reports.
        why = refused => Err(turned_away(&dir, &args, &why)),
    };
    reach.close();
    telemetry::stop(telemetry).await;
    ended
}

fn take_folder(dir: &Path) -> Result<FolderLock, Failure> {
    FolderLock::take(dir).map_err(|error| match error {
        StoreError::InUse { path, pid } => {
            Failure::failed(format!("the worker's folder {path} is in use by process {pid}; use another --dir"))
        }
        error => Failure::failed(error.to_string()),
    })
}

/// Our stdin as the pipe it is: tokio's own stdin would keep a thread, and with it the process, until the parent ends.
pub(crate) fn line() -> std::io::Result<pipe::Receiver> {
    pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)
}

/// Where the manager is, and where it keeps its certificate if it is on this machine.
pub(super) fn manager_of(settings: &Settings, pin: Option<PathBuf>) -> Result<(String, Option<PathBuf>), Failure> {
    if let Some(url) = settings.url.set() {
        return Ok((url.0.trim_end_matches('/').to_owned(), pin));
    }
    let data = &settings.data.0;
    match local_address(data)? {
        Some(url) => Ok((url, Some(tls::pin_file(data)))),
        None => Err(Failure::usage(format!(
            "no manager runs in {}; say where the manager is with --url http://HOST:PORT, or with --data DIR \
             when it is on this machine",
            data.display()
        ))),
    }
}

/// The identity in the folder, else a new one for the one-time token.
async fn become_known(
    url: &str,
    trust: &Trust,
    dir: &Path,
    args: &WorkerArgs,
    token: Option<String>,
) -> Result<Identity, Failure> {
    let identity = match (identity::load(dir)?, token) {
        (Some(identity), _) => identity,
        (None, Some(token)) => {
            let name = args.name.clone().unwrap_or_else(machine::host_name);
            let client = Client::trusting(url, Credentials::None, trust)?;
            identity::enrol(&client, dir, name, Some(&args.queue), token).await?
        }
        (None, None) => return Err(identity::none_yet(dir)),
    };
    if identity.checks.is_some() {
        return Err(Failure::usage(format!("the identity in {} is a checker's; use another --dir", dir.display())));
    }
    if identity.streams {
        return Err(Failure::usage(format!("the identity in {} is a host's; use another --dir", dir.display())));
    }
    if identity.queue != args.queue {
        return Err(Failure::usage(format!(
            "the worker in {} is enrolled for the queue {}, not {}; use another --dir",
            dir.display(),
            identity.queue,
            args.queue
        )));
    }
    Ok(identity)
}

pub(super) fn connect(
    url: &str,
    trust: &Trust,
    signer: &Signer,
    clock: &Arc<dyn Clock>,
    dice: &Arc<Dice>,
) -> Arc<Link> {
    // `http` is to `https` as `ws` to `wss`.
    let socket = format!("{}{LINK_PATH}", url.replacen("http", "ws", 1));
    let signer = signer.clone();
    let authorize = Arc::new(move || signer.authorize("GET", LINK_PATH, b""));
    Link::connect_trusting(socket, trust.clone(), authorize, clock.clone(), dice.clone())
}

/// What came of the first try to reach the manager.
pub(super) enum Contact {
    Made,
    Refused(String),
    Unsafe(String),
}

/// Waits for the first answer. A manager that is away is waited for; one that does not know us will not learn to.
pub(super) async fn first_contact(state: &mut watch::Receiver<LinkState>) -> Contact {
    let answered = |state: &LinkState| !matches!(state, LinkState::Connecting | LinkState::Down(_));
    match state.wait_for(answered).await.as_deref() {
        Ok(LinkState::Refused(why)) => Contact::Refused(why.clone()),
        Ok(LinkState::Unsafe(why)) => Contact::Unsafe(why.clone()),
        _ => Contact::Made,
    }
}

/// Ends when there is a parent and it is gone.
pub(crate) async fn gone(parent: &mut Option<Parent<pipe::Receiver>>) {
    match parent {
        Some(parent) => parent.gone().await,
        None => std::future::pending().await,
    }
}

pub(super) fn not_safe(url: &str, why: &str) -> Failure {
    Failure::new(Exit::Unreachable, format!("{url} cannot be spoken with: {why}"))
}

fn turned_away(dir: &Path, args: &WorkerArgs, why: &str) -> Failure {
    let remedy = if args.launched {
        // The parent starts us again, and gives a token to a worker without an identity.
        identity::forget(dir);
        "it enrols anew".into()
    } else {
        format!(
            "its key was revoked or is not known there; to let it in again, remove {}/identity and enrol it with a token of \
             `mutirao worker invite`",
            dir.display()
        )
    };
    Failure::new(Exit::NotAllowed, format!("the manager does not let this worker in: {why}; {remedy}"))
}

fn start_keeper(config: &mutirao_worker::Config) -> Result<Keeper, Failure> {
    let exe = std::env::current_exe()?;
    Keeper::start(&exe, &["role", "keeper"], &config.session)
        .map_err(|error| Failure::failed(format!("the keeper cannot be started: {error}")))
}

/// Asked once, it drains; asked again, or as an orphan, who drains already, it goes. Returns when it should have ended long
/// ago: nobody who asks twice is waited with for a manager that may never come back.
async fn heed(
    mut asked: Asked,
    stopper: &Stopper,
    orphaned: &AtomicBool,
    is_up: impl Fn() -> bool,
    grace: Duration,
    clock: &dyn Clock,
) {
    asked.next().await;
    stopper.drain();
    if !orphaned.load(Ordering::Relaxed) {
        asked.next().await;
    }
    let last_words = match is_up() {
        true => {
            stopper.now();
            LAST_WORDS_MAX
        }
        false => {
            stopper.unheard();
            LAST_WORDS_UNHEARD
        }
    };
    clock.sleep(grace + last_words).await;
}
