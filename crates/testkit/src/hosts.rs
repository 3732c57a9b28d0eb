//! Hosts of an edge, a fog and a cloud, for tests: a network namespace each, with one cable to the machine's own, where the
//! manager is. All reach the manager by the same address.
//!
//! ```text
//!   manager (this namespace) ──── edge
//!            ├──── fog
//!            └──── cloud
//! ```
//!
//! A cut drops packets both ways, so nobody is told; a bad cable loses a share of them, each by itself. Needs root; never
//! touches an address, route or rule of the machine's own namespace beyond its ends of the cables.

use std::net::Ipv4Addr;
use std::process::Command;

use mutirao_core::Dice;

use crate::network::{moved_into, remove_orphans, run};

/// The namespaces and cables of one test. Gone on drop.
#[derive(Debug)]
pub struct Hosts {
    /// Part of every name, and the second and third byte of every address.
    number: u16,
    names: Vec<&'static str>,
}

impl Hosts {
    /// `None`, and a word about it, where namespaces cannot be made. At most sixty.
    pub fn lay(dice: &Dice, names: &[&'static str]) -> Option<Hosts> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: hosts and cables are network namespaces, which need root; run ./scripts/test as root");
            return None;
        }
        remove_orphans();
        let hosts = Hosts { number: dice.u64() as u16, names: names.to_vec() };
        match hosts.join_up() {
            Ok(()) => Some(hosts),
            Err(error) => {
                eprintln!("skipped: hosts and cables are network namespaces, which cannot be made here: {error:#}");
                None
            }
        }
    }

    fn join_up(&self) -> anyhow::Result<()> {
        for (n, name) in self.names.iter().enumerate() {
            let (namespace, cable) = (self.namespace(name), n as u8);
            let end = |side: char| format!("mh{:04x}{n}{side}", self.number);
            let (near, far) = (end('a'), end('b'));
            run(&["ip", "netns", "add", &namespace])?;
            run(&["ip", "-n", &namespace, "link", "set", "lo", "up"])?;
            run(&["ip", "link", "add", &near, "type", "veth", "peer", "name", &far])?;
            run(&["ip", "link", "set", &far, "netns", &namespace])?;
            let addresses = [1, 2].map(|end| format!("{}/30", self.address(cable, end)));
            run(&["ip", "addr", "add", &addresses[0], "dev", &near])?;
            run(&["ip", "link", "set", &near, "up"])?;
            run(&["ip", "-n", &namespace, "addr", "add", &addresses[1], "dev", &far])?;
            run(&["ip", "-n", &namespace, "link", "set", &far, "up"])?;
            if n > 0 {
                let (manager, via) = (self.manager().to_string(), self.address(cable, 1).to_string());
                run(&["ip", "-n", &namespace, "route", "add", &manager, "via", &via])?;
            }
        }
        Ok(())
    }

    fn namespace(&self, host: &str) -> String {
        format!("mutirao-{}-{:04x}-{host}", std::process::id(), self.number)
    }

    /// 10.0.0.0/9 belongs to nobody here; each cable has four addresses of it.
    fn address(&self, cable: u8, end: u8) -> Ipv4Addr {
        let [high, low] = self.number.to_be_bytes();
        Ipv4Addr::new(10, high & 127, low, cable * 4 + end)
    }

    /// Where the manager listens, for all to reach it.
    pub fn manager(&self) -> Ipv4Addr {
        self.address(0, 1)
    }

    /// Where a host is reached.
    pub fn host(&self, host: &str) -> Ipv4Addr {
        let cable = self.names.iter().position(|name| *name == host).unwrap_or_else(|| panic!("no host {host}"));
        self.address(cable as u8, 2)
    }

    /// A command that runs on a host.
    pub fn on(&self, host: &str, command: &Command) -> Command {
        moved_into(&self.namespace(host), command)
    }

    /// From now on nothing passes to or from a host.
    pub fn cut(&self, host: &str) -> anyhow::Result<()> {
        self.rule(host, "-I", &[])
    }

    pub fn mend(&self, host: &str) -> anyhow::Result<()> {
        self.rule(host, "-D", &[])
    }

    /// From now on this share of the packets to and from a host is lost, from 0 to 1.
    pub fn lose(&self, host: &str, share: f64) -> anyhow::Result<()> {
        let share = share.to_string();
        self.rule(host, "-I", &["-m", "statistic", "--mode", "random", "--probability", &share])
    }

    fn rule(&self, host: &str, verb: &str, when: &[&str]) -> anyhow::Result<()> {
        let namespace = self.namespace(host);
        for (chain, side) in [("INPUT", "-i"), ("OUTPUT", "-o")] {
            let rule = ["ip", "netns", "exec", &namespace, "iptables", "-w", verb, chain, "!", side, "lo"];
            run(&[&rule[..], when, &["-j", "DROP"]].concat())?;
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Its cable goes with it. What cannot be removed is found by the next test.
            let _ = run(&["ip", "netns", "del", &self.namespace(name)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_reach_the_manager_by_one_address_until_they_are_cut_off_and_a_bad_cable_only_takes_longer() {
        let Some(hosts) = Hosts::lay(&Dice::from_os(), &["edge", "cloud"]) else { return };
        let listener = std::net::TcpListener::bind((hosts.manager(), 0)).unwrap();
        let hello = format!("echo > /dev/tcp/{}/{}", hosts.manager(), listener.local_addr().unwrap().port());
        let greets = |host: &str, seconds: &str| {
            let mut bash = Command::new("timeout");
            bash.args([seconds, "bash", "-c", &hello]);
            hosts.on(host, &bash).stderr(std::process::Stdio::null()).status().unwrap().success()
        };
        assert!(greets("edge", "20") && greets("cloud", "20"));
        hosts.cut("cloud").unwrap();
        assert!(greets("edge", "20"), "the others are not cut off");
        assert!(!greets("cloud", "2"));
        hosts.mend("cloud").unwrap();
        hosts.lose("cloud", 0.3).unwrap();
        assert!(greets("cloud", "60"));
    }
}
