//! Resource managers: let in by a one-time token, each with keys of its own that it changes without a pause, by adding a
//! second one signed with the first and then revoking the first. Also the identities of the workers they start, whose ids
//! are given out before the workers exist.

use mutirao_core::auth::{DEFAULT_NAMESPACE, Duty, ElasticEnrolled, ElasticInvitation, Enrol, Enrolment, NewKey};
use mutirao_core::{Problem, WorkerId};
use mutirao_store::refused;

use super::keys::{Added, ElasticKey, KEYS_GOOD_MAX};
use super::registry::By;
use super::{Auth, ENROLMENT_GOOD_FOR, LAST_USED_STEP, check_name, secret, signature};

impl Auth {
    /// Makes a one-time token that lets one resource manager in. Also for `mutirao up`, which runs one itself.
    pub async fn invite_elastic(&self, by: &str) -> Result<ElasticInvitation, Problem> {
        let now = self.clock.now();
        let (token, digest) = secret::mint_elastic_enrolment();
        let expires_at = now.plus(ENROLMENT_GOOD_FOR);
        let by = By { who: by.into(), at: now };
        self.registry.add_elastic_enrolment(digest, expires_at, by).await.map_err(refused)?;
        Ok(ElasticInvitation { token, expires_at })
    }

    /// Spends a one-time token. The same key that sends it again has the same answer; any other is refused.
    pub async fn enrol_elastic(&self, enrol: &Enrol) -> Result<ElasticEnrolled, Problem> {
        check_name(&enrol.name)?;
        let worthless = || {
            Problem::unauthenticated("the one-time token is unknown, spent or too old")
                .remedy("have an admin make a new one: mutirao elastic invite")
        };
        let public_key = read_key(&enrol.public_key)?;
        let digest = secret::read_elastic_enrolment(&enrol.token).ok_or_else(worthless)?;
        let id = secret::mint_elastic_key_id();
        let key = self.new_key(id.clone(), id, public_key, enrol.name.clone());
        let enrolled = self.registry.enrol_elastic(digest, key).await.map_err(refused)?;
        enrolled.map(|key| ElasticEnrolled { key }).ok_or_else(worthless)
    }

    /// A further key of the resource manager whose key this is. Asked again for the same, it has the same id.
    pub async fn add_elastic_key(&self, first: &ElasticKey, new: &NewKey) -> Result<ElasticEnrolled, Problem> {
        let public_key = read_key(&new.public_key)?;
        let id = secret::mint_elastic_key_id();
        let key = self.new_key(id.clone(), first.manager.clone(), public_key, first.name.clone());
        let by = By { who: first.id.clone(), at: key.created_at };
        match self.registry.add_elastic_key(key, by).await.map_err(refused)? {
            Added::Added => Ok(ElasticEnrolled { key: id }),
            Added::Already(id) => Ok(ElasticEnrolled { key: id }),
            Added::TooMany => {
                Err(Problem::conflict(format!("this resource manager has {KEYS_GOOD_MAX} good keys already"))
                    .remedy("revoke those that it does not use: mutirao elastic key revoke"))
            }
        }
    }

    fn new_key(&self, id: String, manager: String, public_key: [u8; 32], name: String) -> ElasticKey {
        let created_at = self.clock.now();
        ElasticKey { id, manager, public_key, name, created_at, revoked_at: None, last_used_at: None }
    }

    /// A page of keys, and the number that the next page starts after.
    pub async fn elastic_keys(&self, after: i64, rows: u32) -> Result<Vec<(i64, ElasticKey)>, Problem> {
        self.registry.elastic_keys(after, rows).await.map_err(refused)
    }

    /// The key, by what is written, revoked ones among them.
    pub async fn elastic_key(&self, id: &str) -> Result<Option<ElasticKey>, Problem> {
        self.registry.elastic_key(id).await.map_err(refused)
    }

    /// Takes effect at once in this process, and within [`cache::BELIEVED_FOR`](super::cache::BELIEVED_FOR) in others.
    pub async fn revoke_elastic_key(&self, id: &str, by: &str) -> Result<(), Problem> {
        let by = By { who: by.into(), at: self.clock.now() };
        let found = self.registry.revoke_elastic_key(id, by).await.map_err(refused)?;
        self.elastic.forget(id);
        let id: String = id.chars().take(64).collect();
        if found { Ok(()) } else { Err(Problem::not_found(format!("there is no key \"{id}\" of a resource manager"))) }
    }

    /// The key of this id, unless it was revoked.
    pub(super) async fn good_elastic_key(&self, id: &str) -> Result<Option<ElasticKey>, Problem> {
        let key = match self.elastic.get(id) {
            Ok(key) => Some(key),
            Err(began) => {
                let found = self.registry.elastic_key(id).await.map_err(refused)?;
                if let Some(key) = &found {
                    self.elastic.keep(began, key.id.clone(), key.clone());
                }
                found
            }
        };
        Ok(key.filter(|key| key.revoked_at.is_none()))
    }

    /// Costs one write a minute at most, and a caller is not turned away because it failed.
    pub async fn mark_elastic_used(&self, key: &ElasticKey) {
        let now = self.clock.now();
        if key.last_used_at.is_some_and(|at| now.since(at) < LAST_USED_STEP) {
            return;
        }
        if let Err(error) = self.registry.elastic_key_used(&key.id, now).await {
            tracing::warn!(key = key.id, %error, "the last use of a key was not noted");
            return;
        }
        let began = self.elastic.get(&key.id).err().unwrap_or_else(|| self.elastic.began());
        self.elastic.keep(began, key.id.clone(), ElasticKey { last_used_at: Some(now), ..key.clone() });
    }

    /// An id for a worker that does not exist yet.
    pub fn mint_worker(&self) -> WorkerId {
        WorkerId(secret::mint_given_out_id())
    }

    /// The one-time token with which the worker of this id comes in. It replaces the one before. A worker that came in already
    /// stays who it is: nobody comes in under its id with another key.
    pub async fn invite_worker(&self, worker: &WorkerId, duty: Duty, by: &str) -> Result<Enrolment, Problem> {
        let now = self.clock.now();
        let (token, digest) = secret::mint_enrolment();
        let expires_at = now.plus(ENROLMENT_GOOD_FOR);
        let by = By { who: by.into(), at: now };
        let (queue, worker) = (duty.queue().to_owned(), Some(worker.clone()));
        self.registry.add_enrolment(digest, duty, worker, DEFAULT_NAMESPACE, expires_at, by).await.map_err(refused)?;
        Ok(Enrolment { token, queue, expires_at, url: None })
    }
}

fn read_key(text: &str) -> Result<[u8; 32], Problem> {
    signature::read_public_key(text)
        .ok_or_else(|| Problem::invalid("public_key", "is not an Ed25519 public key in base64"))
}
