//! What an operator may move, with its defaults.

use std::time::Duration;

use mutirao_core::InstallationId;
use mutirao_tls::Serving;

use crate::auth::upkeep::Keep;
use crate::throttle::Rate;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Names, besides `localhost` and plain addresses, that browsers and clients may call this server by.
    pub hosts: Vec<String>,
    /// Where others reach this server, for workers elsewhere.
    pub url: Option<String>,
    /// Requests of one principal.
    pub rate: Rate,
    /// Failed proofs of identity from one address.
    pub failures: Rate,
    /// From a request's head to its answer's head.
    pub request_timeout: Duration,
    /// How long open requests may take to end when the server goes down.
    pub drain: Duration,
    /// Requests that are worked on at once.
    pub requests_max: usize,
    /// Connections open at once; streams and links among them.
    pub connections_max: usize,
    /// Bytes of large bodies held at once.
    pub body_bytes_held_max: usize,
    /// How long keys, tokens and audit lines are kept when they are over.
    pub keep: Keep,
    /// The certificate to show; without one, plain HTTP is spoken.
    pub tls: Option<Serving>,
    /// Whose manager this is, for another that would share its address.
    pub installation: Option<InstallationId>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            url: None,
            rate: Rate::new(500, 1_000),
            failures: Rate::new(1, 20),
            request_timeout: Duration::from_secs(60),
            drain: Duration::from_secs(10),
            requests_max: 1_024,
            connections_max: 4_096,
            body_bytes_held_max: 512 << 20,
            keep: Keep::default(),
            tls: None,
            installation: None,
        }
    }
}
