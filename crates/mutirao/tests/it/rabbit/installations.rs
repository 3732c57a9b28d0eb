//! One installation, one vhost: who is refused, and who must come in.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use mutirao_core::shard::MemberId;
use mutirao_core::{Clock, SystemClock};
use mutirao_store::Postgres;
use mutirao_store::installation::FORGET;
use mutirao_store::postgres::Ask;
use mutirao_testkit::installation::Setup;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, wait};

use super::Vhost;
use crate::said::{SOON, Said, mutirao, refused, run};

const ANOTHERS: &str = "belongs to another installation";
const ELSEWHERE: &str = "another RabbitMQ or vhost than this one";

impl Vhost {
    fn setup(&self) -> Setup {
        Installation::setup().env("MUTIRAO_BROKER", &self.broker).env("MUTIRAO_BROKER_MANAGEMENT", &self.management)
    }

    fn manager_on(&self, database: &Service) -> Setup {
        self.setup().manager_alone().env("MUTIRAO_DATABASE", database.url())
    }

    /// A command with these settings.
    fn command(&self, args: &[&str], data: &Path, database: Option<&Service>) -> Command {
        let mut command = mutirao(&[args, &["--data", data.to_str().unwrap()]].concat());
        command.env("MUTIRAO_BROKER", &self.broker).env("MUTIRAO_BROKER_MANAGEMENT", &self.management);
        command.envs(database.map(|server| ("MUTIRAO_DATABASE", server.url())));
        command
    }

    /// What a manager that is to be refused says.
    fn manager(&self, data: &Path, database: Option<&Service>) -> Said {
        run(self.command(&["role", "manager", "--listen", "127.0.0.1:0"], data, database))
    }

    /// What `doctor` says of whose the vhost is, and how it ends.
    fn doctor(&self, data: &Path, database: Option<&Service>) -> (Option<i32>, String) {
        let said = run(self.command(&["doctor"], data, database));
        let line = said.out.lines().find(|line| line.contains("installation  "));
        (said.code, line.unwrap_or_else(|| panic!("{said:?}")).to_owned())
    }

    /// What the mark says, if there is one. By the definitions, since the exchanges themselves are shown with figures only.
    fn marked_as(&self) -> Option<String> {
        let definitions = self.ask(&format!("GET /api/definitions/{}", self.name), "").text();
        let definitions: serde_json::Value = serde_json::from_str(&definitions).unwrap_or_default();
        let exchanges = definitions["exchanges"].as_array()?;
        let mark = exchanges.iter().find(|exchange| exchange["name"] == "mutirao.installation")?;
        mark["arguments"]["alternate-exchange"].as_str().map(str::to_owned)
    }

    fn is_marked(&self) -> bool {
        self.marked_as().is_some()
    }

    /// As docs/operations.md says.
    fn delete_mark(&self) {
        let mark = format!("DELETE /api/exchanges/{}/mutirao.installation", self.name);
        assert_eq!(self.ask(&mark, "").status, 204);
    }

    /// Empty, as after a new set-up of the server.
    fn remake(&self) {
        self.ask(&format!("DELETE /api/vhosts/{}", self.name), "");
        self.put(&format!("/api/vhosts/{}", self.name), "{}");
        self.permit("guest", ".*");
    }
}

fn works(up: &Installation) {
    assert_eq!(up.ok(&["submit", "--wait", "--", "echo", "on"]), "on\n");
}

fn backup(up: &Installation, archive: &Path, database: Option<&Service>) {
    let mut command = up.command(&["backup", "create", archive.to_str().unwrap()]);
    command.envs(database.map(|server| ("MUTIRAO_DATABASE", server.url())));
    assert!(command.output().unwrap().status.success());
}

#[test]
fn another_installation_is_refused_in_the_same_vhost_and_so_is_a_restored_one_until_the_mark_is_deleted() {
    let Some(vhost) = Vhost::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (archive, fresh, restored) = (dir.path().join("b"), dir.path().join("fresh"), dir.path().join("restored"));
    let mut up = vhost.setup().workers(1).start();
    let refusal = [ANOTHERS, &vhost.name, "a vhost of its own", "delete the exchange mutirao.installation"];
    refused(&vhost.manager(&fresh, None), 1, &refusal);
    refused(&vhost.manager(&fresh, None), 1, &refusal);
    let (code, line) = vhost.doctor(&fresh, None);
    assert!(code == Some(1) && line.starts_with("fail") && line.contains(ANOTHERS), "{line}");
    let (_, line) = vhost.doctor(up.data(), None);
    assert!(line.starts_with("ok") && line.contains("is this installation's"), "{line}");

    backup(&up, &archive, None);
    let restore = ["backup", "restore", archive.to_str().unwrap()];
    let said = run(vhost.command(&restore, &restored, None));
    assert!(said.code == Some(0) && said.err.contains("mutirao.installation"), "{said:?}");
    refused(&vhost.manager(&restored, None), 1, &refusal);
    let again = ["backup", "restore", archive.to_str().unwrap(), "--replace", "--take-over"];
    refused(&run(vhost.command(&again, &restored, None)), 1, &["is at work", "stop all its managers"]);
    works(&up);
    up.kill9_everything();
    refused(&vhost.manager(&restored, None), 1, &refusal);
    up.restart();
    works(&up);

    up.kill9_everything();
    let said = run(vhost.command(&again, &restored, None));
    assert!(said.code == Some(0) && !said.err.contains("mutirao.installation"), "{said:?}");
    let restored = vhost.setup().workers(1).data(&restored).start();
    works(&restored);
    refused(&vhost.manager(up.data(), None), 1, &refusal);
}

