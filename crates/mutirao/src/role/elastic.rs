//! `mutirao role elastic`: the resource manager as a process of its own. Also what `up` runs beside its manager.
//!
//! What it is called, how it reaches the manager and which nodes it has is settled here; what it does is the crate
//! `resource`'s.

mod identity;
mod providers;

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use mutirao_client::{Client, Credentials, Signer, Trust};
use mutirao_core::auth::{Enrol, NewKey};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Dice, SystemClock, Timestamp, WorkerId};
use mutirao_resource::local::Trusted;
use mutirao_resource::{HttpManager, Parts};
use mutirao_store::FolderLock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::worker::manager_of;
use crate::cli::Globals;
use crate::config::Settings;
use crate::failure::{Exit, Failure};
use crate::signals::Asked;
use crate::{logs, machine, tls};
use identity::Keys;
pub use identity::{Identity, load};
pub use providers::{Nodes, any, check, doctored, hosts};

/// How often it is looked whether the key has become too old, and how soon a change that was cut short is gone on with.
const KEY_LOOK_EVERY: Duration = Duration::from_secs(600);
const KEY_AGAIN: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct ElasticArgs {
    /// A folder of its own: identity, and the folders of its nodes
    #[arg(long, default_value = "./mutirao-elastic")]
    dir: PathBuf,
    /// The folder of its nodes; resource managers on one machine may share it [default: nodes in its own]
    #[arg(long)]
    nodes: Option<PathBuf>,
    /// A name for people [default: the machine's]
    #[arg(long)]
    name: Option<String>,
    /// The one-time token of `mutirao elastic invite`, needed once
    #[arg(long, env = "MUTIRAO_ENROL_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    invite: Option<String>,
    /// Take a new key before going to work
    #[arg(long)]
    rotate_key: bool,
}

pub async fn run(globals: &Globals, args: ElasticArgs) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let mut asked = Asked::listen()?;
    let dir = std::path::absolute(&args.dir)?;
    let _lock = FolderLock::take(&dir).map_err(|error| Failure::failed(error.to_string()))?;
    let (url, pin) = manager_of(&settings, None)?;
    let place = Place {
        trust: tls::trust(&settings, &url, pin.clone())?,
        url,
        pin: pin.unwrap_or_else(|| tls::pin_file(&dir)),
        nodes: args.nodes.map_or_else(|| Ok(dir.join("nodes")), std::path::absolute)?,
        dir,
        name: args.name.unwrap_or_else(machine::host_name),
        managers: None,
    };
    let identity = match (load(&place.dir)?, args.invite) {
        (Some(identity), _) => identity,
        (None, Some(token)) => place.enrol(token).await?,
        (None, None) => return Err(nobody(&place.dir)),
    };
    // The rest of it is done beside the work, as is what a former life left.
    let identity = match args.rotate_key {
        true => identity::begin(&place.dir, identity, SystemClock.now())?,
        false => identity,
    };
    let mut running = Running::start(&settings, place, identity)?;
    let ended = tokio::select! {
        () = asked.next() => Ok(()),
        ended = running.ended() => ended,
    };
    running.stop().await;
    ended
}

