//! The original, made again: two FastAPI processes behind nginx, and one consumer, on RabbitMQ, PostgreSQL and Redis.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use mutirao_testkit::services::Service;

use super::load::{Address, until_there};
use crate::peers::{FOLDER, Peers};
use crate::services::Servers;

pub struct Original {
    pub servers: Servers,
    _redis: Service,
    address: SocketAddr,
    running: Vec<Child>,
    _folder: tempfile::TempDir,
}

impl Original {
    pub fn start() -> anyhow::Result<Self> {
        let (servers, folder) = (Servers::start()?, tempfile::tempdir()?);
        let redis = Service::redis(folder.path())?;
        let peers = Peers::prepare(Path::new(FOLDER))?;
        let fit = |command: &mut Command| -> anyhow::Result<Child> {
            command.env("AMQP", servers.rabbitmq.url()).env("POSTGRES", servers.postgres.url());
            command.env("REDIS", redis.url()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            Ok(command.spawn()?)
        };
        let mut running = vec![fit(&mut peers.python("kv_original_consumer.py"))?];
        let ports = [free_port()?, free_port()?];
        for port in ports {
            let mut command = peers.module("uvicorn");
            command.args(["kv_original_api:app", "--log-level", "error", "--port", &port.to_string()]);
            running.push(fit(&mut command)?);
        }
        for port in ports {
            until_there((Ipv4Addr::LOCALHOST, port).into())?;
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, nginx(folder.path(), address, ports))?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(&config).stderr(Stdio::null());
        running.push(fit(&mut command).context("cannot run nginx (Debian: apt-get install nginx-light)")?);
        until_there(address)?;
        Ok(Self { servers, _redis: redis, address, running, _folder: folder })
    }

    /// What is put waits in its queue.
    pub fn hold_consumer(&self) {
        self.signal_consumer(rustix::process::Signal::STOP);
    }

    pub fn let_consumer_go(&self) {
        self.signal_consumer(rustix::process::Signal::CONT);
    }

    fn signal_consumer(&self, signal: rustix::process::Signal) {
        let pid = self.running.first().and_then(|child| rustix::process::Pid::from_raw(child.id() as i32));
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    pub fn address(&self) -> Address {
        let pids = self.running.iter().map(Child::id).collect();
        Address { url: format!("http://{}", self.address), token: None, pids }
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        // One that stands still would not hear that it is to end.
        self.let_consumer_go();
        for child in &mut self.running {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
                // It may be gone already; nginx takes its workers with it.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            let _ = child.wait();
        }
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn nginx(folder: &Path, address: SocketAddr, ports: [u16; 2]) -> String {
    let folder = folder.display();
    let servers = ports.map(|port| format!("server 127.0.0.1:{port};")).join(" ");
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places = places.map(|place| format!("{place}_temp_path {folder}/{place};")).join(" ");
    format!(
        "daemon off; pid {folder}/nginx.pid; error_log /dev/null; worker_processes 2;
         events {{ worker_connections 4096; }}
         http {{ access_log off; {places} gzip on;
           upstream api {{ {servers} keepalive 256; }}
           server {{ listen {address}; keepalive_requests 1000000000;
             location / {{ proxy_pass http://api; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}"
    )
}
