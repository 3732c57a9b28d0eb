//! How a private RabbitMQ node is prepared. Everything that nodes of one machine share by default is its own: the name,
//! the cookie (in a home folder of its own), the name server `epmd`, the ports, the folders, the plugins.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use mutirao_core::{Dice, SessionId};
use rustix::process::Signal;

use super::{Greeting, Service};
use crate::certificates::Pair;
use crate::launch::Launch;
use crate::ports;

/// Debian's `rabbitmq-server` in /usr/sbin changes the user and so the home; this is the script behind it.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

const CONTROL: &str = "/usr/lib/rabbitmq/bin/rabbitmqctl";

impl Service {
    /// Where its MQTT plugin listens, if it has one.
    pub fn mqtt_address(&self) -> Option<SocketAddr> {
        let conf = std::fs::read_to_string(self.folder.join("rabbitmq.conf")).ok()?;
        conf.lines().find_map(|line| line.strip_prefix(MQTT_LISTENER)?.parse().ok())
    }

    /// What `rabbitmqctl` makes of these words, on this node.
    pub fn rabbitmqctl(&self, words: &[&str]) -> anyhow::Result<String> {
        let done = self.launch.beside(CONTROL).args(words).output().context(CONTROL)?;
        let said = |bytes| String::from_utf8_lossy(bytes).into_owned();
        anyhow::ensure!(done.status.success(), "{}{}", said(&done.stdout), said(&done.stderr));
        Ok(said(&done.stdout))
    }
}

/// The same, and a listener with TLS, whose address is the service's.
pub(super) fn prepare_with_tls(folder: PathBuf, dice: &Dice, pair: &Pair) -> anyhow::Result<Service> {
    let mut service = prepare(folder, dice)?;
    let [port] = ports::free(dice)?;
    let conf = service.folder.join("rabbitmq.conf");
    let settings = std::fs::read_to_string(&conf)? + &tls_settings(port, pair);
    std::fs::write(&conf, settings)?;
    service.url = format!("amqps://guest:guest@localhost:{port}/%2f");
    Ok(service)
}

const MQTT_LISTENER: &str = "mqtt.listeners.tcp.local = ";

/// The same, and MQTT by RabbitMQ's plugin.
pub(super) fn prepare_with_mqtt(folder: PathBuf, dice: &Dice) -> anyhow::Result<Service> {
    let service = prepare(folder, dice)?;
    let [port] = ports::free(dice)?;
    let conf = service.folder.join("rabbitmq.conf");
    let mqtt = format!("{MQTT_LISTENER}127.0.0.1:{port}\nmqtt.allow_anonymous = false\nmqtt.exchange = amq.topic\n");
    std::fs::write(&conf, std::fs::read_to_string(&conf)? + &mqtt)?;
    std::fs::write(service.folder.join("enabled_plugins"), "[rabbitmq_management,rabbitmq_mqtt].\n")?;
    Ok(service)
}

pub(super) fn prepare(folder: PathBuf, dice: &Dice) -> anyhow::Result<Service> {
    anyhow::ensure!(Path::new(SERVER).exists(), "there is no {SERVER}: apt-get install rabbitmq-server");
    let [port, dist_port, epmd_port, management_port] = ports::free(dice)?;
    let (conf, plugins) = (folder.join("rabbitmq.conf"), folder.join("enabled_plugins"));
    std::fs::write(&conf, settings(port) + &management_settings(management_port))
        .with_context(|| conf.display().to_string())?;
    std::fs::write(&plugins, "[rabbitmq_management].\n")?;
    std::fs::write(folder.join("env.conf"), "")?;
    let launch = Launch::new(SERVER)
        .env("HOME", &folder)
        .env("RABBITMQ_NODENAME", format!("mutirao-{}@localhost", SessionId::random()))
        .env("RABBITMQ_DIST_PORT", dist_port.to_string())
        .env("ERL_EPMD_PORT", epmd_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_CONFIG_FILE", &conf)
        .env("RABBITMQ_CONF_ENV_FILE", folder.join("env.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins)
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("log"))
        .env("RABBITMQ_GENERATED_CONFIG_DIR", folder.join("generated"))
        .env("RABBITMQ_PID_FILE", folder.join("pid"))
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +A 8")
        // The script then becomes the server instead of waiting beside it, and our signals reach it.
        .env("detached", "true");
    Ok(Service {
        name: "rabbitmq",
        url: format!("amqp://guest:guest@127.0.0.1:{port}/%2f"),
        management: Some(format!("http://127.0.0.1:{management_port}")),
        port,
        beside: Some(Box::new(epmd(folder.clone(), epmd_port))),
        folder,
        launch,
        stops_on: Signal::KILL,
        // Any AMQP server begins with a method frame on channel 0.
        greeting: Greeting { say: b"AMQP\x00\x00\x09\x01".to_vec(), hear: &[1, 0, 0] },
        child: None,
    })
}

/// Started by us, since the one that a node starts for itself becomes a daemon that nobody owns.
fn epmd(folder: PathBuf, port: u16) -> Service {
    Service {
        name: "epmd",
        url: String::new(),
        management: None,
        port,
        folder,
        launch: Launch::new("epmd").args(["-port", &port.to_string(), "-address", "127.0.0.1"]),
        stops_on: Signal::KILL,
        // "Which names do you know?", answered with its own port first.
        greeting: Greeting { say: vec![0, 1, b'n'], hear: &[0, 0] },
        child: None,
        beside: None,
    }
}

fn settings(port: u16) -> String {
    format!(
        "listeners.tcp.local = 127.0.0.1:{port}\n\
         disk_free_limit.absolute = 50MB\n\
         vm_memory_high_watermark.absolute = 1GB\n\
         log.console = true\n\
         log.console.level = info\n\
         log.file = false\n"
    )
}

/// Users and permissions only: collecting figures would cost the tests' cores.
fn management_settings(port: u16) -> String {
    format!(
        "management.tcp.ip = 127.0.0.1\n\
         management.tcp.port = {port}\n\
         management_agent.disable_metrics_collector = true\n"
    )
}

fn tls_settings(port: u16, pair: &Pair) -> String {
    format!(
        "listeners.ssl.local = 127.0.0.1:{port}\n\
         ssl_options.certfile = {}\n\
         ssl_options.keyfile = {}\n\
         ssl_options.verify = verify_none\n\
         ssl_options.fail_if_no_peer_cert = false\n",
        pair.cert.display(),
        pair.key.display()
    )
}
