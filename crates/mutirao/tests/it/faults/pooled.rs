//! Machines of a pool, reached by a real sshd each in a network namespace with an address of its own: taken when they are
//! needed, refused when they do not fit, cut off in the middle, found again by the next resource manager. Work is counted by
//! the lines that it left in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::hosts::Hosts;
use mutirao_testkit::{Installation, sweep, wait};

use crate::growing::{LEASE, ResourceManager, json, queue};
use crate::said::Said;

/// A program of a debug build is read, and copied, by two busy cores.
const LATE: Duration = Duration::from_secs(150);

/// Hosts with an sshd each, and a key that opens them all.
struct Pool {
    hosts: Hosts,
    folder: tempfile::TempDir,
    sshds: Vec<Child>,
}

impl Pool {
    /// With what is written about each beside its address. `None`, and a word about it, where there can be no hosts.
    fn open(about: &[(&'static str, &str)]) -> Option<Pool> {
        let names: Vec<&'static str> = about.iter().map(|(name, _)| *name).collect();
        let hosts = Hosts::lay(&Dice::from_os(), &names)?;
        if !std::path::Path::new("/usr/sbin/sshd").exists() {
            eprintln!("skipped: there is no sshd");
            return None;
        }
        std::fs::create_dir_all("/run/sshd").unwrap();
        let folder = tempfile::Builder::new().prefix("mutirao-pool.").tempdir().unwrap();
        let mut pool = Pool { hosts, folder, sshds: Vec::new() };
        for key in ["host", "key"] {
            let made =
                Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(pool.path(key)).status();
            assert!(made.unwrap().success());
        }
        let own = std::fs::read_to_string(pool.path("host.pub")).unwrap();
        let (mut known, mut list) = (String::new(), String::new());
        for (name, more) in about {
            let address = pool.hosts.host(name).to_string();
            known.push_str(&format!("{address} {own}"));
            let dir = pool.path(&format!("on-{name}"));
            list.push_str(&format!(
                "- {{ name: {name}, address: {address}, user: root, key: key, known_hosts: known, cpus: 1, memory: 256MiB, \
                 dir: {}{more} }}\n",
                dir.display()
            ));
            pool.serve(name);
        }
        std::fs::write(pool.path("known"), known).unwrap();
        std::fs::write(pool.path("hosts.yaml"), list).unwrap();
        Some(pool)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// On the host `old` the C library says that it is one.
    fn serve(&mut self, name: &str) {
        let path = |name: &str| self.path(name).display().to_string();
        let bin = path("bin-old");
        if name == "old" {
            use std::os::unix::fs::PermissionsExt;
            std::fs::create_dir(&bin).unwrap();
            let getconf = PathBuf::from(&bin).join("getconf");
            std::fs::write(&getconf, "#!/bin/sh\n[ $1 = GNU_LIBC_VERSION ] && echo glibc 2.17 || nproc\n").unwrap();
            std::fs::set_permissions(&getconf, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let first = if name == "old" { format!("{bin}:") } else { String::new() };
        let settings = format!(
            "ListenAddress {}:22\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\nUsePAM no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nSetEnv PATH={first}/usr/bin:/bin:/usr/sbin:/sbin\n",
            self.hosts.host(name),
            path("host"),
            path("key.pub"),
        );
        let file = path(&format!("sshd-{name}"));
        std::fs::write(&file, settings).unwrap();
        let mut sshd = Command::new("/usr/sbin/sshd");
        let mut sshd = self.hosts.on(name, sshd.args(["-D", "-e", "-f", &file]));
        sshd.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(path(&format!("log-{name}"))).unwrap());
        self.sshds.push(sshd.spawn().unwrap());
    }

    fn hosts_file(&self) -> String {
        self.path("hosts.yaml").display().to_string()
    }

    /// Agents on a host.
    fn nodes(&self, name: &str) -> Vec<u32> {
        let dir = self.path(&format!("on-{name}")).display().to_string();
        let ours = |p: &sweep::Process| p.runs("role", "node") && p.command.iter().any(|word| word.starts_with(&dir));
        sweep::processes().into_iter().filter(ours).map(|p| p.pid).collect()
    }

    /// A job whose every task leaves a line.
    fn submit(&self, up: &Installation, tasks: u32) -> String {
        let work = format!("sleep 0.5; echo $MUTIRAO_TASK_INDEX >> {}", self.path("effects").display());
        let array = format!("1-{tasks}");
        let args = ["submit", "--queue", "work", "--array", &array, "--retries", "9", "--", "sh", "-c", &work];
        up.ok(&args).trim().to_owned()
    }

    fn effects(&self) -> BTreeMap<u32, u32> {
        let mut seen = BTreeMap::new();
        for line in std::fs::read_to_string(self.path("effects")).unwrap_or_default().lines() {
            *seen.entry(line.parse().unwrap_or_else(|_| panic!("a torn effect: {line:?}"))).or_default() += 1;
        }
        seen
    }

    /// Every task has left its line, and at most so many twice.
    fn all_done(&self, up: &Installation, job: &str, tasks: u32, doubled_max: u32) {
        let said = Said::from(up.cli(&["job", "wait", job]));
        assert_eq!(said.code, Some(0), "{said:?}\n{}\n{}", up.ok(&["node", "list"]), up.stderr());
        let effects = self.effects();
        assert_eq!(effects.keys().copied().collect::<Vec<_>>(), (1..=tasks).collect::<Vec<_>>());
        let doubled: u32 = effects.values().map(|times| times - 1).sum();
        assert!(doubled <= doubled_max, "{doubled} were done twice: {effects:?}");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let dir = self.folder.path().display().to_string();
        sweep::kill_all(|p| p.command.iter().any(|word| word.contains(&dir)));
        for sshd in &mut self.sshds {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
    }
}

/// What `node list` says of a node: whether it answers, and why not.
fn state(up: &Installation, node: &str) -> (bool, String) {
    let nodes = json(&up.ok(&["--json", "node", "list"]));
    let found = nodes.as_array().unwrap().iter().find(|one| one["name"] == node).cloned().unwrap_or_default();
    (found["answers"] == true, found["note"].as_str().unwrap_or_default().to_owned())
}

fn with(pool: &Pool) -> Installation {
    let setup = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.nodes", "0");
    setup.set("elastic.hosts", &pool.hosts_file()).start()
}

#[test]
fn hosts_are_taken_when_they_are_needed_and_one_that_does_not_fit_is_refused_with_why_while_others_work() {
    let about = [("one", ""), ("two", ""), ("old", ""), ("big", ", labels: { x: y }"), ("shut", "")];
    let Some(mut pool) = Pool::open(&about) else { return };
    // One whose folder cannot be made, and one whose sshd is gone.
    std::fs::write(pool.path("on-big"), "").unwrap();
    let mut shut = pool.sshds.pop().unwrap();
    let _ = (shut.kill(), shut.wait());
    let mut up = with(&pool);
    queue(&up, "work", 0, 2, r#", "workers": { "cpus": "1" }"#);
    wait::until("the hosts to be looked at", LATE, || state(&up, "one").1 == "not in use");
    for (host, why) in [("old", "its glibc is 2.17"), ("big", "no write access"), ("shut", "Connection refused")] {
        wait::until(&format!("{host}: {why}, not {:?}", state(&up, host)), LATE, || state(&up, host).1.contains(why));
    }
    assert_eq!((pool.nodes("one"), pool.nodes("two")), (vec![], vec![]), "nobody needs them yet");
    let job = pool.submit(&up, 12);
    pool.all_done(&up, &job, 12, 0);
    assert_eq!((pool.nodes("one").len(), pool.nodes("two").len()), (1, 1));
    assert_eq!(state(&up, "one"), (true, String::new()));
    assert!(up.terminate().success());
    assert_eq!((pool.nodes("one"), pool.nodes("two")), (vec![], vec![]), "everybody went home with it");
}

#[test]
fn a_host_that_is_cut_off_in_the_middle_loses_no_task_and_works_again_when_it_is_back() {
    let Some(pool) = Pool::open(&[("one", ""), ("two", "")]) else { return };
    let up = with(&pool);
    queue(&up, "work", 0, 4, r#", "workers": { "cpus": "1" }"#);
    let job = pool.submit(&up, 80);
    wait::until("work to go on", LATE, || state(&up, "one").0 && state(&up, "two").0 && pool.effects().len() > 6);
    let nodes = pool.nodes("one");
    pool.hosts.cut("one").unwrap();
    wait::until("it to be missed", LATE, || !state(&up, "one").0);
    let so_far = pool.effects().len();
    wait::until("the other to go on", LATE, || pool.effects().len() > so_far + 4);
    pool.hosts.mend("one").unwrap();
    wait::until("it to be back", LATE, || state(&up, "one").0);
    assert_eq!(pool.nodes("one"), nodes, "the same agent");
    // What the worker there ran, and what it had been given besides.
    pool.all_done(&up, &job, 80, 4);
}

#[test]
fn a_killed_resource_manager_is_followed_by_one_that_finds_its_hosts_at_work() {
    let Some(pool) = Pool::open(&[("one", ""), ("two", "")]) else { return };
    let up = Installation::setup().manager_alone().set("jobs.lease", LEASE).start();
    let file = format!("elastic.hosts={}", pool.hosts_file());
    let flags = ["--set", "elastic.nodes=0", "--set", &file];
    let first = ResourceManager::start(&up, "rm", &flags);
    queue(&up, "work", 0, 4, r#", "workers": { "cpus": "1" }"#);
    let job = pool.submit(&up, 60);
    // While it copies or starts: what it began is begun again.
    wait::until("a host to be taken", LATE, || pool.path("on-one/bin").exists());
    first.kill9();
    let second = ResourceManager::start(&up, "rm", &flags);
    wait::until("work to go on", LATE, || pool.effects().len() > 4);
    let nodes = (pool.nodes("one"), pool.nodes("two"));
    second.kill9();
    let _third = ResourceManager::start(&up, "rm", &flags);
    pool.all_done(&up, &job, 60, 0);
    let found = |node: &str, before: &[u32]| before.is_empty() || pool.nodes(node) == before;
    assert!(found("one", &nodes.0) && found("two", &nodes.1), "the same agents");
}

/// A cloud that has one machine, which lets nobody in but whom it was told to when it was created.
const CLOUD: &str = r#"#!/bin/sh
case $1 in
create) echo "$HOOK_SSH_KEY" >>key.pub; echo "$HOOK_NAME" >made ;;
list) [ ! -e made ] || printf '{"name":"%s","address":"ADDRESS","user":"root","host_key":"%s"}\n' "$(cat made)" "$(cat host.pub)" ;;
destroy) [ "$(cat made)" != "$HOOK_NAME" ] || rm made ;;
esac
"#;

#[test]
fn a_machine_that_a_hook_created_is_reached_by_ssh_with_the_key_that_the_hook_was_given() {
    use std::os::unix::fs::PermissionsExt;
    let Some(pool) = Pool::open(&[("one", "")]) else { return };
    let cloud = pool.path("cloud");
    std::fs::write(&cloud, CLOUD.replace("ADDRESS", &pool.hosts.host("one").to_string())).unwrap();
    std::fs::set_permissions(&cloud, std::fs::Permissions::from_mode(0o755)).unwrap();
    let commands = "create: [./cloud, create]\nlist: [./cloud, list]\ndestroy: [./cloud, destroy]\nlist_every: 1s\n";
    let dir = pool.path("on-one").display().to_string();
    let kind = format!("kinds: [{{ name: small, cpus: 1, memory: 256MiB, dir: {dir} }}]\n");
    std::fs::write(pool.path("hooks.yaml"), format!("{commands}{kind}")).unwrap();
    let setup = Installation::setup().workers(0).set("jobs.lease", LEASE).set("elastic.nodes", "0");
    let mut up = setup.set("elastic.hooks", &pool.path("hooks.yaml").display().to_string()).start();
    queue(&up, "work", 0, 2, r#", "workers": { "cpus": "1" }"#);
    let job = pool.submit(&up, 6);
    pool.all_done(&up, &job, 6, 0);
    assert_eq!(pool.nodes("one").len(), 1, "{}", up.ok(&["node", "list"]));
    assert!(up.terminate().success());
    assert!(pool.nodes("one").is_empty() && !pool.path("made").exists(), "{}", up.stderr());
}