#[test]
fn a_manager_with_another_vhost_than_the_others_is_refused_and_so_is_a_rehearsal_of_a_restore() {
    let (Some(vhost), Some(elsewhere)) = (Vhost::new(), Vhost::new()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let (servers, others, dir) = (crate::database::folder(), crate::database::folder(), tempfile::tempdir().unwrap());
    let [archive, data, beside] = ["b", "data", "beside"].map(|name| dir.path().join(name));
    let server = Service::postgres(servers.path()).unwrap();
    let mut up = vhost.manager_on(&server).start();
    refused(&elsewhere.manager(&data, Some(&server)), 1, &[ELSEWHERE, &up.url(), "--broker"]);
    assert!(!elsewhere.is_marked(), "who is refused marks nothing");
    let (code, line) = elsewhere.doctor(&data, Some(&server));
    assert!(code == Some(1) && line.starts_with("fail") && line.contains(ELSEWHERE), "{line}");
    let (_, line) = vhost.doctor(&data, Some(&server));
    assert!(line.starts_with("ok"), "{line}");
    drop(vhost.manager_on(&server).start());

    backup(&up, &archive, Some(&server));
    let rehearsal = Service::postgres(others.path()).unwrap();
    let restore = ["backup", "restore", archive.to_str().unwrap()];
    assert_eq!(run(vhost.command(&restore, &beside, Some(&rehearsal))).code, Some(0));
    refused(&vhost.manager(&beside, Some(&rehearsal)), 1, &[ANOTHERS]);
    drop(elsewhere.manager_on(&rehearsal).data(&beside).start());

    // Once nobody is at work, the installation may move.
    up.kill9();
    let moved = Vhost::new().unwrap();
    let _moved = moved.manager_on(&server).start();
    assert!(moved.is_marked());
}

/// Starts both at once; those that did not get ready leave what they said.
fn at_once(setups: [Setup; 2]) -> Vec<Result<Installation, String>> {
    let started = setups.map(|setup| thread::spawn(move || setup.start()));
    let said = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<String>().unwrap_or_default();
    started.map(|thread| thread.join().map_err(said)).into()
}

#[test]
fn managers_that_start_at_once_all_come_in_also_after_rabbitmq_was_set_up_anew() {
    let Some(vhost) = Vhost::new() else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = crate::database::folder();
    let server = Service::postgres(servers.path()).unwrap();
    let manager = || vhost.manager_on(&server);
    let fresh = at_once([manager(), manager()]);
    assert!(fresh.iter().all(Result::is_ok), "{fresh:?}");
    let mark = vhost.marked_as();
    assert!(mark.as_ref().is_some_and(|mark| mark.starts_with("mutirao.installation.")), "{mark:?}");
    drop(fresh);
    vhost.remake();
    assert!(!vhost.is_marked());
    let again = at_once([manager(), manager()]);
    assert!(again.iter().all(Result::is_ok), "{again:?}");
    assert_eq!(vhost.marked_as(), mark, "the same installation as before");
    drop(again);

    // As an upgrade of one manager at a time finds it: another is at work, and nothing was ever marked.
    vhost.delete_mark();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = runtime.block_on(async {
        let database = Postgres::apart(server.url(), 1).await.unwrap();
        database.connection().await.unwrap().run(FORGET, &[]).await.unwrap();
        database
    });
    runtime.spawn(gives_signs_of_life(database));
    let upgraded = at_once([manager(), manager()]);
    assert!(upgraded.iter().all(Result::is_ok), "{upgraded:?}");
    assert_ne!(vhost.marked_as(), mark);
}

/// A manager of the version before, as far as others see it.
async fn gives_signs_of_life(database: Postgres) {
    let leases = mutirao_shards::store::open(&database.into(), None).await.unwrap();
    loop {
        leases.beat("jobs", &MemberId("guest@old-0123456789abcdef".into()), "http://old:7070").await.unwrap();
        SystemClock.sleep(Duration::from_secs(1)).await;
    }
}

#[test]
fn of_managers_that_start_at_once_in_different_vhosts_one_comes_in() {
    let (Some(one), Some(two)) = (Vhost::new(), Vhost::new()) else { return };
    if shared(POSTGRES_VARIABLE).is_none() {
        return;
    }
    let servers = crate::database::folder();
    let server = Service::postgres(servers.path()).unwrap();
    let mut started = at_once([one.manager_on(&server), two.manager_on(&server)]);
    started.sort_by_key(Result::is_ok);
    let [Err(refused), Ok(up)] = &started[..] else { panic!("{started:?}") };
    assert!(refused.contains(ELSEWHERE) && refused.contains(&up.url()), "{refused}");
    assert_ne!(one.is_marked(), two.is_marked());
}

#[test]
fn a_rabbitmq_that_was_set_up_anew_is_marked_again_by_a_manager_that_runs_and_by_one_that_starts() {
    let Some(vhost) = Vhost::new() else { return };
    let fresh = tempfile::tempdir().unwrap();
    let mut up = vhost.setup().workers(1).set("worker.way", "link").start();
    works(&up);
    vhost.remake();
    wait::until("the mark to be back", SOON, || vhost.is_marked());
    works(&up);
    refused(&vhost.manager(fresh.path(), None), 1, &[ANOTHERS]);
    up.terminate();
    vhost.remake();
    assert!(!vhost.is_marked());
    up.restart();
    assert!(vhost.is_marked());
    works(&up);
}
