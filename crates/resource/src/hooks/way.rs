//! How the agent on a machine is reached: over ssh, with everything that is done for hosts of a pool, or by its socket where its
//! folder is on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, QueueName, WorkerId};
use mutirao_elastic::packing::{Layer, NodeName};

use super::books::Heard;
use super::spec::{self, KindSpec};
use super::words::Place;
use crate::local::wire::{self, Answer, Haste, Order, Question, Request};
use crate::provider::ProviderError;
use crate::ssh::host::Host;
use crate::ssh::means::Means;
use crate::ssh::spec::HostSpec;

/// How long an agent of this machine may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(3);
const KNOWN_HOSTS: &str = "known_hosts";

pub enum Way {
    Host(Arc<Host>),
    Folder { folder: PathBuf, clock: Arc<dyn Clock> },
}

/// What an agent said.
pub struct Seen {
    pub heard: Heard,
    pub workers: BTreeMap<WorkerId, QueueName>,
    pub ended: BTreeSet<WorkerId>,
}

impl Seen {
    pub fn only(heard: Heard) -> Self {
        Self { heard, workers: BTreeMap::new(), ended: BTreeSet::new() }
    }
}

impl Way {
    pub fn to(
        node: &NodeName,
        place: &Place,
        kind: Option<&KindSpec>,
        own_key: Option<&Path>,
        means: &Arc<Means>,
    ) -> Result<Self, String> {
        let (address, port, user, host_key) = match place {
            Place::Folder(folder) => return Ok(Self::Folder { folder: folder.clone(), clock: means.clock.clone() }),
            Place::Address { address, port, user, host_key } => (address, port, user, host_key),
        };
        let known_hosts = match host_key {
            Some(key) => Some(known(&means.dir.join(&node.0), address, *port, key).map_err(|error| error.to_string())?),
            None => None,
        };
        let spec = HostSpec {
            name: node.0.clone(),
            address: address.clone(),
            port: *port,
            user: user.clone().or_else(|| kind?.user.clone()),
            key: kind.and_then(|kind| kind.key.clone()).or_else(|| own_key.map(Path::to_owned)),
            known_hosts,
            unknown_key: kind.map(|kind| kind.unknown_key).unwrap_or_default(),
            // Of a kind that is not known any more nothing is asked but that it goes.
            cpus: kind.map(|kind| kind.cpus),
            memory: kind.map(|kind| kind.memory),
            labels: kind.map(|kind| kind.labels.clone()).unwrap_or_default(),
            layer: kind.map_or(Layer::Cloud, |kind| kind.layer),
            price: kind.map_or(0.0, |kind| kind.price),
            kind: kind.map(|kind| kind.terms).unwrap_or_default(),
            dir: kind.map_or_else(spec::folder, |kind| kind.dir.clone()),
        };
        Ok(Self::Host(Host::insisted(spec, means.clone())))
    }

    pub async fn see(&self, generation: u64) -> Seen {
        match self {
            Self::Host(host) => {
                let seen = host.see(generation).await;
                let heard = match (seen.node.answers, host.refused(), seen.node.note) {
                    (true, ..) => Heard::Answers { workers: seen.workers.len() },
                    (false, Some(why), _) => Heard::Refused(why),
                    (false, None, Some(_)) => Heard::Silent(host.trouble().unwrap_or_else(|| "not reached yet".into())),
                    // It answers, and obeys another.
                    (false, None, None) => Heard::Another,
                };
                Seen { heard, workers: seen.workers, ended: seen.ended }
            }
            Self::Folder { .. } => match self.ask(Request::List, Some(generation)).await {
                Ok(Answer::Have { workers, ended, .. }) => {
                    Seen { heard: Heard::Answers { workers: workers.len() }, workers, ended }
                }
                Ok(Answer::Done | Answer::Failed { .. }) => Seen::only(Heard::Another),
                Err(why) => Seen::only(Heard::Silent(why)),
            },
        }
    }

    async fn ask(&self, request: Request, generation: Option<u64>) -> Result<Answer, String> {
        match self {
            Self::Host(host) => host.ask(request, generation).await,
            Self::Folder { folder, clock } => {
                let question = Question { request, generation };
                match clock.timeout(ANSWER_MAX, wire::ask(folder, &question)).await {
                    Ok(Ok(answer)) => Ok(answer),
                    Ok(Err(error)) => Err(format!("{}: {error}", folder.display())),
                    Err(_) => Err(format!("no answer within {} s", ANSWER_MAX.as_secs())),
                }
            }
        }
    }

    /// Where workers there find the manager, if that is another way than from here.
    pub fn direct(&self, order: &mut Order) -> Result<(), String> {
        if let Self::Host(host) = self {
            let there = host.for_workers().ok_or("it is not in use")?;
            (order.url, order.pin, order.ca) = (there.url, there.pin, there.ca);
        }
        Ok(())
    }

    pub async fn tell(&self, node: &NodeName, request: Request, generation: u64) -> Result<(), ProviderError> {
        match self.ask(request, Some(generation)).await {
            Ok(Answer::Failed { why }) => Err(ProviderError::Refused(format!("{node}: {why}"))),
            Ok(_) => Ok(()),
            Err(why) => Err(ProviderError::Silent { node: node.clone(), why }),
        }
    }

    /// Has its agent go once its workers have. What it says meanwhile.
    pub async fn send_home(&self, haste: Haste) -> Seen {
        if let Self::Host(host) = self {
            host.leave().await;
        }
        match self.ask(Request::Leave { haste }, None).await {
            Ok(_) => match self.ask(Request::List, None).await {
                Ok(Answer::Have { workers, ended, .. }) => {
                    Seen { heard: Heard::Answers { workers: workers.len() }, workers, ended }
                }
                Ok(_) => Seen::only(Heard::Another),
                Err(why) => Seen::only(Heard::Silent(why)),
            },
            Err(why) => Seen::only(Heard::Silent(why)),
        }
    }

    /// Nobody is there any more.
    pub async fn close(&self) {
        if let Self::Host(host) = self {
            host.close().await;
        }
    }
}

/// A file with the one key that a machine may show.
fn known(dir: &Path, address: &str, port: Option<u16>, key: &str) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(dir)?;
    let name = match port {
        None | Some(22) => address.to_owned(),
        Some(port) => format!("[{address}]:{port}"),
    };
    let path = dir.join(KNOWN_HOSTS);
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    writeln!(file, "{name} {key}")?;
    Ok(path)
}
