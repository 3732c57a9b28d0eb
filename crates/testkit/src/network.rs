//! Real networks for tests: namespaces of the kernel, joined by virtual cables, cut without a sound. The manager stays in
//! the machine's own namespace; workers live in one of their own, and what fronts the services in another:
//!
//! ```text
//!   manager (this namespace) ──── workers
//!            └──── services ────────┘
//! ```
//!
//! Manager and workers reach a service by the same address, each over a cable of its own: the manager tells workers where
//! the broker is.
//!
//! A cut drops packets both ways, so nobody is told: connections hang as they do when a cable is pulled. Needs root;
//! never touches an address, route or rule of the machine's own namespace beyond its ends of the cables.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::AsFd;
use std::process::Command;

use anyhow::Context;
use mutirao_core::Dice;

use crate::proxy::Proxy;

/// Two whose connection can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    ManagerAndWorkers,
    /// By the address that [`Network::front`] gave.
    ManagerAnd(SocketAddr),
    WorkersAnd(SocketAddr),
}

/// The namespaces and cables of one test. Gone on drop.
#[derive(Debug)]
pub struct Network {
    /// Part of every name, and the second and third byte of every address.
    number: u16,
    fronts: Vec<Proxy>,
}

impl Network {
    /// `None`, and a word about it, where namespaces cannot be made.
    pub fn lay(dice: &Dice) -> Option<Network> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: hosts and cables are network namespaces, which need root; run ./scripts/test as root");
            return None;
        }
        remove_orphans();
        match Self::try_lay(dice) {
            Ok(network) => Some(network),
            Err(error) => {
                eprintln!("skipped: hosts and cables are network namespaces, which cannot be made here: {error:#}");
                None
            }
        }
    }

    fn try_lay(dice: &Dice) -> anyhow::Result<Network> {
        let network = Network { number: dice.u64() as u16, fronts: Vec::new() };
        let (workers, services) = (network.workers_namespace(), network.services_namespace());
        for name in [&workers, &services] {
            run(&["ip", "netns", "add", name])?;
            run(&["ip", "-n", name, "link", "set", "lo", "up"])?;
        }
        network.cable(0, None, Some(&workers))?;
        network.cable(1, None, Some(&services))?;
        network.cable(2, Some(&workers), Some(&services))?;
        let (front, far) = (network.address(1, 2).to_string(), network.address(2, 2).to_string());
        run(&["ip", "-n", &workers, "route", "add", &front, "via", &far])?;
        Ok(network)
    }

    /// Joins two namespaces; the near end has the lower address.
    fn cable(&self, n: u8, near: Option<&str>, far: Option<&str>) -> anyhow::Result<()> {
        let end = |side: char| format!("mt{:04x}{n}{side}", self.number);
        let (a, b) = (end('a'), end('b'));
        run(&["ip", "link", "add", &a, "type", "veth", "peer", "name", &b])?;
        for (device, namespace, host) in [(&a, near, 1), (&b, far, 2)] {
            if let Some(namespace) = namespace {
                run(&["ip", "link", "set", device, "netns", namespace])?;
            }
            let within: &[&str] = &namespace.map_or(vec!["ip"], |name| vec!["ip", "-n", name]);
            let address = format!("{}/30", self.address(n, host));
            run(&[within, &["addr", "add", &address, "dev", device]].concat())?;
            run(&[within, &["link", "set", device, "up"]].concat())?;
        }
        Ok(())
    }

    /// 10.128.0.0/9 belongs to nobody here; each cable has four addresses of it.
    fn address(&self, cable: u8, host: u8) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, 128 | high, low, cable * 4 + host)
    }

    fn workers_namespace(&self) -> String {
        format!("mutirao-{}-{:04x}-w", std::process::id(), self.number)
    }

    fn services_namespace(&self) -> String {
        format!("mutirao-{}-{:04x}-s", std::process::id(), self.number)
    }

    /// Where the manager listens, for workers to reach it.
    pub fn manager(&self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// Puts a service of this machine into the network, for the manager and for workers.
    pub fn front(&mut self, service: SocketAddr) -> anyhow::Result<SocketAddr> {
        let listener = listen_in(&self.services_namespace(), SocketAddrV4::new(self.address(1, 2), 0))?;
        let proxy = Proxy::listening(listener, service)?;
        let address = proxy.address();
        self.fronts.push(proxy);
        Ok(address)
    }

    /// A command that runs among the workers.
    pub fn among_workers(&self, command: &Command) -> Command {
        moved_into(&self.workers_namespace(), command)
    }

    /// From now on nothing passes between the two, either way.
    pub fn cut(&self, between: Between) -> anyhow::Result<()> {
        self.rule("-I", between)
    }

    pub fn mend(&self, between: Between) -> anyhow::Result<()> {
        self.rule("-D", between)
    }

    fn rule(&self, verb: &str, between: Between) -> anyhow::Result<()> {
        let (namespace, other, port) = match between {
            Between::ManagerAndWorkers => (self.workers_namespace(), self.address(0, 1), None),
            Between::ManagerAnd(front) => (self.services_namespace(), self.address(1, 1), Some(front.port())),
            Between::WorkersAnd(front) => (self.services_namespace(), self.address(2, 1), Some(front.port())),
        };
        for (chain, peer, side) in [("INPUT", "-s", "--dport"), ("OUTPUT", "-d", "--sport")] {
            let other = other.to_string();
            let mut rule =
                vec!["ip", "netns", "exec", &namespace, "iptables", "-w", verb, chain, "-p", "tcp", peer, &other];
            let port = port.map(|port| port.to_string());
            if let Some(port) = &port {
                rule.extend([side, port]);
            }
            rule.extend(["-j", "DROP"]);
            run(&rule)?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.fronts.clear();
        for namespace in [self.workers_namespace(), self.services_namespace()] {
            // Its cables go with it. What cannot be removed is found by the next test.
            let _ = run(&["ip", "netns", "del", &namespace]);
        }
    }
}

/// The same command in a namespace.
pub(crate) fn moved_into(namespace: &str, command: &Command) -> Command {
    let mut moved = Command::new("ip");
    moved.args(["netns", "exec", namespace]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => moved.env(name, value),
            None => moved.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        moved.current_dir(folder);
    }
    moved
}

/// A socket belongs to the namespace of the thread that made it, whoever uses it afterwards.
fn listen_in(namespace: &str, at: SocketAddrV4) -> anyhow::Result<TcpListener> {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).context("/run/netns")?;
    let listen = move || -> anyhow::Result<TcpListener> {
        use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(TcpListener::bind(at)?)
    };
    std::thread::spawn(listen).join().map_err(|_| anyhow::anyhow!("a thread broke"))?
}

