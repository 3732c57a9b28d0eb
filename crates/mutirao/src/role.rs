//! `mutirao role …`: one part of an installation as a process of its own.

mod checker;
pub mod elastic;
mod host;
pub mod identity;
pub mod launched;
mod node;
mod reach;
mod scheduler;
pub mod worker;

use clap::{Args, Subcommand};
use mutirao_core::SessionId;

use crate::cli::Globals;
use crate::failure::Failure;
use crate::managers::pool::Launched;
use crate::up::{self, ManagerArgs};

#[derive(Debug, Args)]
pub struct RoleArgs {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The API and the manager, without workers
    Manager(Box<ManagerRoleArgs>),
    /// A worker: takes tasks of one queue and runs them
    Worker(worker::WorkerArgs),
    /// A checker: makes the checks of monitors
    Checker(checker::CheckerArgs),
    /// A scheduler: owns monitors and fires them, beside the managers
    Scheduler(scheduler::SchedulerArgs),
    /// The resource manager: has workers of elastic queues come and go
    Elastic(elastic::ElasticArgs),
    /// A host: runs parts of streams
    Host(host::HostArgs),
    /// A node: runs actions for flows, over MQTT, AMQP or HTTP
    Node(Box<node::NodeArgs>),
    /// Ends the tasks of a worker that was killed; workers start it themselves
    #[command(hide = true)]
    Keeper { session: String },
}

#[derive(Debug, Args)]
struct ManagerRoleArgs {
    #[command(flatten)]
    manager: ManagerArgs,
    #[command(flatten)]
    launched: Launched,
}

impl RoleArgs {
    /// Whether it is for machines that have little: one thread, few buffers.
    pub fn is_small(&self) -> bool {
        matches!(&self.role, Role::Node(args) if args.is_small())
    }
}

pub async fn run(globals: &Globals, args: RoleArgs) -> Result<(), Failure> {
    match args.role {
        Role::Manager(args) => up::run_alone(globals, args.manager, args.launched).await,
        Role::Worker(args) => worker::run(globals, args).await,
        Role::Checker(args) => checker::run(globals, args).await,
        Role::Scheduler(args) => scheduler::run(globals, args).await,
        Role::Elastic(args) => elastic::run(globals, args).await,
        Role::Host(args) => host::run(globals, args).await,
        Role::Node(args) => node::run(globals, *args).await,
        Role::Keeper { session } => {
            let session = SessionId(session);
            let kept = tokio::task::spawn_blocking(move || mutirao_worker::keeper::main(&session));
            kept.await.map_err(|error| Failure::failed(error.to_string()))
        }
    }
}
