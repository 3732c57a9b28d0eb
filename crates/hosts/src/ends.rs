//! What sources and sinks of a host may use. Those that speak to the installation's own MQTT or RabbitMQ run where these are at
//! hand, in a manager; with an address of their own they run anywhere.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use mutirao_broker::Rabbit;
use mutirao_mqtt::Port;
use mutirao_probes::Probes;
use mutirao_tls::Trust;

#[derive(Clone)]
pub struct Ends {
    /// The installation's own MQTT listener.
    pub mqtt: Option<Port>,
    /// The installation's own RabbitMQ.
    pub amqp: Option<Arc<Rabbit>>,
    /// With which webhooks are called; says which addresses may be.
    pub web: Option<Probes>,
    /// Whom servers of other addresses are believed by.
    pub trust: Trust,
    pub files: Files,
}

/// Which files a stream may read and write on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Files {
    /// Those in this folder.
    Within(PathBuf),
    /// Any; relative ones in this folder.
    Anywhere(PathBuf),
}

impl Files {
    /// Where a path of a definition leads, if it may lead there.
    pub fn find(&self, path: &str) -> Result<PathBuf, String> {
        let (folder, anywhere) = match self {
            Files::Within(folder) => (folder, false),
            Files::Anywhere(folder) => (folder, true),
        };
        let asked = Path::new(path);
        let leaves = asked.is_absolute() || asked.components().any(|part| matches!(part, Component::ParentDir));
        let found = folder.join(asked);
        if anywhere || (!leaves && stays(&found, folder)) || asked.starts_with(folder) && stays(asked, folder) {
            return Ok(found);
        }
        Err(format!(
            "{path} is not in {}, and this host reads and writes nothing else; set streams.files=anywhere there to allow it",
            folder.display()
        ))
    }
}

/// Whether no link on the way leads out of the folder.
fn stays(path: &Path, folder: &Path) -> bool {
    if path.components().any(|part| matches!(part, Component::ParentDir)) {
        return false;
    }
    let Ok(folder) = folder.canonicalize() else { return true };
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    there.is_none_or(|there| there.starts_with(&folder) || folder.starts_with(&there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_nowhere_but_where_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("files");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink("/etc", folder.join("out")).unwrap();
        let within = Files::Within(folder.clone());
        assert_eq!(within.find("a/b.jsonl").unwrap(), folder.join("a/b.jsonl"));
        assert_eq!(within.find(folder.join("x").to_str().unwrap()).unwrap(), folder.join("x"));
        for bad in ["/etc/passwd", "../x", "a/../../x", "out/passwd"] {
            assert!(within.find(bad).is_err(), "{bad}");
        }
        assert_eq!(Files::Anywhere(folder.clone()).find("/tmp/x").unwrap(), Path::new("/tmp/x"));
    }
}