fn nobody(dir: &Path) -> Failure {
    let line = format!(
        "this resource manager is not enrolled ({} has no identity); make a one-time token with `mutirao elastic invite` \
         and give it with --invite or as MUTIRAO_ENROL_TOKEN",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

/// The folder of the resource manager that `up` runs.
pub fn folder(data: &Path) -> Result<PathBuf, Failure> {
    let dir = data.join("elastic");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

/// Where it is, and where its manager is.
#[derive(Clone)]
pub struct Place {
    pub url: String,
    pub trust: Trust,
    pub pin: PathBuf,
    pub dir: PathBuf,
    pub nodes: PathBuf,
    pub name: String,
    /// What managers beside the one here are started with.
    pub managers: Option<Trusted>,
}

impl Place {
    pub async fn enrol(&self, token: String) -> Result<Identity, Failure> {
        identity::enrol(self, &self.dir, &token, SystemClock.now()).await
    }

    fn client(&self, identity: &Identity) -> Result<Client, Failure> {
        let clock = SystemClock::shared();
        // A key's id takes the place of a worker's in what is signed.
        let signer = Signer::new(WorkerId(identity.id.clone()), identity.key.clone(), clock.clone());
        let credentials = Credentials::Key(signer);
        Ok(Client::with_clock(&self.url, credentials, &self.trust, clock, Arc::new(Dice::from_os()))?)
    }

    /// Whether the manager still knows this key. A manager that cannot be asked is no reason to doubt it.
    pub async fn is_known(&self, identity: &Identity) -> Result<bool, Failure> {
        let asked = self.client(identity)?.elastic_balance().await;
        Ok(!asked.is_err_and(|error| matches!(error.status(), Some(401 | 403))))
    }
}

#[async_trait]
impl Keys for Place {
    async fn enrol(&self, token: &str, public_key: String) -> Result<String, Failure> {
        let client = Client::trusting(&self.url, Credentials::None, &self.trust)?;
        let enrol = Enrol { token: token.to_owned(), public_key, name: self.name.clone() };
        Ok(client.enrol_elastic(&enrol).await?.key)
    }

    async fn add(&self, present: &Identity, public_key: String) -> Result<String, Failure> {
        Ok(self.client(present)?.add_elastic_key(&NewKey { public_key }).await?.key)
    }

    async fn revoke(&self, present: &Identity, key: &str) -> Result<(), Failure> {
        match self.client(present)?.revoke_elastic_key(key).await {
            // Forgotten already, long after it was revoked; the manager says the one or the other.
            Err(error) if matches!(error.status(), Some(403 | 404)) => Ok(()),
            revoked => Ok(revoked?),
        }
    }
}

/// How long giving the lease back may take.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// A resource manager at work.
pub struct Running {
    stop: CancellationToken,
    work: JoinHandle<Result<(), Failure>>,
    pub nodes: Arc<Nodes>,
}

impl Running {
    pub fn start(settings: &Settings, place: Place, identity: Identity) -> Result<Self, Failure> {
        let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
        let nodes = Arc::new(Nodes::of(settings, &place, clock.clone())?);
        let manager = Arc::new(HttpManager::new(place.client(&identity)?, clock.clone()));
        let parts = Parts {
            manager: manager.clone(),
            provider: nodes.provider(),
            clock: clock.clone(),
            dice,
            terms: mutirao_elastic::Terms::default(),
            lease: mutirao_shards::Terms::default(),
            host: place.name.clone(),
            dir: place.dir.clone(),
        };
        let stop = CancellationToken::new();
        let work = tokio::spawn({
            let (stop, age) = (stop.clone(), settings.elastic_key_age.0);
            async move {
                tokio::select! {
                    ended = mutirao_resource::run(parts, stop) => ended.map_err(|error| Failure::failed(error.to_string())),
                    () = keep_key_young(place, identity, manager, age, &*clock) => Ok(()),
                }
            }
        });
        Ok(Self { stop, work, nodes })
    }

    /// Ends when it cannot go on. Cancel-safe.
    pub async fn ended(&mut self) -> Result<(), Failure> {
        match (&mut self.work).await {
            Ok(ended) => ended,
            Err(error) => Err(Failure::failed(format!("the resource manager broke: {error}"))),
        }
    }

    /// Lets go of the lease. The nodes stay. A manager that does not take the lease back, as one that knows our key no more,
    /// keeps nobody from leaving: the lease runs out.
    pub async fn stop(mut self) -> Arc<Nodes> {
        self.stop.cancel();
        if !self.work.is_finished() && SystemClock.timeout(STOP_WAIT, &mut self.work).await.is_err() {
            tracing::warn!("the lease could not be given back in time; it runs out by itself");
            self.work.abort();
        }
        self.nodes
    }
}

/// Never ends. A key that cannot be changed now is changed later: it is good until it is revoked.
async fn keep_key_young(
    place: Place,
    mut identity: Identity,
    manager: Arc<HttpManager>,
    age_max: Duration,
    clock: &dyn Clock,
) {
    loop {
        let old = clock.now().since(identity.made_at) >= age_max;
        if old || !identity.is_settled() {
            let changed = change_key(&place, &mut identity, &manager, clock.now()).await;
            if let Err(failure) = changed {
                tracing::warn!(?failure, "the key could not be changed; trying again later");
            }
        }
        let pause = if identity.is_settled() { KEY_LOOK_EVERY } else { KEY_AGAIN };
        clock.sleep(pause.min(age_max)).await;
    }
}

/// Begins a change of keys, or goes on with one. What was done stays done when this fails.
async fn change_key(
    place: &Place,
    identity: &mut Identity,
    manager: &HttpManager,
    now: Timestamp,
) -> Result<(), Failure> {
    if identity.is_settled() {
        *identity = identity::begin(&place.dir, identity.clone(), now)?;
    }
    let before = identity.id.clone();
    *identity = identity::switch(place, &place.dir, identity.clone()).await?;
    if identity.id != before {
        manager.speak_as(place.client(identity)?);
        tracing::info!("the resource manager has a new key");
    }
    *identity = identity::drop_former(place, &place.dir, identity.clone()).await?;
    Ok(())
}
