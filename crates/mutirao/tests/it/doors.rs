//! Several managers of one installation as one address: at the same port, where a resource manager starts them, and behind nginx.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mutirao_core::Dice;
use mutirao_testkit::services::{POSTGRES_VARIABLE, Service, shared};
use mutirao_testkit::{Installation, http, launch, ports, sweep, wait};
use rustix::process::Signal;

use crate::database::folder;
use crate::growing::told;
use crate::rabbit::Vhost;
use crate::said::{mutirao, refused, run};

const POOL: &str = "_managers";
/// A start, and a busy machine.
const COMES_WITHIN: Duration = Duration::from_secs(90);

/// What several managers share.
struct Shared {
    vhost: Vhost,
    database: Service,
    _folder: tempfile::TempDir,
}

impl Shared {
    /// None where there is no service to be had.
    fn new() -> Option<Self> {
        let vhost = Vhost::new()?;
        shared(POSTGRES_VARIABLE)?;
        let folder = folder();
        let database = Service::postgres(folder.path()).unwrap();
        Some(Self { vhost, database, _folder: folder })
    }

    fn setup(&self) -> mutirao_testkit::installation::Setup {
        Installation::setup()
            .env("MUTIRAO_DATABASE", self.database.url())
            .env("MUTIRAO_BROKER", &self.vhost.broker)
            .env("MUTIRAO_BROKER_MANAGEMENT", &self.vhost.management)
    }
}

/// The managers that a node of this installation started.
fn beside(up: &Installation) -> Vec<sweep::Process> {
    let data = up.data().display().to_string();
    let ours = |p: &sweep::Process| p.runs("role", "manager") && p.command.iter().any(|word| word.starts_with(&data));
    sweep::processes().into_iter().filter(ours).collect()
}

fn alive(at: SocketAddr) -> bool {
    http::request(at, "GET /healthz", &[], b"").is_ok_and(|answer| answer.status == 200)
}

