//! Whoever has the machines, as the settings ask for them: nodes of this machine, hosts reached by ssh, and machines that commands
//! of the user's create.

mod hooked;

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::join_all;
pub use hooked::doctored;
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_core::{Clock, SessionId};
use mutirao_elastic::packing::{Amounts, NodeName};
use mutirao_resource::Hooks;
use mutirao_resource::local::{Haste, Local, LocalParts, NodeShape, Workers};
use mutirao_resource::provider::{self, Several};
use mutirao_resource::ssh::{HostSpec, Means, Reach, Ssh, provider as by_ssh, spec};

use super::Place;
use crate::cli::apply::documents;
use crate::config::{Auto, Settings};
use crate::failure::Failure;
use crate::{checks, machine};

/// A file of hosts is no longer than this.
const HOSTS_BYTES_MAX: usize = 4 << 20;
const OWNER_FILE: &str = "owner";

/// All nodes of one resource manager.
pub struct Nodes {
    local: Arc<Local>,
    ssh: Option<Arc<Ssh>>,
    hooks: Vec<Arc<Hooks>>,
}

impl Nodes {
    pub fn of(settings: &Settings, place: &Place, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let ca = settings.tls_ca.given().map(|file| std::path::absolute(&file.0)).transpose()?;
        let workers = Workers {
            url: place.url.clone(),
            pin: place.pin.clone(),
            way: settings.worker_way.as_str().into(),
            ca: ca.clone(),
            collector: settings.telemetry_otlp.given().map(|url| url.0.clone()),
            checkers: checks::launched_with(settings),
            schedulers: checks::schedulers_launched_with(settings),
            managers: place.managers.clone(),
        };
        let hosts = hosts(settings)?;
        let ssh = match hosts.is_empty() {
            true => None,
            false => {
                let (reach, way) = reach(settings, place, &workers.way)?;
                let dir = place.nodes.with_file_name("hosts");
                let owner = owner(&dir)?;
                let trust = (place.pin.clone(), ca);
                let program = std::env::current_exe()?;
                let means = Means::new(by_ssh::NAME, program, dir, owner, reach, trust, clock.clone());
                Some(Arc::new(Ssh::new(hosts, means, Workers { way, managers: None, ..workers.clone() })))
            }
        };
        let hooks = hooked::all(settings, place, &workers, &clock)?;
        let local = Local::new(LocalParts {
            program: std::env::current_exe()?,
            dir: place.nodes.clone(),
            nodes: shapes(settings, &place.name),
            workers,
            clock,
        });
        Ok(Self { local: Arc::new(local), ssh, hooks })
    }

    pub fn provider(&self) -> provider::Shared {
        let mut all: Vec<provider::Shared> = vec![self.local.clone()];
        all.extend(self.ssh.iter().map(|ssh| ssh.clone() as provider::Shared));
        all.extend(self.hooks.iter().map(|hooks| hooks.clone() as provider::Shared));
        if all.len() == 1 { self.local.clone() } else { Several::of(all) }
    }

    /// Sends every node home, and returns when they are gone. Cancel-safe.
    pub async fn leave(&self, haste: Haste) {
        let ssh = async {
            if let Some(ssh) = &self.ssh {
                ssh.leave(haste).await;
            }
        };
        let hooks = join_all(self.hooks.iter().map(|hooks| hooks.leave(haste)));
        tokio::join!(self.local.leave(haste), ssh, hooks);
    }

    /// Nodes that are there, or about to be.
    pub fn left(&self) -> usize {
        let hooks: usize = self.hooks.iter().map(|hooks| hooks.left()).sum();
        self.local.left() + self.ssh.as_ref().map_or(0, |ssh| ssh.left()) + hooks
    }
}

/// Whether a resource manager would have any machine at all.
pub fn any(settings: &Settings) -> bool {
    settings.elastic_nodes.0 > 0 || settings.elastic_hosts.given().is_some() || settings.elastic_hooks.given().is_some()
}

