//! What an installation under measurement runs on: itself, or private RabbitMQ and PostgreSQL servers.

use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use clap::ValueEnum;
use mutirao_testkit::installation::Setup;
use mutirao_testkit::services::Service;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// SQLite, and the link.
    #[default]
    Embedded,
    /// PostgreSQL and RabbitMQ, started for the measurement.
    Distributed,
}

impl Backend {
    /// Reports of different backends go to different files.
    pub fn named(self, embedded: &'static str, distributed: &'static str) -> &'static str {
        match self {
            Backend::Embedded => embedded,
            Backend::Distributed => distributed,
        }
    }

    pub fn start(self) -> anyhow::Result<Backing> {
        Ok(match self {
            Backend::Embedded => Backing(None),
            Backend::Distributed => Backing(Some(Servers::start()?)),
        })
    }
}

/// What was started, until it is dropped.
pub struct Backing(Option<Servers>);

impl Backing {
    /// Where PostgreSQL is, if that is what was started.
    pub fn postgres_url(&self) -> Option<&str> {
        self.0.as_ref().map(|servers| servers.postgres.url())
    }

    pub fn servers(&self) -> Option<&Servers> {
        self.0.as_ref()
    }

    pub fn postgres_mut(&mut self) -> Option<&mut Service> {
        self.0.as_mut().map(|servers| &mut servers.postgres)
    }

    pub fn fit(&self, setup: Setup) -> Setup {
        match &self.0 {
            None => setup,
            Some(servers) => servers.fit(setup),
        }
    }
}

pub struct Servers {
    pub rabbitmq: Service,
    pub postgres: Service,
    _folder: tempfile::TempDir,
}

impl Servers {
    pub fn start() -> anyhow::Result<Self> {
        // PostgreSQL runs as another user, who must be able to pass.
        let passable = std::fs::Permissions::from_mode(0o711);
        let folder = tempfile::Builder::new().prefix("mutirao-lab.").permissions(passable).tempdir()?;
        Ok(Self {
            rabbitmq: Service::rabbitmq(folder.path())?,
            postgres: Service::postgres(folder.path())?,
            _folder: folder,
        })
    }

    /// Where workers or checkers are to be let in, each as a user of its own.
    pub fn fit_with_management(&self, setup: Setup) -> anyhow::Result<Setup> {
        let management = self.rabbitmq.management_url().context("RabbitMQ without its management API")?;
        Ok(self.fit(setup).env("MUTIRAO_BROKER_MANAGEMENT", management))
    }

    pub fn fit(&self, setup: Setup) -> Setup {
        setup.env("MUTIRAO_BROKER", self.rabbitmq.url()).env("MUTIRAO_DATABASE", self.postgres.url())
    }
}
