//! Who is it, and may they come in: bearer tokens for people, signed requests for workers and resource managers, one-time
//! tokens to enrol.
//!
//! - [`registry`]: what must be remembered, as a trait, implemented in [`sqlite`] and [`postgres`]; [`keys`]: the same for
//!   resource managers, which [`elastic`] lets in.
//! - [`secret`]: the texts, and what is kept of them. [`signature`] and [`nonces`]: one signed request, and whether it was
//!   seen before. [`cache`]: what was looked up a moment ago. [`admin`]: the token of the first start.
//! - [`upkeep`]: what is forgotten when, and what is remembered so that it counts once.
//!
//! Not here: what a role may do (each route says so), and how a request gets here (`layers`).

mod admin;
pub mod cache;
mod elastic;
pub mod keys;
pub mod nonces;
pub mod postgres;
pub mod registry;
pub mod secret;
pub mod signature;
pub mod sqlite;
pub mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::auth::{
    DEFAULT_NAMESPACE, Duty, Enrol, Enrolment, Principal, Role, SIGNATURE_WINDOW_S, TokenCreated, TokenSpec,
};
use mutirao_core::limits::NAME_CHARS_MAX;
use mutirao_core::{Clock, Problem, QueueName, Timestamp, WorkerId};
use mutirao_store::{StoreError, refused};
use parking_lot::Mutex;

use crate::error::ApiError;
use cache::Cache;
use keys::ElasticKey;
use nonces::{Nonces, Seen};
use registry::{By, Enrolling, Newcomer, Registry, Token, Worker};
use secret::Digest;
use signature::Claim;

/// Signed requests remembered: over four thousand a second for two windows, 30 MB.
const NONCES_MAX: usize = 500_000;
/// How long a one-time token can be used.
pub const ENROLMENT_GOOD_FOR: Duration = Duration::from_secs(3600);
/// How coarse `last_used_at` is: one write a token in this time.
const LAST_USED_STEP: Duration = Duration::from_secs(60);

/// Proves callers, and makes and ends what they prove themselves with.
pub struct Auth {
    registry: Arc<dyn Registry>,
    clock: Arc<dyn Clock>,
    tokens: Cache<String, Arc<Believed>>,
    workers: Cache<WorkerId, Worker>,
    elastic: Cache<String, ElasticKey>,
    nonces: Nonces,
    lent: Mutex<Vec<Lent>>,
}

/// A token of this process for itself.
struct Lent {
    id: String,
    secret: Digest,
    principal: Arc<Principal>,
}

/// A token that was looked up, and who it stands for, made once and not for each request.
struct Believed {
    token: Token,
    principal: Arc<Principal>,
}

/// Who signs a request.
#[derive(Clone, Debug)]
pub enum Signatory {
    Worker(Worker),
    /// A resource manager, by one of its keys.
    Elastic(ElasticKey),
}

impl Signatory {
    pub fn principal(&self) -> Principal {
        match self {
            Self::Worker(worker) => worker.principal(),
            Self::Elastic(key) => key.principal(),
        }
    }

    fn public_key(&self) -> &[u8; 32] {
        match self {
            Self::Worker(worker) => &worker.public_key,
            Self::Elastic(key) => &key.public_key,
        }
    }
}

impl Auth {
    pub fn new(registry: Arc<dyn Registry>, clock: Arc<dyn Clock>) -> Self {
        Self {
            registry,
            tokens: Cache::new(clock.clone()),
            workers: Cache::new(clock.clone()),
            elastic: Cache::new(clock.clone()),
            nonces: Nonces::remembering(NONCES_MAX),
            lent: Mutex::default(),
            clock,
        }
    }

