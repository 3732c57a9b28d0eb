//! A node that runs actions: built-in ones, and programs of a folder. The work itself is the crate `actions`'.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mutirao_actions::agent::spool::Spool;
use mutirao_actions::agent::{Agent, Me};
use mutirao_actions::builtin::Means;
use mutirao_actions::exec::Surroundings;
use mutirao_actions::folder::{Folder, Read};
use mutirao_actions::{Table, table};
use mutirao_client::{Client, Credentials};
use mutirao_core::{Clock, Dice, SessionId, SystemClock};
use mutirao_nodes::NodeId;
use mutirao_store::{FolderLock, StoreError};
use mutirao_worker::{Confinement, Keeper};

use super::{NodeArgs, Transport, key, line, slim};
use crate::cli::{Globals, documents};
use crate::config::Settings;
use crate::failure::Failure;
use crate::signals::Asked;
use crate::{checks, logs, machine, tls};

const DIR: &str = "./mutirao-node";
/// More is not a definition of an action.
const DEFINITION_BYTES_MAX: usize = 4 << 20;

pub async fn run(globals: &Globals, args: NodeArgs, transport: Transport) -> Result<(), Failure> {
    let settings = globals.config(vec![])?.settings;
    logs::start(&settings);
    let mut asked = Asked::listen()?;
    let dir = std::path::absolute(args.dir.clone().unwrap_or_else(|| DIR.into()))?;
    let _lock = take_folder(&dir)?;
    let mut me = me(&settings, &args)?;
    let (clock, dice): (Arc<dyn Clock>, _) = (SystemClock::shared(), Arc::new(Dice::from_os()));
    let login = match line::login(&args)? {
        Some(login) => Some(login),
        // By AMQP an address has whom it connects as.
        None if transport == Transport::Amqp && args.server.is_some() => None,
        // Nothing was typed: it may have a key.
        None => {
            let (node, server) = (&me.node, args.server.as_deref());
            let parts = (&settings, &dir, &clock, &dice);
            let key = key::Parts::new(parts, node, transport, server);
            tokio::select! {
                login = key.login() => login?,
                _ = asked.next() => return Ok(()),
            }
        }
    };
    let opened = line::open(&settings, &args, transport, login, &me, &clock, &dice).await?;
    me.endpoint = opened.endpoint;

    let table = Arc::new(Table::new(clock.clone()));
    let means = Means {
        probes: Some(checks::calls(&settings, &clock)?),
        client: client(&settings, &clock, &dice)?,
        publish: opened.publish,
    };
    means.put_into(&table, &me.namespace).map_err(full)?;
    let programs = match &args.actions {
        Some(folder) => Some(programs(folder, &me, &table, &clock, &dice)?),
        None => None,
    };
    let path = dir.join("spool");
    let spool = Spool::open(&path).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let agent = Agent::new(me.clone(), table.clone(), opened.line, spool, clock, dice);
    tracing::info!(node = %me.node, layer = ?me.layer, actions = table.offers().len(), "runs actions");
    let stop = async { asked.next().await };
    let watching = async {
        match programs {
            Some((watching, _keeper)) => watching.watch().await,
            None => std::future::pending().await,
        }
    };
    let beside = async { tokio::join!(slim::once_started(&SystemClock), watching) };
    tokio::select! {
        () = agent.run(opened.heard, stop) => {}
        _ = beside => {}
    }
    Ok(())
}

fn take_folder(dir: &Path) -> Result<FolderLock, Failure> {
    FolderLock::take(dir).map_err(|error| match error {
        StoreError::InUse { path, pid } => {
            Failure::failed(format!("the node's folder {path} is in use by process {pid}; use another --dir"))
        }
        error => Failure::failed(error.to_string()),
    })
}

fn me(settings: &Settings, args: &NodeArgs) -> Result<Me, Failure> {
    let node: NodeId = match &args.id {
        Some(id) => id.clone(),
        // Dots would lead a message elsewhere.
        None => machine::host_name()
            .replace('.', "-")
            .parse()
            .map_err(|error| Failure::usage(format!("{error}; give --id")))?,
    };
    Ok(Me {
        node,
        layer: args.layer.0,
        namespace: args.namespace.clone().unwrap_or_else(|| settings.nodes_namespace.clone()),
        endpoint: String::new(),
        labels: args.labels.iter().flat_map(|labels| labels.0.clone()).collect(),
        slots: args.slots as usize,
    })
}

/// Where MUTIRAO_URL and MUTIRAO_TOKEN say where the API is and who we are, there is kv too.
fn client(settings: &Settings, clock: &Arc<dyn Clock>, dice: &Arc<Dice>) -> Result<Option<Client>, Failure> {
    let token = std::env::var("MUTIRAO_TOKEN").ok().filter(|token| !token.is_empty());
    let (Some(url), Some(token)) = (settings.url.set(), token) else { return Ok(None) };
    let trust = tls::trust(settings, &url.0, None)?;
    let client = Client::with_clock(&url.0, Credentials::Token(token), &trust, clock.clone(), dice.clone())?;
    Ok(Some(client))
}

/// The folder, read once so that what is wrong in it is told at the start; and who ends the programs should we be killed.
fn programs(
    folder: &Path,
    me: &Me,
    table: &Arc<Table>,
    clock: &Arc<dyn Clock>,
    dice: &Arc<Dice>,
) -> Result<(Folder, Keeper), Failure> {
    let folder: PathBuf = std::path::absolute(folder)?;
    if !folder.is_dir() {
        return Err(Failure::usage(format!("--actions: there is no folder {}", folder.display())));
    }
    let session = SessionId::random();
    let exe = std::env::current_exe()?;
    let keeper = Keeper::start(&exe, &["role", "keeper"], &session)
        .map_err(|error| Failure::failed(format!("the keeper cannot be started: {error}")))?;
    let environment = mutirao_worker::surroundings(&session);
    let confinement = Confinement::prepare(&session).unwrap_or_else(|why| {
        tracing::warn!("cpus of actions are not limited, and memory only of each process: {why}");
        Confinement::without_limits(&session)
    });
    let confinement = Arc::new(confinement);
    let around = Surroundings { dir: folder, environment, confinement, clock: clock.clone(), dice: dice.clone() };
    let read: Read = Arc::new(|path: &Path| match documents::read(path, DEFINITION_BYTES_MAX) {
        Ok(documents) => Ok(documents.into_iter().map(|document| document.value).collect()),
        Err(what) => Err(format!("{}: {what}", path.display())),
    });
    let mut folder = Folder::new(around, me.namespace.clone(), read, table.clone());
    folder.look().iter().for_each(|notice| tracing::warn!("{notice}"));
    Ok((folder, keeper))
}

fn full(full: table::Full) -> Failure {
    Failure::failed(full.to_string())
}