/// Whether the files that say which machines there are can be read: told before anything is started.
pub fn check(settings: &Settings) -> Result<(), Failure> {
    hosts(settings)?;
    hooked::hooks(settings).map(drop)
}

/// The hosts of the settings, read from their file.
pub fn hosts(settings: &Settings) -> Result<Vec<HostSpec>, Failure> {
    let Some(file) = settings.elastic_hosts.given() else { return Ok(Vec::new()) };
    let wrong = |why: String| Failure::usage(format!("elastic.hosts: {}: {why}", file.0.display()));
    let mut documents = documents::read(&file.0, HOSTS_BYTES_MAX).map_err(wrong)?;
    if documents.len() > 1 {
        return Err(wrong("it holds more than one document".into()));
    }
    let Some(document) = documents.pop() else { return Err(wrong("there is nothing in it".into())) };
    let mut hosts = spec::read(document.value).map_err(wrong)?;
    // Files beside it are named from where it is.
    let beside = file.0.parent().unwrap_or(Path::new("."));
    for host in &mut hosts {
        for path in [&mut host.key, &mut host.known_hosts].into_iter().flatten() {
            *path = self::beside(beside, path)?;
        }
    }
    Ok(hosts)
}

/// A file that is named in another.
fn beside(folder: &Path, path: &Path) -> Result<PathBuf, Failure> {
    Ok(match (path.strip_prefix("~"), std::env::home_dir()) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => std::path::absolute(folder.join(path))?,
    })
}

/// How workers on hosts reach the manager, and by which way its broker.
fn reach(settings: &Settings, place: &Place, way: &str) -> Result<(Reach, String), Failure> {
    if let Auto::Set(url) = &settings.elastic_hosts_url {
        return Ok((Reach::Url(url.0.clone()), way.into()));
    }
    let usable = place.url.split_once("://").filter(|(_, rest)| !rest.trim_end_matches('/').contains('/'));
    let Some((scheme, rest)) = usable else {
        return Err(Failure::usage(format!("{}: hosts cannot be given a way to it; set elastic.hosts_url", place.url)));
    };
    if scheme == "https" && !place.pin.exists() {
        // Workers there would see 127.0.0.1, which is in nobody's certificate.
        return Err(Failure::usage(format!(
            "workers on hosts cannot tell whether {} is who it says over a line; set elastic.hosts_url",
            place.url
        )));
    }
    let rest = rest.trim_end_matches('/');
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let address = if has_port { rest.to_owned() } else { format!("{rest}:{port}") };
    Ok((Reach::Line { address, scheme: scheme.into() }, "link".into()))
}

/// Who we are to hosts: made once, and kept beside what is kept of them.
fn owner(dir: &Path) -> Result<String, Failure> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let path = dir.join(OWNER_FILE);
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if plain(known.trim()) {
        return Ok(known.trim().into());
    }
    let new: String = SessionId::random().0.chars().filter(char::is_ascii_alphanumeric).collect();
    let beside = PathBuf::from(format!("{}.new", path.display()));
    let _ = std::fs::remove_file(&beside);
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(new.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, &path)?;
    Ok(new)
}

/// The nodes that the settings ask for, named after the machine.
fn shapes(settings: &Settings, host: &str) -> Vec<NodeShape> {
    let count = settings.elastic_nodes.0;
    let even = |whole: u64| whole / u64::from(count.max(1));
    let cpus = match settings.elastic_cpus {
        Auto::Set(cpus) => cpus,
        Auto::Auto => Cpus { milli: even(u64::from(machine::cpus()) * 1_000) as u32 },
    };
    let memory = match settings.elastic_memory {
        Auto::Set(memory) => memory,
        Auto::Auto => Bytes(even(machine::memory())),
    };
    let shape = |n| NodeShape {
        name: NodeName(format!("{host}-{n}")),
        capacity: Amounts::of(cpus, memory),
        labels: settings.elastic_labels.0.clone(),
        layer: settings.elastic_layer.0,
    };
    (1..=count).map(shape).collect()
}
