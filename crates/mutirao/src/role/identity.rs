//! Who a worker is: its id and key, kept in its folder, readable by its owner only. Made once, by enrolling.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mutirao_client::{Client, WorkerKey};
use mutirao_core::auth::{Enrol, Enrolled};
use mutirao_core::check::Kinds;
use mutirao_core::{QueueName, WorkerId};
use serde::{Deserialize, Serialize};

use crate::failure::{Exit, Failure};

const FILE: &str = "identity";

#[derive(Serialize, Deserialize)]
struct Kept {
    worker: WorkerId,
    queue: QueueName,
    /// The kinds of checks it was let in for, if it makes checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checks: Option<Kinds>,
    /// Whether it was let in as a host of streams.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    streams: bool,
    /// The secret key, base64.
    key: String,
}

pub struct Identity {
    pub worker: WorkerId,
    pub queue: QueueName,
    /// Of a checker.
    pub checks: Option<Kinds>,
    /// It is that of a host of streams.
    pub streams: bool,
    pub key: WorkerKey,
}

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

pub fn is_there(dir: &Path) -> bool {
    file(dir).is_file()
}

/// The identity in the folder; none when there is no such file.
pub fn load(dir: &Path) -> Result<Option<Identity>, Failure> {
    let path = file(dir);
    let unusable = |why: String| Failure::failed(format!("{}: {why}; remove it and enrol again", path.display()));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(error.to_string())),
    };
    let kept: Kept = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    let key = WorkerKey::from_base64(&kept.key).map_err(|error| unusable(error.to_string()))?;
    let Kept { worker, queue, checks, streams, .. } = kept;
    Ok(Some(Identity { worker, queue, checks, streams, key }))
}

/// Spends a one-time token on a new identity, and keeps it. A token for another queue is not spent.
pub async fn enrol(
    client: &Client,
    dir: &Path,
    name: String,
    queue: Option<&QueueName>,
    token: String,
) -> Result<Identity, Failure> {
    let key = WorkerKey::generate();
    let enrolled = client.enrol(&Enrol { token, public_key: key.public_base64(), name }, queue).await?;
    let queue = enrolled.queue.parse().map_err(|error: mutirao_core::id::BadId| Failure::failed(error.to_string()))?;
    let Enrolled { worker, checks, streams, .. } = enrolled;
    let identity = Identity { worker, queue, checks, streams, key };
    keep(dir, &identity).map_err(|error| Failure::failed(format!("cannot keep {}: {error}", file(dir).display())))?;
    Ok(identity)
}

fn keep(dir: &Path, identity: &Identity) -> std::io::Result<()> {
    let kept = Kept {
        worker: identity.worker.clone(),
        queue: identity.queue.clone(),
        checks: identity.checks.clone(),
        streams: identity.streams,
        key: identity.key.to_base64(),
    };
    keep_secret(&file(dir), &serde_json::to_string(&kept)?)
}

/// In place of what was there: all of it or nothing, and never readable by others.
pub fn keep_secret(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let _ = std::fs::remove_file(&beside);
    let mut new = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    new.write_all(text.as_bytes())?;
    new.sync_all()?;
    std::fs::rename(&beside, path)
}

/// For an identity that the manager does not know: the next start enrols anew.
pub fn forget(dir: &Path) {
    let _ = std::fs::remove_file(file(dir));
}

/// The remedy for a worker that nobody let in.
pub fn none_yet(dir: &Path) -> Failure {
    let line = format!(
        "this worker is not enrolled ({} has no identity); make a one-time token with `mutirao worker invite` and set \
         MUTIRAO_ENROL_TOKEN",
        dir.display()
    );
    Failure::new(Exit::NotAllowed, line)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_identity_is_kept_for_its_owner_only_and_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).unwrap().is_none());
        let (worker, queue) = (WorkerId("w1".into()), QueueName::default());
        let made = Identity { worker, queue, checks: None, streams: false, key: WorkerKey::generate() };
        keep(dir.path(), &made).unwrap();
        keep(dir.path(), &made).unwrap();
        let mode = std::fs::metadata(file(dir.path())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = load(dir.path()).unwrap().unwrap();
        assert_eq!((read.worker, read.key.public_base64()), (made.worker, made.key.public_base64()));
        forget(dir.path());
        assert!(!is_there(dir.path()));
    }

    #[test]
    fn a_broken_identity_names_its_file_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(file(dir.path()), "{").unwrap();
        let Err(Failure::Said { line, .. }) = load(dir.path()) else { panic!("read rubbish") };
        assert!(line.contains("identity") && line.contains("enrol again"), "{line}");
    }
}
