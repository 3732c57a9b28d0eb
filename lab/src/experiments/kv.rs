//! The experiments of the key-value document: its run of PUTs from 255 clients, reads that the cache has and has not, and how
//! fast what was accepted is applied. Ours stands beside a re-creation of the original ([`original`]) in the same run, with
//! the same client (`wrk`), on the same servers.

pub mod backlog;
pub mod load;
pub mod logging;
pub mod one;
pub mod original;
pub mod siege;
pub mod three;
pub mod two;

use clap::Args;
use mutirao_testkit::Installation;
use mutirao_testkit::services::Service;

use crate::services::{Backend, Backing};

/// Writes that the original has applied.
const ORIGINAL_ROWS: &str = "SELECT count(*) FROM kv_store";
/// PUTs of the document's run.
const DOCUMENT_PUTS: u64 = 1_632_000;
/// Every write takes the next revision of its shard.
const OUR_WRITES: &str = "SELECT coalesce(sum(revision), 0)::bigint FROM kv_shards";
const OUR_HISTORY: &str = "SELECT count(*) FROM kv_history";

#[derive(Args)]
pub struct Options {
    /// Clients at once.
    #[arg(long, default_value_t = 255)]
    clients: u32,
    /// How long each system is asked.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// PUTs by each client in the document's own command.
    #[arg(long, default_value_t = 200)]
    siege_repetitions: u32,
    /// kv-1: ours is asked for as many PUTs as the document's run had, 1,632,000, by wrk and again by siege.
    #[arg(long)]
    whole: bool,
    /// What ours runs on.
    #[arg(long, value_enum, default_value_t = Backend::Distributed)]
    backend: Backend,
}

impl Options {
    /// How long the original is asked; and ours, unless it is asked for the whole.
    fn span(&self) -> load::Length {
        load::Length::Seconds(self.seconds)
    }

    fn our_length(&self) -> load::Length {
        if self.whole { load::Length::Puts(DOCUMENT_PUTS) } else { self.span() }
    }

    fn our_siege(&self) -> siege::Siege {
        let repetitions = DOCUMENT_PUTS.div_ceil(u64::from(self.clients.max(1))) as u32;
        siege::Siege { repetitions: if self.whole { repetitions } else { self.siege_repetitions }, ..self.siege() }
    }

    fn siege(&self) -> siege::Siege {
        siege::Siege { clients: self.clients, repetitions: self.siege_repetitions }
    }
}

/// Ours, with what it runs on.
struct Ours {
    up: Installation,
    backing: Backing,
    _redis: Option<(Service, tempfile::TempDir)>,
}

impl Ours {
    fn start(backend: Backend) -> anyhow::Result<Self> {
        Self::start_logging(backend, "warn")
    }

    fn start_logging(backend: Backend, level: &str) -> anyhow::Result<Self> {
        let backing = backend.start()?;
        // All of wrk is one caller.
        let setup = Installation::setup()
            .workers(0)
            .env("MUTIRAO_LOG", level)
            .env("MUTIRAO_API_RATE", "1000000")
            .env("MUTIRAO_API_BURST", "1000000");
        let setup = setup.env("MUTIRAO_KV_LEGACY_ROUTES", "on");
        let mut setup = backing.fit(setup);
        let mut redis = None;
        if backend == Backend::Distributed {
            let folder = tempfile::tempdir()?;
            let service = Service::redis(folder.path())?;
            setup = setup.env("MUTIRAO_CACHE", service.url());
            redis = Some((service, folder));
        }
        Ok(Self { up: setup.start(), backing, _redis: redis })
    }

    fn address(&self) -> load::Address {
        load::Address { url: self.up.url(), token: Some(self.up.token()), pids: vec![self.up.pid()] }
    }
}