    /// Who holds this token. Unknown and wrong are told alike.
    pub async fn by_token(&self, text: &str) -> Result<Arc<Principal>, Problem> {
        let unknown = || Problem::unauthenticated("the token is not known here").remedy("check MUTIRAO_TOKEN");
        let (id, digest) = secret::read_token(text).ok_or_else(unknown)?;
        let known = self.tokens.get(id);
        // Only those that are not known by then: what comes most often is not kept waiting.
        if known.is_err()
            && let Some(principal) = self.lent_to(id, &digest)
        {
            return Ok(principal);
        }
        let believed = match known {
            Ok(believed) if believed.token.secret.matches(&digest) => believed,
            Ok(_) => return Err(unknown()),
            Err(began) => match self.registry.token(id).await {
                Ok(found) => {
                    let token = found.filter(|token| token.secret.matches(&digest)).ok_or_else(unknown)?;
                    let token = self.mark_used(token).await;
                    let (id, principal) = (token.id.clone(), Arc::new(token.principal()));
                    let believed = Arc::new(Believed { token, principal });
                    self.tokens.keep(began, id, believed.clone());
                    believed
                }
                Err(error @ StoreError::Unreachable { .. }) => {
                    let believed = self.tokens.believed_once(id);
                    believed.filter(|believed| believed.token.secret.matches(&digest)).ok_or_else(|| refused(error))?
                }
                Err(error) => return Err(refused(error)),
            },
        };
        if !believed.token.is_good_at(self.clock.now()) {
            return Err(Problem::unauthenticated("the token is revoked or has expired")
                .remedy("ask an admin for a new one: mutirao token create"));
        }
        Ok(believed.principal.clone())
    }

    /// A token by which this process asks itself, for what it does in others' name: it is written nowhere, no other process
    /// knows it, and it ends with this one.
    pub fn lend(&self, name: &str, role: Role) -> String {
        let secret::Minted { id, text, digest } = secret::mint_token();
        let namespace = DEFAULT_NAMESPACE.into();
        let principal = Arc::new(Principal { id: id.clone(), name: name.into(), role, namespace });
        self.lent.lock().push(Lent { id, secret: digest, principal });
        text
    }

    fn lent_to(&self, id: &str, digest: &Digest) -> Option<Arc<Principal>> {
        let lent = self.lent.lock();
        let found = lent.iter().find(|one| one.id == id && one.secret.matches(digest));
        found.map(|one| one.principal.clone())
    }

    /// Costs one write a minute at most, and a caller is not turned away because it failed.
    async fn mark_used(&self, mut token: Token) -> Token {
        let now = self.clock.now();
        let fresh = token.last_used_at.is_some_and(|at| now.since(at) < LAST_USED_STEP);
        if !fresh && token.is_good_at(now) {
            match self.registry.token_used(&token.id, now).await {
                Ok(()) => token.last_used_at = Some(now),
                Err(error) => tracing::warn!(token = token.id, %error, "the last use of a token was not noted"),
            }
        }
        token
    }

    /// Who claims to have signed, if the claim is worth a look: known, not revoked, and in time.
    pub async fn claimant(&self, claim: &Claim) -> Result<Signatory, Problem> {
        if !claim.is_timely(self.clock.now()) {
            return Err(Problem::unauthenticated(format!(
                "the request's time is more than {SIGNATURE_WINDOW_S} s away from the server's"
            ))
            .remedy("set the clock of this machine"));
        }
        let found = match secret::is_elastic_key_id(&claim.key) {
            true => self.good_elastic_key(&claim.key).await?.map(Signatory::Elastic),
            false => self.enrolled(&WorkerId(claim.key.clone())).await?.map(Signatory::Worker),
        };
        found.ok_or_else(not_signed)
    }

    /// The worker of this id, unless its key was revoked.
    pub async fn enrolled(&self, id: &WorkerId) -> Result<Option<Worker>, Problem> {
        let worker = match self.workers.get(id) {
            Ok(worker) => Some(worker),
            Err(began) => {
                let found = self.registry.worker(id).await.map_err(refused)?;
                if let Some(worker) = &found {
                    self.workers.keep(began, worker.id.clone(), worker.clone());
                }
                found
            }
        };
        Ok(worker.filter(|worker| worker.revoked_at.is_none()))
    }

