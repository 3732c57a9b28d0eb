//! The network between any two goes silent in the middle of a large job, for longer than a lease, and comes back. Each
//! process lives in a network namespace, so that nobody is told: no connection breaks, nothing is refused.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::network::{Between, Network};
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, installation::Setup, wait};

use super::{Effects, LEAVE, TASKS, ends_counted, ends_ok, still_works};
use crate::said::SOON;

const LEASE: &str = "3s";
/// More than twice the lease: whoever is cut off is given up, and comes back to find out.
const SILENCE: Duration = Duration::from_secs(8);

/// Two workers in their own namespace. They end with the test.
struct Away(Vec<Child>, #[expect(dead_code, reason = "their folders")] tempfile::TempDir);

impl Away {
    fn start(network: &Network, up: &Installation) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = |n: u32| {
            let token = up.ok(&["worker", "invite"]);
            let dir = folder.path().join(n.to_string()).display().to_string();
            let mut command = up.command(&["role", "worker", "--url", &up.url(), "--dir", &dir]);
            command.env("MUTIRAO_ENROL_TOKEN", token.trim());
            let mut command = network.among_workers(&command);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let away = Self((1..=2).map(start).collect(), folder);
        wait::until("the workers to show up", SOON, || up.workers().len() == 2);
        away
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

fn installation(network: &Network) -> Setup {
    Installation::setup().workers(0).listen(network.manager().into()).set("jobs.lease", LEASE)
}

/// Runs a large job with a silence in its middle.
fn survives(up: &Installation, network: &Network, between: Between) {
    let workers = Away::start(network, up);
    let effects = Effects::new();
    let job = effects.submit(up, TASKS, "500m", LEAVE);
    effects.wait_for(1_500);
    network.cut(between).unwrap();
    wait::holds_within(SILENCE, || false);
    assert!(effects.count() < TASKS as usize, "it was cut too late to prove anything");
    network.mend(between).unwrap();
    ends_ok(up, &job, TASKS);
    effects.check(TASKS).at_most_by(2, "two workers cut off at once");
    assert_eq!(ends_counted(up, "ok"), u64::from(TASKS), "outcomes count once");
    still_works(up);
    drop(workers);
}

#[test]
fn a_silence_between_manager_and_workers_loses_no_task_and_counts_none_twice() {
    let Some(network) = Network::lay(&Dice::from_os()) else { return };
    let up = installation(&network).start();
    survives(&up, &network, Between::ManagerAndWorkers);
}

#[test]
fn a_silence_between_manager_and_database_loses_no_task_and_counts_none_twice() {
    let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    // PostgreSQL runs as another user, who must be able to pass.
    let passable = std::fs::Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().permissions(passable).tempdir().unwrap();
    let server = Service::postgres(folder.path()).unwrap();
    let front = network.front(server.address()).unwrap();
    let url = server.url().replace(&server.address().to_string(), &front.for_manager.to_string());
    let up = installation(&network).env("MUTIRAO_DATABASE", &url).start();
    survives(&up, &network, Between::ManagerAnd(front.for_manager));
}
