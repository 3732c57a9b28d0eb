//! What a hook is told, and what it answers. Told: a line of JSON on stdin, and the same in the environment for those who write
//! in shell. Answered, by the list hook alone: a line of JSON for each machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mutirao_elastic::packing::NodeName;
use serde::{Deserialize, Serialize};

use super::books::Listed;
use super::spec::{KindSpec, MACHINES_MAX};

/// What one listing may print.
pub const LISTING_BYTES_MAX: usize = 1 << 20;
const LEAVING_CHARS_MAX: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Create,
    List,
    Destroy,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::List => "list",
            Verb::Destroy => "destroy",
        }
    }
}

/// What a hook is told.
#[derive(Clone, Debug, Serialize)]
pub struct Told<'a> {
    #[serde(rename = "do")]
    pub verb: Verb,
    /// What the names of all machines of this installation and these hooks begin with.
    pub prefix: &'a str,
    /// Where the manager is, as seen from here. Nobody needs it to come in: workers are given their way.
    pub manager: &'a str,
    /// The program that is asking, for hooks that start a node with it.
    pub program: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Order<'a>>,
}

/// What a machine is to be like.
#[derive(Clone, Debug, Serialize)]
pub struct Order<'a> {
    pub kind: &'a str,
    pub cpus: f64,
    pub memory_mib: u64,
    pub terms: &'static str,
    pub labels: &'a BTreeMap<String, String>,
    /// The public key that its user is to let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<&'a str>,
}

impl<'a> Order<'a> {
    pub fn of(kind: &'a KindSpec, ssh_key: Option<&'a str>) -> Self {
        let memory_mib = kind.memory.0 >> 20;
        let terms = kind.terms.as_str();
        Self {
            kind: &kind.name,
            cpus: f64::from(kind.cpus.milli) / 1e3,
            memory_mib,
            terms,
            labels: &kind.labels,
            ssh_key,
        }
    }
}

impl Told<'_> {
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("HOOK_DO", self.verb.as_str().to_owned()),
            ("HOOK_PREFIX", self.prefix.to_owned()),
            ("HOOK_MANAGER", self.manager.to_owned()),
            ("HOOK_PROGRAM", self.program.clone()),
        ];
        all.extend(self.name.iter().map(|name| ("HOOK_NAME", name.clone())));
        if let Some(machine) = &self.machine {
            let labels: Vec<String> = machine.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            all.extend([
                ("HOOK_KIND", machine.kind.to_owned()),
                ("HOOK_CPUS", machine.cpus.to_string()),
                ("HOOK_MEMORY_MIB", machine.memory_mib.to_string()),
                ("HOOK_TERMS", machine.terms.to_owned()),
                ("HOOK_LABELS", labels.join(",")),
            ]);
            all.extend(machine.ssh_key.iter().map(|key| ("HOOK_SSH_KEY", (*key).to_owned())));
        }
        all
    }
}

/// Where a machine's agent is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Reached by ssh; an agent is brought there.
    Address { address: String, port: Option<u16>, user: Option<String>, host_key: Option<String> },
    /// The folder of an agent on this machine, which the hook has started.
    Folder(PathBuf),
}

/// A machine, as the list hook says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    kind: Option<String>,
    address: Option<String>,
    port: Option<u16>,
    user: Option<String>,
    host_key: Option<String>,
    folder: Option<PathBuf>,
    leaving: Option<Leaving>,
}