/// Somebody who asks again and again, each time with a new connection.
struct Asker {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Asker {
    fn of(at: SocketAddr) -> Self {
        let (stop, asked, failed) =
            (Arc::new(AtomicBool::new(false)), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let thread = std::thread::spawn({
            let (stop, asked, failed) = (stop.clone(), asked.clone(), failed.clone());
            move || {
                while !stop.load(Ordering::SeqCst) {
                    let counter = if alive(at) { &asked } else { &failed };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Self { stop, asked, failed, thread }
    }

    /// How many were answered, and how many were not.
    fn stop(self) -> (u64, u64) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        (self.asked.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

#[test]
fn a_manager_beside_the_first_answers_at_the_same_address_and_turns_nobody_away_when_it_goes() {
    let Some(services) = Shared::new() else { return };
    let [port] = ports::free(&Dice::from_os()).unwrap();
    let setup = services.setup().workers(0).port(port).set("api.managers", "1..1").set("elastic.cpus", "2");
    let mut up = setup.start();
    let at = up.address();
    wait::until("a manager beside the first", COMES_WITHIN, || told(&up, POOL) == (1, 1) && beside(&up).len() == 1);

    // What opens the database and the broker is nowhere where others could read it.
    for process in beside(&up) {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let seen = format!("{:?} {}", process.command, String::from_utf8_lossy(&environment));
        assert!(!seen.contains("postgres://") && !seen.contains("amqp://"), "a manager shows too much: {seen}");
    }

    // Another installation is not let in at this address.
    let stranger = tempfile::tempdir().unwrap();
    let listen = at.to_string();
    let alone =
        mutirao(&["up", "--listen", &listen, "--set", "api.port=shared", "--data", stranger.path().to_str().unwrap()]);
    refused(&run(alone), 1, &["is taken by another program", "not a manager of this installation", "--listen"]);

    // The first dies: the other answers, also what changes something.
    let first = beside(&up)[0].pid;
    let token = format!("Bearer {}", up.token());
    up.kill9();
    let put = || {
        let headers = [("Authorization", token.as_str())];
        http::request(at, "PUT /v1/kv/door?sync=1", &headers, b"open").is_ok_and(|answer| answer.status == 200)
    };
    wait::until("the other to answer alone", COMES_WITHIN, put);
    up.restart();
    assert_eq!(up.ok(&["kv", "get", "door"]).trim(), "open");
    wait::until("both to be there again", COMES_WITHIN, || told(&up, POOL) == (1, 1) && beside(&up).len() == 1);

    // Told to go, it goes when what it was asked is answered, and another comes.
    let asker = Asker::of(at);
    let workers = up.ok(&["--json", "node", "list"]);
    let nodes: serde_json::Value = serde_json::from_str(&workers).unwrap();
    let all = nodes.as_array().or(nodes["items"].as_array()).unwrap();
    let on_them = all.iter().flat_map(|node| node["workers"].as_array().unwrap());
    let worker = on_them.filter(|w| w["queue"] == POOL).find_map(|w| w["worker"].as_str()).unwrap();
    let before: Vec<u32> = beside(&up).iter().map(|process| process.pid).collect();
    up.ok(&["worker", "drain", worker]);
    wait::until("it to go and another to come", COMES_WITHIN, || {
        let now: Vec<u32> = beside(&up).iter().map(|process| process.pid).collect();
        now.len() == 1 && !before.contains(&now[0]) && told(&up, POOL) == (1, 1)
    });
    let (asked, failed) = asker.stop();
    assert!(asked > 20 && failed == 0, "{failed} of {asked} were turned away; the first was {first}\n{}", up.stderr());
}

#[test]
fn managers_beside_the_first_without_what_several_can_share_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().display().to_string();
    let up = |listen: &str, env: &[(&str, &str)]| {
        let mut command = mutirao(&["up", "--data", &data, "--listen", listen, "--set", "api.managers=0..2"]);
        command.envs(env.iter().copied());
        run(command)
    };
    refused(&up("127.0.0.1:7070", &[]), 2, &["PostgreSQL (MUTIRAO_DATABASE)", "RabbitMQ (MUTIRAO_BROKER)"]);
    let both = [("MUTIRAO_DATABASE", "postgres://a@127.0.0.1:1/d"), ("MUTIRAO_BROKER", "amqp://a@127.0.0.1:1/v")];
    refused(&up("127.0.0.1:0", &both), 2, &["api.managers", "--listen"]);
}

/// nginx with the configuration that is shipped, on other ports.
struct Nginx(Child);

impl Nginx {
    /// None where it is not installed.
    fn start(folder: &Path, port: u16, managers: [SocketAddr; 2]) -> Option<Self> {
        let program = ["/usr/sbin/nginx", "/usr/bin/nginx"].into_iter().find(|path| Path::new(path).exists())?;
        let shipped =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nginx/mutirao.conf")).unwrap();
        let here = shipped
            .replace("listen 7070;", &format!("listen 127.0.0.1:{port};"))
            .replace("127.0.0.1:7071", &managers[0].to_string())
            .replace("127.0.0.1:7072", &managers[1].to_string());
        assert!(
            here.contains(&managers[1].to_string()) && here.contains(&port.to_string()),
            "the file has changed: {here}"
        );
        let folder = folder.display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {folder}/{kind};"))
            .join("\n");
        let user = if rustix::process::getuid().is_root() { "user root;" } else { "" };
        let whole = format!(
            "daemon off;\nworker_processes 1;\n{user}\npid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n\
             http {{\naccess_log off;\n{temporary}\n{here}\n}}\n"
        );
        let file = format!("{folder}/nginx.conf");
        std::fs::write(&file, whole).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", program, "-c", &file, "-e", &format!("{folder}/error.log")]);
        Some(Self(command.stdin(Stdio::null()).spawn().expect("nginx can be started")))
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        launch::stop(&mut self.0, Signal::TERM, Duration::from_secs(10));
    }
}

#[test]
fn behind_nginx_two_managers_are_one_and_the_death_of_one_is_not_seen() {
    let Some(services) = Shared::new() else { return };
    let mut one = services.setup().manager_alone().start();
    let other = services.setup().manager_alone().start();
    let folder = tempfile::tempdir().unwrap();
    let [port] = ports::free(&Dice::from_os()).unwrap();
    let Some(nginx) = Nginx::start(folder.path(), port, [one.address(), other.address()]) else {
        eprintln!("skipped: there is no nginx");
        return;
    };
    let at: SocketAddr = ([127, 0, 0, 1], port).into();
    wait::until("nginx to answer", COMES_WITHIN, || alive(at));
    let url = format!("http://{at}");
    let by_nginx = |args: &[&str]| {
        let mut command = mutirao(args);
        command.env("MUTIRAO_URL", &url).env("MUTIRAO_TOKEN", other.token());
        run(command)
    };
    let ok = |args: &[&str]| {
        let said = by_nginx(args);
        assert_eq!(said.code, Some(0), "{args:?}: {said:?}");
        said.out
    };
    ok(&["kv", "put", "here", "now"]);
    ok(&["queue", "create", "night"]);

    // A worker comes in and its link stays; what it does is followed as it comes.
    let invited: serde_json::Value =
        serde_json::from_str(&ok(&["--json", "worker", "invite", "--queue", "night"])).unwrap();
    let worker_dir = folder.path().join("worker");
    let mut worker = mutirao(&["role", "worker", "--queue", "night", "--url", &url, "--set", "worker.way=link"]);
    worker.arg("--dir").arg(&worker_dir).env("MUTIRAO_ENROL_TOKEN", invited["token"].as_str().unwrap());
    let mut worker = launch::spawn(worker).unwrap();
    assert_eq!(ok(&["submit", "--queue", "night", "--wait", "--", "echo", "through"]).trim(), "through");

    // One of the two dies: whoever asks through nginx does not see it.
    let asker = Asker::of(at);
    one.kill9();
    for n in 0..20 {
        ok(&["kv", "put", &format!("after-{n}"), "there"]);
    }
    let (asked, failed) = asker.stop();
    assert!(asked > 20 && failed == 0, "{failed} of {asked} were not answered");
    launch::stop(&mut worker, Signal::TERM, Duration::from_secs(30));
    drop(nginx);
}
