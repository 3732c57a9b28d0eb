//! One host as people write it down, and what is wrong with it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_elastic::packing::{Labels, Layer, Market};
use serde::Deserialize;

/// Hosts of one pool.
pub const HOSTS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 40;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// What its node is called.
    pub name: String,
    /// Where ssh finds it: an address, or a name of the user's own ssh settings.
    pub address: String,
    pub port: Option<u16>,
    pub user: Option<String>,
    /// The file of a key without a passphrase; else whatever ssh finds.
    pub key: Option<PathBuf>,
    /// The file in which its host key must be; else the user's.
    pub known_hosts: Option<PathBuf>,
    #[serde(default)]
    pub unknown_key: UnknownKey,
    /// What it gives to workers; all that it has when it is not said.
    pub cpus: Option<Cpus>,
    pub memory: Option<Bytes>,
    #[serde(default)]
    pub labels: Labels,
    #[serde(default = "cloud")]
    pub layer: Layer,
    /// By the hour, in whatever money is counted in.
    #[serde(default)]
    pub price: f64,
    #[serde(default)]
    pub kind: Terms,
    /// Where everything is kept there; below the user's home unless it begins with a slash.
    #[serde(default = "folder")]
    pub dir: String,
}

/// What becomes of a host whose key nobody has seen. One whose key has changed is always refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownKey {
    #[default]
    Refuse,
    Accept,
}

/// On which terms it is had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Terms {
    #[default]
    OnDemand,
    Reserved,
    Spot,
}

impl Terms {
    pub fn as_str(self) -> &'static str {
        match self {
            Terms::OnDemand => "on-demand",
            Terms::Reserved => "reserved",
            Terms::Spot => "spot",
        }
    }

    pub fn market(self) -> Market {
        match self {
            Terms::OnDemand => Market::OnDemand,
            Terms::Reserved => Market::Reserved,
            Terms::Spot => Market::Spot,
        }
    }
}

fn cloud() -> Layer {
    Layer::Cloud
}

fn folder() -> String {
    ".mutirao".into()
}

impl HostSpec {
    pub fn price_micros(&self) -> u64 {
        (self.price * 1e6).round() as u64
    }

    fn check(&self) -> Result<(), String> {
        let plain = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphanumeric())
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if !plain(&self.name) || self.name.len() > NAME_BYTES_MAX {
            return Err(format!("\"{}\" is not a name: write letters, digits, - _ and .", self.name));
        }
        let name = &self.name;
        // What begins with a dash would be an option of ssh.
        let word = |text: &str| {
            !text.is_empty() && !text.starts_with('-') && !text.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        if !word(&self.address) || self.address.contains('@') {
            return Err(format!("{name}: \"{}\" is not an address; the user is a field of its own", self.address));
        }
        if let Some(user) = self.user.as_ref().filter(|user| !word(user)) {
            return Err(format!("{name}: \"{user}\" is not a user"));
        }
        if self.dir.is_empty() || self.dir.contains(|c: char| c.is_control()) || self.dir.starts_with('~') {
            return Err(format!("{name}: dir is a folder, below the user's home unless it begins with /"));
        }
        if !(0.0..1e9).contains(&self.price) {
            return Err(format!("{name}: a price is what an hour costs, 0 or more"));
        }
        if self.cpus.is_some_and(|cpus| cpus.milli == 0) || self.memory.is_some_and(|memory| memory.0 == 0) {
            return Err(format!("{name}: cpus and memory are more than none; leave out what is not limited"));
        }
        Ok(())
    }
}

/// The hosts of a pool, or the first thing that is wrong with them.
pub fn read(value: serde_json::Value) -> Result<Vec<HostSpec>, String> {
    let serde_json::Value::Array(all) = value else { return Err("it is not a list of hosts".into()) };
    if all.len() > HOSTS_MAX {
        return Err(format!("{} hosts are more than {HOSTS_MAX}", all.len()));
    }
    let mut names = BTreeSet::new();
    let mut hosts = Vec::with_capacity(all.len());
    for (n, one) in all.into_iter().enumerate() {
        let host: HostSpec = serde_json::from_value(one).map_err(|error| format!("host {}: {error}", n + 1))?;
        host.check().map_err(|why| format!("host {}: {why}", n + 1))?;
        if !names.insert(host.name.clone()) {
            return Err(format!("host {}: {} is there twice", n + 1, host.name));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_is_its_name_and_address_and_what_is_said_beside() {
        let hosts = read(json!([
            { "name": "one", "address": "10.0.0.1" },
            { "name": "two", "address": "two.lab", "port": 2222, "user": "batch", "cpus": "2", "memory": "1GiB",
              "labels": { "disk": "ssd" }, "layer": "fog", "price": 0.042, "kind": "spot", "unknown_key": "accept" },
        ]));
        let hosts = hosts.unwrap();
        assert_eq!((hosts[0].dir.as_str(), hosts[0].layer, hosts[0].price_micros()), (".mutirao", Layer::Cloud, 0));
        assert_eq!((hosts[1].price_micros(), hosts[1].kind.market()), (42_000, Market::Spot));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (wrong, words) in [
            (json!({ "name": "x" }), "not a list"),
            (json!([{ "name": "x" }]), "host 1: missing field `address`"),
            (json!([{ "name": "x y", "address": "a" }]), "not a name"),
            (json!([{ "name": "x", "address": "-oProxyCommand=evil" }]), "not an address"),
            (json!([{ "name": "x", "address": "me@there" }]), "a field of its own"),
            (json!([{ "name": "x", "address": "a", "user": "-l" }]), "not a user"),
            (json!([{ "name": "x", "address": "a" }, { "name": "x", "address": "b" }]), "host 2: x is there twice"),
            (json!([{ "name": "x", "address": "a", "cpu": 2 }]), "unknown field `cpu`"),
            (json!([{ "name": "x", "address": "a", "price": -1 }]), "0 or more"),
        ] {
            let why = read(wrong.clone()).unwrap_err();
            assert!(why.contains(words), "{wrong}: {why}");
        }
    }
}
