//! How a private Redis is prepared: memory only, since it is a cache wherever we use it.

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
    let [port] = ports::free(dice)?;
    let launch = Launch::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--protected-mode", "yes"]);
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