/// Namespaces of processes that were killed before they could clear up.
pub(crate) fn remove_orphans() {
    for entry in std::fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("mutirao-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            // Another test may be at it as well.
            let _ = run(&["ip", "netns", "del", &name]);
        }
    }
}

pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output().with_context(|| words.join(" "))?;
    anyhow::ensure!(output.status.success(), "{}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;
    use crate::proxy::tests::{echo, echoes};

    #[test]
    fn a_cut_says_nothing_and_a_mended_cable_brings_what_was_under_way() {
        let Some(mut network) = Network::lay(&Dice::from_os()) else { return };
        let front = network.front(echo()).unwrap();
        let other = network.front(echo()).unwrap();
        let mut stream = TcpStream::connect(front).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        assert!(echoes(&stream));
        network.cut(Between::ManagerAnd(front)).unwrap();
        stream.write_all(b"late").unwrap();
        let mut back = [0; 4];
        assert!(stream.read(&mut back).is_err(), "neither an answer nor an end");
        assert!(echoes(&TcpStream::connect(other).unwrap()), "others are not cut off");
        network.mend(Between::ManagerAnd(front)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"late");
        let hello = format!("echo > /dev/tcp/{}/{}", front.ip(), front.port());
        let mut bash = Command::new("bash");
        let bash = bash.args(["-c", &hello]);
        assert!(network.among_workers(bash).status().unwrap().success());
        network.cut(Between::WorkersAnd(front)).unwrap();
        assert!(echoes(&stream), "the manager is not cut off");
        let mut timeout = Command::new("timeout");
        timeout.arg("2").arg(bash.get_program()).args(bash.get_args());
        assert!(!network.among_workers(&timeout).status().unwrap().success(), "workers still reach it");
    }
}
