//! `mutirao role node`: a machine, or a share of it. There are two kinds, told apart by `--transport`: without it, a node that
//! workers are put on, as the resource manager starts it ([`workers`]); with it, one that runs actions for flows and speaks what
//! devices speak ([`actions`]).

mod actions;
mod key;
mod line;
mod slim;
mod workers;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_nodes::{Namespace, NodeId};

use crate::cli::Globals;
use crate::config::{InLayer, Labels};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// What it speaks with its managers
    #[arg(long, value_enum)]
    transport: Option<Transport>,
    /// Its id, by which managers know it [default: the machine's name]
    #[arg(long, requires = "transport")]
    id: Option<NodeId>,
    /// Where its managers are: mqtt://HOST:1883, mqtts://…, amqp://USER:PASSWORD@HOST/VHOST, amqps://…, http://HOST:7070, https://…
    #[arg(long, value_name = "URL", env = "MUTIRAO_NODE_SERVER", hide_env_values = true)]
    server: Option<String>,
    /// With http: where it takes messages. Whoever reaches it may have it run its actions
    #[arg(long, requires = "transport", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// With http: where managers reach it [default: http:// and what it listens on]
    #[arg(long, requires = "transport", value_name = "URL")]
    endpoint: Option<String>,
    /// As whom it connects by MQTT or HTTP; the password is read from MUTIRAO_NODE_PASSWORD or --password-file. Without, by its own
    /// key, which it gives once with MUTIRAO_ENROL_TOKEN of `mutirao node invite`
    #[arg(long, requires = "transport", value_name = "NAME")]
    user: Option<String>,
    /// A file with the password, of which only its owner should be able to read
    #[arg(long, requires = "user", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// What names on the wire begin with [default: nodes.namespace of the settings, which is mutirao]
    #[arg(long, requires = "transport")]
    namespace: Option<Namespace>,
    /// A folder of definitions of actions (kind: Action), which is looked at again and again
    #[arg(long, requires = "transport", value_name = "DIR")]
    actions: Option<PathBuf>,
    /// Tasks that it runs at once
    #[arg(long, requires = "transport", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: u32,
    /// A folder of its own [default: ./mutirao-node]
    #[arg(long, required_unless_present = "transport")]
    dir: Option<PathBuf>,
    /// What the resource manager calls it [default: the machine's name]
    #[arg(long, hide = true, conflicts_with = "transport")]
    name: Option<String>,
    /// The cpus it gives to workers [default: all]
    #[arg(long, hide = true, conflicts_with = "transport")]
    cpus: Option<Cpus>,
    /// The memory it gives to workers [default: all]
    #[arg(long, hide = true, conflicts_with = "transport")]
    memory: Option<Bytes>,
    /// A label, as key=value; may be given again
    #[arg(long = "label", alias = "labels", value_name = "KEY=VALUE")]
    labels: Vec<Labels>,
    /// edge, fog or cloud
    #[arg(long, default_value = "cloud")]
    layer: InLayer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    Mqtt,
    Amqp,
    Http,
}

impl NodeArgs {
    /// Whether it has to do with little memory.
    pub fn is_small(&self) -> bool {
        self.transport.is_some()
    }
}

pub async fn run(globals: &Globals, args: NodeArgs) -> Result<(), Failure> {
    match (args.transport, args.dir.clone()) {
        (Some(transport), _) => actions::run(globals, args, transport).await,
        (None, Some(dir)) => workers::run(globals, args, &dir).await,
        (None, None) => {
            Err(Failure::usage("--dir is missing; for a node that runs actions give --transport mqtt, amqp or http"))
        }
    }
}
