//! Who a resource manager is: the id of its key and the key, kept in its folder, readable by its owner only. A key is
//! changed without a pause: the second is made known by the first, kept, and only then is the first revoked.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mutirao_client::{Client, WorkerKey};
use mutirao_core::auth::{Enrol, NewKey};
use mutirao_core::{Clock, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const FILE: &str = "identity";

#[derive(Serialize, Deserialize)]
struct Kept {
    id: String,
    /// The secret key, base64.
    key: String,
    made_at: Timestamp,
    /// A key that is still to be revoked.
    #[serde(default)]
    former: Option<String>,
}

#[derive(Clone)]
pub struct Identity {
    pub id: String,
    pub key: WorkerKey,
    pub made_at: Timestamp,
    former: Option<String>,
}

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
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
    Ok(Some(Identity { id: kept.id, key, made_at: kept.made_at, former: kept.former }))
}

/// Spends a one-time token on a new identity, and keeps it.
pub async fn enrol(client: &Client, dir: &Path, name: String, token: String) -> Result<Identity, Failure> {
    let key = WorkerKey::generate();
    let enrolled = client.enrol_elastic(&Enrol { token, public_key: key.public_base64(), name }).await?;
    keep(dir, Identity { id: enrolled.key, key, made_at: SystemClock.now(), former: None })
}

/// A second key, made known by the first. Both are good until the first is revoked.
pub async fn rotate(client: &Client, dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let key = WorkerKey::generate();
    let added = client.add_elastic_key(&NewKey { public_key: key.public_base64() }).await?;
    keep(dir, Identity { id: added.key, key, made_at: SystemClock.now(), former: Some(identity.id) })
}

/// Revokes the key before this one, asking with this one.
pub async fn drop_former(client: &Client, dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let Some(former) = &identity.former else { return Ok(identity) };
    client.revoke_elastic_key(former).await?;
    keep(dir, Identity { former: None, ..identity })
}

/// All of it or nothing, and never readable by others.
fn keep(dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let wrong = |error: std::io::Error| Failure::failed(format!("cannot keep {}: {error}", file(dir).display()));
    let kept = Kept {
        id: identity.id.clone(),
        key: identity.key.to_base64(),
        made_at: identity.made_at,
        former: identity.former.clone(),
    };
    let write = || {
        let beside = dir.join(format!("{FILE}.new"));
        let _ = std::fs::remove_file(&beside);
        let mut new = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        new.write_all(serde_json::to_string(&kept)?.as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&beside, file(dir))
    };
    write().map_err(wrong)?;
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_kept_for_its_owner_only_and_read_back_with_the_one_that_is_to_be_revoked() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).unwrap().is_none());
        let made =
            Identity { id: "e2".into(), key: WorkerKey::generate(), made_at: Timestamp(5), former: Some("e1".into()) };
        keep(dir.path(), made.clone()).unwrap();
        assert_eq!(std::fs::metadata(file(dir.path())).unwrap().permissions().mode() & 0o777, 0o600);
        let read = load(dir.path()).unwrap().unwrap();
        assert_eq!((read.id, read.former, read.made_at), (made.id, made.former, made.made_at));
    }
}
