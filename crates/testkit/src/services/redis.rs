//! How a private Redis is prepared: memory only, since it is a cache wherever we use it; or with what it keeps when nobody tells
//! it not to.

use std::path::PathBuf;

use mutirao_core::Dice;
use rustix::process::Signal;

use super::{Greeting, Service};
use crate::certificates::Pair;
use crate::launch::Launch;
use crate::ports;

/// One that speaks TLS too, at the address it is given out with.
pub(super) fn prepare_with_tls(folder: PathBuf, dice: &Dice, pair: &Pair) -> anyhow::Result<Service> {
    let mut service = prepare(folder, dice)?;
    let [port] = ports::free(dice)?;
    let plain = std::mem::replace(&mut service.launch, Launch::new("redis-server"));
    let launch = plain.args(["--tls-port", &port.to_string(), "--tls-auth-clients", "no", "--tls-cert-file"]);
    service.launch = launch.args([&pair.cert]).args(["--tls-key-file"]).args([&pair.key]);
    service.url = format!("rediss://localhost:{port}");
    Ok(service)
}

pub(super) fn prepare(folder: PathBuf, dice: &Dice) -> anyhow::Result<Service> {
    prepare_saving(folder, dice, "")
}

/// One that writes snapshots, as Redis does by default, and is there again with the last after a restart.
pub(super) fn prepare_that_saves(folder: PathBuf, dice: &Dice) -> anyhow::Result<Service> {
    prepare_saving(folder, dice, "3600 1")
}

fn prepare_saving(folder: PathBuf, dice: &Dice, when: &str) -> anyhow::Result<Service> {
    let [port] = ports::free(dice)?;
    let launch = Launch::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", when, "--appendonly", "no"])
        .args(["--daemonize", "no", "--protected-mode", "yes", "--dir"])
        .args([&folder]);
    Ok(Service {
        name: "redis",
        url: format!("redis://127.0.0.1:{port}"),
        management: None,
        port,
        folder,
        launch,
        stops_on: Signal::KILL,
        greeting: Greeting { say: b"PING\r\n".to_vec(), hear: b"+PONG" },
        child: None,
        beside: None,
    })
}