    /// Whether a worker is let in, by what is written and not by what was believed a moment ago.
    pub async fn is_enrolled_now(&self, id: &WorkerId) -> Result<bool, Problem> {
        let worker = self.registry.worker(id).await.map_err(refused)?;
        Ok(worker.is_some_and(|worker| worker.revoked_at.is_none()))
    }

    /// A page of enrolled workers, and the number that the next page starts after.
    pub async fn workers(&self, after: i64, rows: u32) -> Result<Vec<(i64, Worker)>, Problem> {
        self.registry.workers(after, rows).await.map_err(refused)
    }

    /// Takes effect at once for requests to this process, within [`cache::BELIEVED_FOR`] in others and for open links.
    pub async fn revoke_worker(&self, id: &WorkerId, by: &str) -> Result<(), Problem> {
        let by = By { who: by.into(), at: self.clock.now() };
        let found = self.registry.revoke_worker(id, by).await.map_err(refused)?;
        self.workers.forget(id);
        let id: String = id.0.chars().take(64).collect();
        if found { Ok(()) } else { Err(Problem::not_found(format!("there is no enrolled worker \"{id}\""))) }
    }

    /// Whether the claimant did sign this request, and for the first time.
    pub fn prove(
        &self,
        signatory: &Signatory,
        claim: &Claim,
        method: &str,
        path_and_query: &str,
        body: &[u8],
    ) -> Result<(), Problem> {
        if !claim.is_signed_by(signatory.public_key(), method, path_and_query, body) {
            return Err(not_signed());
        }
        // Last, so that nobody without a key can fill the memory of nonces.
        match self.nonces.see(&claim.key, &claim.nonce, self.clock.monotonic()) {
            Seen::First => Ok(()),
            Seen::Again => Err(nonces::used_before()),
            Seen::Full => Err(Problem::busy("too many signed requests in the last minutes", 5)),
        }
    }

    pub async fn create_token(&self, spec: &TokenSpec, by: &str) -> Result<TokenCreated, Problem> {
        check_name(&spec.name)?;
        if matches!(spec.role, Role::Node | Role::Elastic | Role::Keys) {
            let detail = match spec.role {
                Role::Keys => "keys is for a manager's own actions, not for tokens".to_owned(),
                other => format!("{} is for enrolled keys, not for tokens", other.as_str()),
            };
            return Err(
                Problem::invalid("role", detail).remedy("choose viewer, operator or admin, or make an enrolment")
            );
        }
        let now = self.clock.now();
        let minted = secret::mint_token();
        let token = Token {
            id: minted.id,
            name: spec.name.clone(),
            role: spec.role,
            namespace: DEFAULT_NAMESPACE.into(),
            secret: minted.digest,
            created_at: now,
            expires_at: spec.expires_in.map(|span| now.plus(span.0)),
            revoked_at: None,
            last_used_at: None,
        };
        let view = token.view();
        self.registry.add_token(token, By { who: by.into(), at: now }).await.map_err(refused)?;
        Ok(TokenCreated { token: view, secret: minted.text })
    }

    /// A page of tokens, and the number that the next page starts after.
    pub async fn tokens(&self, after: i64, rows: u32) -> Result<Vec<(i64, Token)>, Problem> {
        self.registry.tokens(after, rows).await.map_err(refused)
    }

    /// Takes effect at once in this process, and within [`cache::BELIEVED_FOR`] in others.
    pub async fn revoke_token(&self, id: &str, by: &str) -> Result<(), Problem> {
        let by = By { who: by.into(), at: self.clock.now() };
        let found = self.registry.revoke_token(id, by).await.map_err(refused)?;
        self.tokens.forget(id);
        let id: String = id.chars().take(64).collect();
        if found { Ok(()) } else { Err(Problem::not_found(format!("there is no token \"{id}\""))) }
    }

