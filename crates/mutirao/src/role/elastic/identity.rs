//! Who a resource manager is: the id of its key and the key, kept in its folder, readable by its owner only.
//!
//! **A key is changed without a pause**, in steps of which each is kept before the next, and can be done again:
//!
//! 1. the next key is made and kept ([`begin`]);
//! 2. it is made known by the present one; asked twice, the manager has it once;
//! 3. it becomes the present one, and the former is kept as to be revoked ([`switch`]);
//! 4. requests are signed with it; the former is revoked, and forgotten ([`drop_former`]).
//!
//! Whoever dies in between finds in the folder where to go on, and at every point the present key is good.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use mutirao_client::WorkerKey;
use mutirao_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

const FILE: &str = "identity";
/// A key with which a one-time token was or is about to be spent: asked again with it, the answer is the same.
const DRAFT: &str = "identity.draft";

#[derive(Serialize, Deserialize)]
struct Kept {
    id: String,
    /// The secret key, base64.
    key: String,
    made_at: Timestamp,
    /// The key that is to take its place.
    #[serde(default)]
    next: Option<KeptKey>,
    /// A key that is still to be revoked.
    #[serde(default)]
    former: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct KeptKey {
    key: String,
    made_at: Timestamp,
}

#[derive(Clone)]
pub struct Identity {
    pub id: String,
    pub key: WorkerKey,
    pub made_at: Timestamp,
    next: Option<(WorkerKey, Timestamp)>,
    former: Option<String>,
}

impl Identity {
    /// Whether no change of its key is under way.
    pub fn is_settled(&self) -> bool {
        self.next.is_none() && self.former.is_none()
    }
}

/// What the manager is asked. Each can be asked twice.
#[async_trait]
pub trait Keys: Sync {
    /// Spends a one-time token on a key: its id.
    async fn enrol(&self, token: &str, public_key: String) -> Result<String, Failure>;

    /// Makes a further key known, signed with the present one: its id.
    async fn add(&self, present: &Identity, public_key: String) -> Result<String, Failure>;

    /// Ends a key, signed with the present one. Yes when there is no such key.
    async fn revoke(&self, present: &Identity, key: &str) -> Result<(), Failure>;
}

fn file(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

/// The identity in the folder; none when there is no such file.
pub fn load(dir: &Path) -> Result<Option<Identity>, Failure> {
    let path = file(dir);
    let unusable = |why: String| Failure::failed(format!("{}: {why}; remove it and enrol again", path.display()));
    let Some(text) = read(&path).map_err(|error| unusable(error.to_string()))? else { return Ok(None) };
    let kept: Kept = serde_json::from_str(&text).map_err(|error| unusable(error.to_string()))?;
    let key = |text: &str| WorkerKey::from_base64(text).map_err(|error| unusable(error.to_string()));
    let next = kept.next.map(|next| Ok::<_, Failure>((key(&next.key)?, next.made_at))).transpose()?;
    Ok(Some(Identity { id: kept.id, key: key(&kept.key)?, made_at: kept.made_at, next, former: kept.former }))
}

/// Spends a one-time token on a new identity, and keeps it.
pub async fn enrol(keys: &impl Keys, dir: &Path, token: &str, now: Timestamp) -> Result<Identity, Failure> {
    let path = dir.join(DRAFT);
    let drafted = read(&path).ok().flatten().and_then(|text| WorkerKey::from_base64(text.trim()).ok());
    let key = match drafted {
        Some(key) => key,
        None => {
            let key = WorkerKey::generate();
            write(dir, DRAFT, &key.to_base64())?;
            key
        }
    };
    let id = keys.enrol(token, key.public_base64()).await?;
    let identity = keep(dir, Identity { id, key, made_at: now, next: None, former: None })?;
    let _ = std::fs::remove_file(path);
    Ok(identity)
}

/// A next key, kept before anybody hears of it. One that was begun before is gone on with.
pub fn begin(dir: &Path, identity: Identity, now: Timestamp) -> Result<Identity, Failure> {
    match identity.next {
        Some(_) => Ok(identity),
        None => keep(dir, Identity { next: Some((WorkerKey::generate(), now)), ..identity }),
    }
}

/// The next key, if there is one, becomes the present one. Both are good until the former is revoked.
pub async fn switch(keys: &impl Keys, dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let Some((key, made_at)) = identity.next.clone() else { return Ok(identity) };
    // Of two formers one would be forgotten, and be good for ever.
    let identity = drop_former(keys, dir, identity).await?;
    let id = keys.add(&identity, key.public_base64()).await?;
    keep(dir, Identity { id, key, made_at, next: None, former: Some(identity.id) })
}

/// Revokes the key before the present one.
pub async fn drop_former(keys: &impl Keys, dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let Some(former) = &identity.former else { return Ok(identity) };
    keys.revoke(&identity, former).await?;
    keep(dir, Identity { former: None, ..identity })
}

fn read(path: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn keep(dir: &Path, identity: Identity) -> Result<Identity, Failure> {
    let next = identity.next.as_ref();
    let kept = Kept {
        id: identity.id.clone(),
        key: identity.key.to_base64(),
        made_at: identity.made_at,
        next: next.map(|(key, made_at)| KeptKey { key: key.to_base64(), made_at: *made_at }),
        former: identity.former.clone(),
    };
    let text = serde_json::to_string(&kept).map_err(|error| Failure::failed(error.to_string()))?;
    write(dir, FILE, &text)?;
    Ok(identity)
}

/// All of it or nothing, and never readable by others. On the disk when this returns.
fn write(dir: &Path, name: &str, text: &str) -> Result<(), Failure> {
    let path = dir.join(name);
    let write = || {
        let beside = dir.join(format!("{name}.new"));
        let _ = std::fs::remove_file(&beside);
        let mut new = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        std::fs::rename(&beside, &path)?;
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(|error: std::io::Error| Failure::failed(format!("cannot keep {}: {error}", path.display())))
}

#[cfg(test)]
mod tests;
