//! Hosts, their logs and their files, in one folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use mutirao_broker::{Limits, Memory, Shared};
use mutirao_core::{Clock, Dice, SystemClock};
use mutirao_hosts::{Ends, Files, Host, HostParts};
use mutirao_store::blobs::FileBlobs;
use mutirao_streams::wire::{HostView, Part, Standing, State, What};
use mutirao_tls::{Believe, Trust};

use crate::chief::Chief;
use crate::cuts::{Cuttable, Grudging};
use crate::reference;

pub struct World {
    dir: tempfile::TempDir,
    pub broker: Shared,
    pub blobs: FileBlobs,
    /// What is asked of the blobs is refused for now.
    pub refuses: Arc<AtomicBool>,
    pub chief: Arc<Chief>,
    pub hosts: BTreeMap<String, (Host, Cuttable)>,
    pub ends: Ends,
    /// Of hosts that are started from now on.
    pub clock: Arc<dyn Clock>,
}

pub const LIMITS: Limits = Limits {
    queue_messages_max: 1_000,
    queue_bytes_max: 1 << 20,
    dead_letters_max: 10,
    dead_bytes_max: 1 << 20,
    backlog_messages_max: 1_024,
    backlog_bytes_max: 4 << 20,
    names_max: 1_000,
    log_bytes_max: 1 << 30,
    segment_bytes: 64 << 20,
};

impl World {
    pub fn of(text: &str) -> Self {
        Self::with(text, LIMITS)
    }

    pub fn with(text: &str, limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let broker = Memory::new(Some(dir.path().join("logs")), limits);
        Self::on(dir, broker, text, limits)
    }

    pub fn on(dir: tempfile::TempDir, broker: Shared, text: &str, limits: Limits) -> Self {
        let _ = tracing_subscriber::fmt().with_test_writer().with_max_level(tracing::Level::WARN).try_init();
        let blobs = FileBlobs::open(&dir.path().join("blobs")).unwrap();
        let files = dir.path().join("files");
        std::fs::create_dir_all(&files).unwrap();
        let trust = Trust::for_url("https:", &Believe::default()).unwrap();
        let ends = Ends { mqtt: None, amqp: None, web: None, trust, files: Files::Within(files) };
        let chief = Arc::new(Chief::of(text, limits.log_bytes_max));
        let refuses = Arc::default();
        Self { dir, broker, blobs, refuses, chief, hosts: BTreeMap::new(), ends, clock: SystemClock::shared() }
    }

    pub fn start(&mut self, name: &str) {
        let clock = self.clock.clone();
        let way = Cuttable::of(self.broker.clone());
        let view = HostView {
            id: name.into(),
            name: name.into(),
            standing: Standing::Apart,
            layer: "cloud".into(),
            labels: BTreeMap::new(),
            cores: 2,
            memory_bytes: 1 << 30,
        };
        let host = Host::start(HostParts {
            view,
            broker: Arc::new(way.clone()),
            blobs: Arc::new(Grudging { inner: self.blobs.clone(), refuses: self.refuses.clone() }),
            manager: self.chief.clone(),
            ends: self.ends.clone(),
            threads: 1,
            clock,
            dice: Arc::new(Dice::from_os()),
        });
        self.hosts.insert(name.into(), (host.unwrap(), way));
    }

    /// It is gone from one moment to the next.
    pub fn kill(&mut self, name: &str) {
        self.hosts.remove(name).expect("a host of this name");
    }

    pub async fn stop(&mut self, name: &str) {
        let (host, _) = self.hosts.remove(name).expect("a host of this name");
        host.stop(&SystemClock).await;
    }

    /// It reaches neither the broker nor the manager.
    pub fn cut_off(&self, name: &str) {
        self.hosts[name].1.cut();
        self.chief.deaf_to(name, true);
    }

    pub fn heal(&self, name: &str) {
        self.hosts[name].1.heal();
        self.chief.deaf_to(name, false);
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn sink(&self) -> Part {
        self.chief.part(What::Sink(0), 0)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.file(name)).unwrap_or_default()
    }

    pub async fn until(&self, what: &str, seconds: u64, mut check: impl FnMut(&Self) -> bool) {
        let until = SystemClock.monotonic().plus(Duration::from_secs(seconds));
        while !check(self) {
            if SystemClock.monotonic() > until {
                let reports: Vec<String> = self.chief.reports().iter().map(|report| format!("{report:?}")).collect();
                panic!("{what} did not happen within {seconds} s:\n{}", reports.join("\n"));
            }
            pause(50).await;
        }
    }

    pub async fn until_ended(&self, seconds: u64) {
        let sink = self.sink();
        self.until("the end of the stream", seconds, |world| matches!(world.chief.state_of(&sink), Some(State::Ended)))
            .await;
    }

    /// At least so many lines.
    pub async fn until_lines(&self, name: &str, lines: usize, seconds: u64) {
        self.until("enough lines", seconds, |world| {
            world.read(name).iter().filter(|byte| **byte == b'\n').count() >= lines
        })
        .await;
    }

    /// The file of the first sink is what one place alone would have written, byte for byte.
    pub fn check(&self, name: &str) {
        let wanted = reference::lines(&self.chief.graph, None).remove(0);
        assert!(!wanted.is_empty(), "the reference says nothing");
        if let Err(why) = reference::same(&self.read(name), &wanted) {
            panic!("{why}");
        }
    }
}

pub async fn pause(ms: u64) {
    SystemClock.sleep(Duration::from_millis(ms)).await;
}

/// A generator of so many seconds at this rate, a chain, a window by key, a file; two replicas of each stage.
pub fn grid(seconds: u32, rate: u32, snapshot: &str) -> String {
    format!(
        "\
kind: Stream
name: grid
sources:
  - name: made
    generator:
      rate: [ {{ for: {seconds}s, rate: {rate} }} ]
      fields: {{ n: n, key: n % 97, name: \"'k' + text(n % 13)\", at: time(n * 1000), x: random1 * 10 }}
    time: at
operators:
  - name: some
    from: made
    filter: n % 7 != 3
    replicas: 2
  - name: more
    from: some
    add: {{ y: x * 2 + n }}
    replicas: 2
  - name: keyed
    from: more
    key_by: key
    replicas: 2
  - name: sums
    from: keyed
    window: {{ jump: 500ms, by: at }}
    aggregate: {{ events: count(), y: sum(y), mean: mean(x), names: distinct(name) }}
    replicas: 2
    snapshot: {snapshot}
  - name: high
    from: sums
    filter: events > 1
    replicas: 2
sinks:
  - name: out
    from: high
    file: {{ path: out.jsonl }}
"
    )
}