    /// Makes a one-time token that lets one worker in, for one queue. Also for `mutirao up`, whose workers are children.
    pub async fn create_enrolment(&self, queue: &QueueName, by: &str) -> Result<Enrolment, Problem> {
        self.invite(Duty::Tasks(queue.clone()), by).await
    }

    /// Makes a one-time token that lets one worker, checker or host of streams in.
    pub async fn invite(&self, duty: Duty, by: &str) -> Result<Enrolment, Problem> {
        let now = self.clock.now();
        let (token, digest) = secret::mint_enrolment();
        let expires_at = now.plus(ENROLMENT_GOOD_FOR);
        let by = By { who: by.into(), at: now };
        let queue = duty.queue().to_owned();
        self.registry.add_enrolment(digest, duty, None, DEFAULT_NAMESPACE, expires_at, by).await.map_err(refused)?;
        Ok(Enrolment { token, queue, expires_at, url: None })
    }

    /// Spends a one-time token. The same key that sends it again has the same answer, since the first may have got lost; any
    /// other is refused. One that was made for another queue than the worker means is not spent.
    pub async fn enrol(&self, enrol: &Enrol, meant: Option<QueueName>) -> Result<Worker, Problem> {
        check_name(&enrol.name)?;
        let public_key = signature::read_public_key(&enrol.public_key)
            .ok_or_else(|| Problem::invalid("public_key", "is not an Ed25519 public key in base64"))?;
        let worthless = || {
            Problem::unauthenticated("the one-time token is unknown, spent or too old")
                .remedy("have an admin make a new enrolment")
        };
        let digest: Digest = secret::read_enrolment(&enrol.token).ok_or_else(worthless)?;
        let id = WorkerId(secret::mint_worker_id());
        let newcomer = Newcomer { id, public_key, name: enrol.name.clone(), queue: meant };
        let enrolled = self.registry.enrol(digest, newcomer, self.now()).await.map_err(refused)?;
        match enrolled {
            Enrolling::LetIn(worker) => {
                // Whoever comes in again with an id given out before has another key now.
                self.workers.forget(&worker.id);
                Ok(worker)
            }
            Enrolling::Worthless => Err(worthless()),
            Enrolling::OtherDuty(duty) => Err(other_duty(&duty)),
        }
    }

    /// Makes sure that `admin.token` in the data folder holds a good admin token, and says where it is.
    pub async fn admin_token(&self, data_dir: &std::path::Path) -> Result<std::path::PathBuf, ApiError> {
        admin::ensure(self, data_dir).await
    }

    pub async fn store_answers(&self) -> Result<(), Problem> {
        self.registry.ping().await.map_err(refused)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

fn not_signed() -> Problem {
    Problem::unauthenticated("the signature is not that of an enrolled key").remedy("enrol with a new one-time token")
}

/// Of a token that was made for something else than the newcomer means.
fn other_duty(duty: &Duty) -> Problem {
    let (made_for, remedy) = match duty {
        Duty::Tasks(queue) => (format!("for the queue \"{queue}\""), format!("start the worker with --queue {queue}")),
        Duty::Checks(kinds) => (format!("for a checker, of {kinds}"), "start it with `mutirao role checker`".into()),
        Duty::Streams => ("for a host of streams".to_owned(), "start it with `mutirao role host`".into()),
    };
    Problem::invalid("queue", format!("the one-time token is {made_for}"))
        .remedy(format!("{remedy}: the token is still good"))
}

fn check_name(name: &str) -> Result<(), Problem> {
    let chars = name.chars().count();
    if (1..=NAME_CHARS_MAX).contains(&chars) && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Problem::invalid(
        "name",
        format!("must have 1 to {NAME_CHARS_MAX} characters, none of them control characters"),
    ))
}
