//! The command line: `mutirao <noun> <verb>`. One file per noun reads its arguments, asks the client and shows the
//! answer; nothing here knows how the work is done.

mod action;
pub mod apply;
mod backup;
mod completions;
mod config;
mod device;
mod elastic;
mod flags;
mod flow;
mod held_up;
mod job;
mod kv;
mod logs;
mod merged;
mod misuse;
mod monitor;
mod node;
mod out;
mod pipes;
mod progress;
mod queue;
mod reach;
mod shard;
mod show;
mod stream;
mod submit;
mod task;
mod text;
mod token;
mod verdict;
mod wait;
mod watch;
mod worker;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{Config, ConfigError, FromFlags, Given};
use crate::failure::{EXIT_CODES, Failure};
use crate::{doctor, role, up};

pub use apply::documents;
pub use flags::named as in_flags;
pub use misuse::misuse;
pub use out::{Out, Paint, Shape};
pub use reach::{ADDRESS_FILE, Found, TOKEN_FILE, find, local_address};
pub use show::{quoted, size};

/// Runs work once, on one machine or many: jobs of tasks, handed to workers, each task ending exactly once.
#[derive(Debug, Parser)]
#[command(name = "mutirao", version = env!("MUTIRAO_BUILD"), after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub noun: Noun,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Globals {
    /// Answer in JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// The folder of the local installation [default: ./mutirao-data]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The API to speak to [default: the one of the local installation]
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// Read settings from this file [default: mutirao.toml in the data folder, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Give any setting; `mutirao config list` shows them
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Globals {
    pub fn shape(&self) -> Shape {
        if self.json { Shape::Json } else { Shape::People }
    }

    /// The settings, with those that a command's own flags stand for.
    pub fn config(&self, own: Vec<Given>) -> Result<Config, ConfigError> {
        let path = |flag, key, path: &PathBuf| Given::flag(flag, key, path.to_string_lossy());
        let mut given: Vec<Given> = self.set.iter().map(|pair| Given::pair(pair)).collect::<Result<_, _>>()?;
        given.extend(self.data.iter().map(|dir| path("--data", "data", dir)));
        given.extend(self.url.iter().map(|url| Given::flag("--url", "url", url)));
        given.extend(own);
        Config::load(&FromFlags { file: self.config.clone(), given }, variables()?)
    }
}

/// Our environment, as texts. One of our own variables that is no text is not passed over: a command would go on with
/// another value, or another token, than was meant.
fn variables() -> Result<Vec<(String, String)>, ConfigError> {
    let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    named
        .filter(|(name, _)| name.starts_with("MUTIRAO_"))
        .map(|(name, value)| match value.into_string() {
            Ok(value) => Ok((name, value)),
            Err(_) => Err(ConfigError::NotText { name }),
        })
        .collect()
}

#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Start an installation on this machine: API, manager and workers
    Up(up::UpArgs),
    /// Run one part of an installation as a process of its own
    Role(role::RoleArgs),
    /// Submit a job: `mutirao submit -- echo hello`
    Submit(Box<submit::SubmitArgs>),
    /// Jobs: tasks submitted together
    Job(job::JobArgs),
    /// Single tasks of a job
    Task(task::TaskArgs),
    /// Queues: where tasks wait, in which order they go, and what holds them back
    Queue(queue::QueueArgs),
    /// Monitors: services that are checked every interval
    Monitor(monitor::MonitorArgs),
    /// Flows: graphs of steps that nodes on edge, fog and cloud run
    Flow(flow::FlowArgs),
    /// Actions: what nodes can do, and which of them
    Action(action::ActionArgs),
    /// Streams: graphs of operators over events that never end
    Stream(stream::StreamArgs),
    /// Small shared state: values under keys
    Kv(kv::KvArgs),
    /// Make everything as files declare it
    Apply(apply::ApplyArgs),
    /// The workers that run tasks
    Worker(worker::WorkerArgs),
    /// Nodes: the machines that workers are put on, and the devices and servers that run actions
    Node(node::NodeArgs),
    /// Devices: user names and passwords for nodes that can show nothing better
    Device(device::DeviceArgs),
    /// How many workers queues get, and the resource managers that see to it
    Elastic(elastic::ElasticArgs),
    /// The shares of the queues, and the managers that own them
    Shard(shard::ShardArgs),
    /// Tokens that let people and programs in
    Token(token::TokenArgs),
    /// Settings: what can be set, and what is
    Config(config::ConfigArgs),
    /// The whole installation as one file, and back
    Backup(backup::BackupArgs),
    /// Look at the set-up and say how to mend what is wrong
    Doctor,
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Carries a command out. The exit code is zero, or a task's own.
pub async fn run(cli: Cli) -> Result<u8, Failure> {
    let Cli { globals, noun } = cli;
    match noun {
        Noun::Up(args) => up::run(&globals, args).await.map(|()| 0),
        Noun::Role(args) => role::run(&globals, args).await.map(|()| 0),
        Noun::Submit(args) => submit::run(&globals, *args).await,
        Noun::Job(args) => job::run(&globals, args).await,
        Noun::Task(args) => task::run(&globals, args).await.map(|()| 0),
        Noun::Queue(args) => queue::run(&globals, args).await.map(|()| 0),
        Noun::Monitor(args) => monitor::run(&globals, args).await,
        Noun::Flow(args) => flow::run(&globals, args).await,
        Noun::Action(args) => action::run(&globals, args).await.map(|()| 0),
        Noun::Stream(args) => stream::run(&globals, args).await,
        Noun::Kv(args) => kv::run(&globals, args).await.map(|()| 0),
        Noun::Apply(args) => apply::run(&globals, args).await.map(|()| 0),
        Noun::Worker(args) => worker::run(&globals, args).await.map(|()| 0),
        Noun::Node(args) => node::run(&globals, args).await.map(|()| 0),
        Noun::Device(args) => device::run(&globals, args).await.map(|()| 0),
        Noun::Elastic(args) => elastic::run(&globals, args).await.map(|()| 0),
        Noun::Shard(args) => shard::run(&globals, args).await.map(|()| 0),
        Noun::Token(args) => token::run(&globals, args).await.map(|()| 0),
        Noun::Config(args) => config::run(&globals, args).map(|()| 0),
        Noun::Backup(args) => backup::run(&globals, args).await.map(|()| 0),
        Noun::Doctor => doctor::run(&globals).await.map(|()| 0),
        Noun::Completions(args) => completions::run(args).map(|()| 0),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn settings_that_are_flags_arrive_as_settings() {
        let cli = Cli::try_parse_from(["mutirao", "config", "show", "--data", "/x", "--set", "drain=5s"]).unwrap();
        let config = cli.globals.config(vec![]).unwrap();
        assert_eq!(config.settings.data.0, PathBuf::from("/x"));
        assert_eq!(config.values.origin("data").to_string(), "--data");
        assert_eq!(config.settings.drain.to_string(), "5s");
    }
}
