//! How a private Redis is prepared: memory only, since it is a cache wherever we use it.

use std::path::PathBuf;

use mutirao_core::Dice;
use rustix::process::Signal;

use super::{Greeting, Service};
use crate::launch::Launch;
use crate::ports;

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
