//! How a private PostgreSQL cluster is prepared: `initdb` by a user that is not root, a password, durable writes.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use mutirao_core::{Dice, SessionId};
use rustix::process::Signal;

use super::{Greeting, Service};
use crate::launch::{Launch, User};
use crate::ports;

const ROLE: &str = "mutirao";

pub(super) fn prepare(folder: PathBuf, dice: &Dice) -> anyhow::Result<Service> {
    let [port] = ports::free(dice)?;
    let bin = newest_bin()?;
    let user = User::instead_of_root()?;
    let (data, password_file) = (folder.join("data"), folder.join("password"));
    // Not for secrecy, tests have none: so that a client which forgets its password fails here and not at a user's.
    let password = SessionId::random().0;
    std::fs::write(&password_file, &password)?;
    if let Some(User { uid, gid }) = user {
        chown(&folder, Some(uid), Some(gid))?;
        chown(&password_file, Some(uid), Some(gid))?;
    }
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    Launch::new(bin.join("initdb"))
        .args(["--username", ROLE, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"])
        // The folder is gone if the machine loses power; what the tests write to it later is synced as usual.
        .args(["--no-sync", "--no-instructions"])
        .args([format!("--pwfile={}", password_file.display()), format!("--pgdata={}", data.display())])
        .user(user.clone())
        .run(&folder)?;
    let launch = Launch::new(bin.join("postgres"))
        .args(["-D".into(), data.into_os_string()])
        .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("port={port}")])
        .args(["-c", &format!("unix_socket_directories={}", folder.display())])
        .args(["-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "fsync=on"])
        .user(user)
        // Its own word for "stop at once, but leave no shared memory behind".
        .at_our_death("QUIT");
    Ok(Service {
        name: "postgres",
        url: format!("postgres://{ROLE}:{password}@127.0.0.1:{port}/postgres"),
        management: None,
        port,
        folder,
        launch,
        stops_on: Signal::QUIT,
        greeting: Greeting { say: startup_message(), hear: b"R" },
        child: None,
        beside: None,
    })
}

/// Protocol 3.0. A server that accepts connections asks for the password (`R`); one that still starts or recovers
/// answers with an error (`E`).
fn startup_message() -> Vec<u8> {
    let parameters = format!("user\0{ROLE}\0database\0postgres\0\0");
    let mut message = Vec::new();
    message.extend((8 + parameters.len() as u32).to_be_bytes());
    message.extend(196_608_u32.to_be_bytes());
    message.extend(parameters.as_bytes());
    message
}

/// Debian keeps each major version in a folder of its own, none of them on the PATH.
fn newest_bin() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin"))))
        .filter(|(_, bin)| bin.join("initdb").exists())
        .max();
    let on_path = || std::env::split_paths(&std::env::var_os("PATH")?).find(|dir| has_server(dir));
    newest.map(|(_, bin)| bin).or_else(on_path).context("there is no PostgreSQL server: apt-get install postgresql")
}

fn has_server(dir: &Path) -> bool {
    dir.join("initdb").exists() && dir.join("postgres").exists()
}
