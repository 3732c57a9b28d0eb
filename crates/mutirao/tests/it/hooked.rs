//! Machines that commands create, with the hooks of examples/hooks whose machines are processes: they come with work, one dies, one is
//! taken back, the resource manager is killed, and at the end none is left. Work is counted by the lines that it left in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use mutirao_testkit::{Installation, sweep, wait};

use crate::growing::{LEASE, ResourceManager, SETTLED_WITHIN, json, queue};
use crate::said::{SOON, Said};

/// The example, in a folder of its own.
struct Cloud {
    folder: tempfile::TempDir,
}

impl Cloud {
    fn open() -> Self {
        let folder = tempfile::Builder::new().prefix("mutirao-cloud.").tempdir().unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hooks");
        std::fs::copy(example.join("processes"), folder.path().join("processes")).unwrap();
        let set = std::fs::read_to_string(example.join("processes.yaml")).unwrap();
        std::fs::write(folder.path().join("hooks.yaml"), set.replace("list_every: 2s", "list_every: 1s")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn setting(&self) -> String {
        format!("elastic.hooks={}", self.path("hooks.yaml").display())
    }

    /// Machines whose agents are there, and these.
    fn machines(&self) -> BTreeMap<String, u32> {
        let all = std::fs::read_dir(self.path("machines")).into_iter().flatten().flatten();
        let alive = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let machine = |entry: std::fs::DirEntry| {
            let pid = std::fs::read_to_string(entry.path().join("pid")).ok()?.trim().parse().ok()?;
            alive(pid).then(|| (entry.file_name().to_string_lossy().into_owned(), pid))
        };
        all.filter_map(machine).collect()
    }

    fn effects(&self) -> BTreeMap<u32, u32> {
        let mut seen = BTreeMap::new();
        for line in std::fs::read_to_string(self.path("effects")).unwrap_or_default().lines() {
            *seen.entry(line.parse().unwrap_or_else(|_| panic!("a torn effect: {line:?}"))).or_default() += 1;
        }
        seen
    }

    fn submit(&self, up: &Installation, tasks: u32) -> String {
        let work = format!("sleep 1; echo $MUTIRAO_TASK_INDEX >> {}", self.path("effects").display());
        let array = format!("1-{tasks}");
        let args = ["submit", "--queue", "work", "--array", &array, "--retries", "9", "--", "sh", "-c", &work];
        up.ok(&args).trim().to_owned()
    }

    fn all_done(&self, up: &Installation, job: &str, tasks: u32, doubled_max: u32) {
        let said = Said::from(up.cli(&["job", "wait", job]));
        assert_eq!(said.code, Some(0), "{said:?}\n{}\n{}", up.ok(&["node", "list"]), up.stderr());
        let effects = self.effects();
        assert_eq!(effects.keys().copied().collect::<Vec<_>>(), (1..=tasks).collect::<Vec<_>>());
        let doubled: u32 = effects.values().map(|times| times - 1).sum();
        assert!(doubled <= doubled_max, "{doubled} were done twice: {effects:?}");
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        let dir = self.folder.path().display().to_string();
        sweep::kill_all(|p| p.command.iter().any(|word| word.contains(&dir)));
    }
}

/// What `node list` says of the machine of this name.
fn note(up: &Installation, machine: &str) -> String {
    let nodes = json(&up.ok(&["--json", "node", "list"]));
    let own =
        |one: &&serde_json::Value| one["name"].as_str().is_some_and(|name| machine.ends_with(&format!("-{name}")));
    nodes.as_array().unwrap().iter().find(own).map(|one| one["note"].to_string()).unwrap_or_default()
}

#[test]
fn machines_that_commands_create_come_with_work_survive_a_death_and_a_notice_and_none_is_left() {
    let cloud = Cloud::open();
    let setup = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.nodes", "0");
    let mut up = setup.set("elastic.hooks", &cloud.path("hooks.yaml").display().to_string()).start();
    queue(&up, "work", 0, 4, r#", "workers": { "cpus": "1" }"#);
    let job = cloud.submit(&up, 45);
    wait::until("two machines at work", SETTLED_WITHIN, || cloud.machines().len() >= 2 && cloud.effects().len() > 6);
    let said = Said::from(up.cli(&["--set", &cloud.setting(), "doctor"]));
    assert!(said.out.contains("machines of ours; kinds small, spot"), "{said:?}");

    let before = cloud.machines();
    let mut names = before.keys().cloned();
    let (dying, taken) = (names.next().unwrap(), names.next().unwrap());
    Command::new("pkill").args(["-KILL", "-s", &before[&dying].to_string()]).status().unwrap();
    let noticed = Command::new("./processes").args(["notice", &taken]).current_dir(cloud.folder.path()).status();
    assert!(noticed.unwrap().success());
    wait::until("the notice to be shown", SOON, || note(&up, &taken).contains("taken back"));
    wait::until("the one to be drained, and destroyed", SETTLED_WITHIN, || !cloud.machines().contains_key(&taken));
    // Those that the dead one ran, each worker with one more in hand.
    cloud.all_done(&up, &job, 45, 4);
    assert!(cloud.machines().len() <= 4, "{:?}", cloud.machines());
    assert!(up.terminate().success());
    assert!(cloud.machines().is_empty(), "{:?}\n{}", cloud.machines(), up.stderr());
    assert_eq!(std::fs::read_dir(cloud.path("machines")).unwrap().count(), 0, "destroyed, not only stopped");
}

#[test]
fn a_killed_resource_manager_leaves_machines_that_its_successor_finds_at_work() {
    let cloud = Cloud::open();
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    let setting = cloud.setting();
    let flags = ["--set", "elastic.nodes=0", "--set", setting.as_str()];
    let first = ResourceManager::start(&up, "rm", &flags);
    queue(&up, "work", 0, 4, r#", "workers": { "cpus": "1" }"#);
    let job = cloud.submit(&up, 50);
    // In the middle of creating.
    wait::until("a machine to be begun", SETTLED_WITHIN, || !cloud.machines().is_empty());
    first.kill9();
    let second = ResourceManager::start(&up, "rm", &flags);
    wait::until("work to go on", SETTLED_WITHIN, || cloud.effects().len() > 4);
    let before = cloud.machines();
    second.kill9();
    let _third = ResourceManager::start(&up, "rm", &flags);
    cloud.all_done(&up, &job, 50, 0);
    let after = cloud.machines();
    assert!(before.iter().all(|(name, pid)| after.get(name) == Some(pid)), "{before:?} {after:?}");
    assert!(after.len() <= 4, "{after:?}");
}