/// A spot notice.
#[derive(Deserialize)]
#[serde(untagged)]
enum Leaving {
    YesOrNo(bool),
    At(String),
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

/// The machines of these hooks, or the first thing that is wrong with what they printed. Whatever has another prefix is
/// somebody else's, and passed over.
pub fn read(printed: &[u8], prefix: &str) -> Result<Vec<Listed>, String> {
    let printed = std::str::from_utf8(printed).map_err(|_| "it printed what is no text".to_owned())?;
    let mut all: BTreeMap<NodeName, Listed> = BTreeMap::new();
    for (n, line) in printed.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| format!("line {}: {why}", n + 1);
        let unread = |error: serde_json::Error| {
            let (why, shown) = (error.to_string(), short(line));
            // The place within a line says nothing that the line does not.
            let why = why.split(" at line ").next().unwrap_or_default().to_owned();
            wrong(format!("{why} in {shown}"))
        };
        let Name { name } = serde_json::from_str(line).map_err(unread)?;
        let Some(node) = name.strip_prefix(prefix).filter(|node| !node.is_empty()) else { continue };
        let read: Line = serde_json::from_str(line).map_err(unread)?;
        let listed = listed(node, read).map_err(wrong)?;
        if all.insert(listed.node.clone(), listed).is_some() {
            return Err(wrong(format!("{} is there twice", short(&name))));
        }
        if all.len() > MACHINES_MAX as usize {
            return Err(wrong(format!("more than {MACHINES_MAX} machines")));
        }
    }
    Ok(all.into_values().collect())
}

fn listed(node: &str, line: Line) -> Result<Listed, String> {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !plain(node) || node.len() > 63 {
        return Err(format!("{} is not a name that was given out", short(&line.name)));
    }
    let place = match (line.address, line.folder) {
        (Some(_), Some(_)) => {
            return Err(format!("{node} has an address and a folder; one of them is how it is reached"));
        }
        (Some(address), None) => {
            let word = |text: &str| {
                !text.is_empty()
                    && !text.starts_with('-')
                    && !text.contains(|c: char| c.is_whitespace() || c.is_control())
            };
            if !word(&address) || address.contains('@') {
                return Err(format!(
                    "{node}: \"{}\" is not an address; the user is a field of its own",
                    short(&address)
                ));
            }
            if let Some(user) = line.user.as_ref().filter(|user| !word(user)) {
                return Err(format!("{node}: \"{}\" is not a user", short(user)));
            }
            let host_key = line.host_key.map(|key| host_key(node, &key)).transpose()?;
            Some(Place::Address { address, port: line.port, user: line.user, host_key })
        }
        (None, Some(folder)) if !folder.is_absolute() => {
            return Err(format!("{node}: a folder begins with /"));
        }
        (None, Some(folder)) => Some(Place::Folder(folder)),
        (None, None) => None,
    };
    let leaving = match line.leaving {
        None | Some(Leaving::YesOrNo(false)) => None,
        Some(Leaving::YesOrNo(true)) => Some("soon".into()),
        Some(Leaving::At(at)) => Some(at.chars().filter(|c| !c.is_control()).take(LEAVING_CHARS_MAX).collect()),
    };
    Ok(Listed { node: NodeName(node.into()), kind: line.kind, place, leaving })
}

/// `ssh-ed25519 AAAA… comment`, without the comment.
fn host_key(node: &str, key: &str) -> Result<String, String> {
    let mut words = key.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some(sort), Some(body)) if sort.starts_with("ssh-") || sort.starts_with("ecdsa-") => {
            Ok(format!("{sort} {body}"))
        }
        _ => Err(format!("{node}: host_key is a line as in /etc/ssh/ssh_host_ed25519_key.pub")),
    }
}

