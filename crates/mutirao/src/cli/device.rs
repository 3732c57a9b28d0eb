//! `mutirao device …`

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use mutirao_client::PageArgs;
use mutirao_core::node::{Allowance, DeviceSpec, DeviceView};
use mutirao_core::{Clock, SystemClock, Timestamp};
use serde_json::json;

use super::out::{Out, Shape};
use super::show::{ago, or_dash, table};
use super::{Globals, reach};
use crate::config::Labels;
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct DeviceArgs {
    #[command(subcommand)]
    verb: Verb,
}

/// What a node may say of itself; what is not given is not bounded
#[derive(Debug, Args)]
pub struct MayArgs {
    /// An action that it may offer, and no others: blink, 'meter.*', sum@2; may be repeated. Without, it gets no tasks of actions that
    /// nodes with a key, or with this option, offer
    #[arg(long = "action", value_name = "PATTERN")]
    actions: Vec<String>,
    /// The layer that it has to be in: edge, fog or cloud
    #[arg(long)]
    layer: Option<String>,
    /// A label that it may have, and no others, as key=value; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Labels>,
    /// Tasks that it may have at once, whatever it says
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
}

impl From<MayArgs> for Allowance {
    fn from(args: MayArgs) -> Self {
        let MayArgs { actions, layer, labels, slots } = args;
        Self { actions, layer, labels: labels.into_iter().flat_map(|labels| labels.0).collect(), slots }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Let a device in by a user's name and a password, and print the password, once
    Add {
        /// The user's name that it will show
        name: String,
        /// The node that it speaks for [default: its own name]
        #[arg(long, value_name = "ID")]
        node: Option<String>,
        /// It may also ask for Tasks to be run, and hear what came of them
        #[arg(long)]
        requests: bool,
        /// Topics of its own that it may publish to, for streams and others to read; may be repeated: 'grid/meter-1/#'
        #[arg(long, value_name = "TOPIC")]
        publish: Vec<String>,
        /// Topics of its own that it may hear; may be repeated
        #[arg(long, value_name = "TOPIC")]
        subscribe: Vec<String>,
        #[command(flatten)]
        may: MayArgs,
        /// Where the password is written, readable by its owner only, instead of being printed; a file that is not there yet
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Show devices by name, without their passwords
    List {
        /// How many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Go on where a former page ended
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Keep a device out, at once
    Rm { name: String },
}

pub async fn run(globals: &Globals, args: DeviceArgs) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let client = reach::client(&globals.config(vec![])?)?;
    match args.verb {
        Verb::Add { name, node, requests, publish, subscribe, may, to } => {
            let spec = DeviceSpec { name, node, requests, publish, subscribe, may: may.into() };
            // Before anybody is let in whose password would then be nowhere.
            let kept = to.map(Kept::make).transpose()?;
            let created = match client.add_device(&spec).await {
                Ok(created) => created,
                Err(error) => {
                    kept.iter().for_each(Kept::undo);
                    return Err(error.into());
                }
            };
            let (name, node) = (&created.device.name, &created.device.node);
            if let Some(kept) = kept {
                kept.write(&created.password, name)?;
                if out.shape == Shape::Json {
                    return out.answer(&created.device, |_| String::new());
                }
                let path = kept.path.display();
                out.note(format!("the password is in {path}, and nowhere else; user {name} speaks for node {node}"));
                return Ok(());
            }
            out.answer(&created, |created| created.password.clone())?;
            out.note(format!("this is the only time the password is shown; user {name} speaks for node {node}"));
            Ok(())
        }
        Verb::List { limit, cursor } => {
            let now = SystemClock.now();
            let devices = client.devices(PageArgs { limit: Some(limit), cursor }).await?;
            out.answer(&devices, |devices| list(&devices.items, now))?;
            if let Some(cursor) = &devices.next {
                out.note(format!("there are more: add --cursor {cursor}"));
            }
            Ok(())
        }
        Verb::Rm { name } => {
            client.remove_device(&name).await?;
            out.answer(&json!({ "removed": name }), |_| format!("device {name} is not let in any more"))
        }
    }
}

/// A file with a password, which only its owner reads.
struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    fn make(path: PathBuf) -> Result<Self, Failure> {
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = made.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Failure::usage(format!(
                "--to {}: it is there already; give another, or remove it first",
                path.display()
            )),
            ErrorKind::NotFound => {
                Failure::usage(format!("--to {}: there is no such folder; make it first", path.display()))
            }
            _ => Failure::usage(format!("--to {}: {error}", path.display())),
        })?;
        Ok(Self { path, file })
    }

    fn undo(&self) {
        // Empty, it would only be in the way of the next try.
        let _ = std::fs::remove_file(&self.path);
    }

    fn write(&self, password: &str, device: &str) -> Result<(), Failure> {
        let written = writeln!(&self.file, "{password}").and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            let path = self.path.display();
            Failure::failed(format!("{path}: {error}; its password is lost: mutirao device rm {device}, and again"))
        })
    }
}

fn list(devices: &[DeviceView], now: Timestamp) -> String {
    if devices.is_empty() {
        return "no devices; `mutirao device add NAME` lets one in (docs/nodes.md)".into();
    }
    let row = |device: &DeviceView| {
        let requests = if device.requests { "yes" } else { "no" };
        let made = ago(device.created_at, now);
        let may = or_dash(Some(device.may.actions.join(", ")).filter(|actions| !actions.is_empty()));
        [device.name.clone(), device.node.clone(), may, requests.into(), made, device.created_by.clone()]
    };
    table(["DEVICE", "NODE", "MAY OFFER", "REQUESTS", "MADE", "BY"], devices.iter().map(row))
}