/// As much of it as is shown.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "mutirao-ab-hooks-";

    fn said(lines: &str) -> Result<Vec<Listed>, String> {
        read(lines.as_bytes(), PREFIX)
    }

    #[test]
    fn machines_of_others_are_passed_over_whatever_else_is_said_of_them() {
        let lines = r#"
            {"name":"mutirao-ab-hooks-small-1-1","address":"10.0.0.5","port":2222,"host_key":"ssh-ed25519 AAAA root@it"}
            {"name":"mutirao-cd-hooks-small-1-1","shoe":"left"}
            {"name":"db"}
            {"name":"mutirao-ab-hooks-small-1-2","kind":"small","folder":"/tmp/x","leaving":"2026-01-01T00:00:00Z"}
            {"name":"mutirao-ab-hooks-small-1-3","leaving":true}"#;
        let all = said(lines).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.node.0.as_str()).collect();
        assert_eq!(names, ["small-1-1", "small-1-2", "small-1-3"]);
        let host_key = Some("ssh-ed25519 AAAA".into());
        assert_eq!(
            all[0].place,
            Some(Place::Address { address: "10.0.0.5".into(), port: Some(2222), user: None, host_key })
        );
        assert_eq!(
            (all[1].leaving.as_deref(), all[2].leaving.as_deref()),
            (Some("2026-01-01T00:00:00Z"), Some("soon"))
        );
        assert_eq!(all[2].place, None, "it is on its way");
    }

    #[test]
    fn what_is_no_listing_is_told_in_one_line_that_shows_it() {
        for (lines, words) in [
            ("Traceback (most recent call last):", "line 1: expected value in Traceback"),
            (
                r#"{"name":"db"}
{"nam":"x"}"#,
                "line 2: missing field `name`",
            ),
            (r#"{"name":"mutirao-ab-hooks-a","adress":"10.0.0.5"}"#, "unknown field `adress`"),
            (r#"{"name":"mutirao-ab-hooks-a","address":"-oProxyCommand=evil"}"#, "is not an address"),
            (r#"{"name":"mutirao-ab-hooks-a","address":"a","user":"-l"}"#, "is not a user"),
            (r#"{"name":"mutirao-ab-hooks-a","address":"a","host_key":"x"}"#, "host_key is a line"),
            (r#"{"name":"mutirao-ab-hooks-a","address":"a","folder":"/a"}"#, "has an address and a folder"),
            (r#"{"name":"mutirao-ab-hooks-a","folder":"a"}"#, "a folder begins with /"),
            (r#"{"name":"mutirao-ab-hooks-a","port":70000}"#, "70000"),
            (r#"{"name":"mutirao-ab-hooks-../x"}"#, "is not a name that was given out"),
            (
                "{\"name\":\"mutirao-ab-hooks-a\"}\n{\"name\":\"mutirao-ab-hooks-a\"}",
                "line 2: mutirao-ab-hooks-a is there twice",
            ),
        ] {
            let why = said(lines).unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{lines}: {why}");
        }
        assert!(read(b"\xff", PREFIX).is_err());
        assert_eq!(said("").unwrap(), [], "none is an answer");
    }

    #[test]
    fn a_hook_is_told_the_same_by_both_ways() {
        let spec = r#"{"name":"small","cpus":"1.5","memory":"2GiB","labels":{"a":"b"},"terms":"spot"}"#;
        let kind: KindSpec = serde_json::from_str(spec).unwrap();
        let told = Told {
            verb: Verb::Create,
            prefix: PREFIX,
            manager: "http://127.0.0.1:7070",
            program: "/bin/mutirao".into(),
            name: Some("mutirao-ab-hooks-small-1-1".into()),
            machine: Some(Order::of(&kind, Some("ssh-ed25519 AAAA"))),
        };
        let line: serde_json::Value = serde_json::from_slice(&told.line()).unwrap();
        assert_eq!(
            (line["do"].as_str(), line["memory_mib"].as_u64(), line["terms"].as_str()),
            (Some("create"), Some(2048), Some("spot"))
        );
        assert_eq!((line["cpus"].as_f64(), line["ssh_key"].as_str()), (Some(1.5), Some("ssh-ed25519 AAAA")));
        let environment: BTreeMap<_, _> = told.environment().into_iter().collect();
        assert_eq!((environment["HOOK_CPUS"].as_str(), environment["HOOK_LABELS"].as_str()), ("1.5", "a=b"));
        assert_eq!(environment["HOOK_NAME"], line["name"]);
    }
}
