//! Who may come in, and whether anybody is there: tokens, enrolment, health.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use http::header::DATE;

use mutirao_core::auth::{Enrol, Enrolled, Enrolment, EnrolmentSpec, KeyView, TokenCreated, TokenSpec, TokenView, Way};
use mutirao_core::job::Page;
use mutirao_core::{QueueName, Timestamp};
use serde::Deserialize;

use crate::error::ClientError;
use crate::http::{Call, Client, Repeat};
use crate::jobs::PageArgs;
use crate::target::Target;

/// What a living server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Absent when the server does not tell.
    pub version: Option<String>,
    /// Whose manager it is, when it says so.
    pub installation: Option<String>,
    /// The server's clock, to the second.
    pub now: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
struct HealthBody {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    installation: Option<String>,
}

impl Client {
    pub async fn create_token(&self, spec: &TokenSpec) -> Result<TokenCreated, ClientError> {
        self.fetch(Call::post(Target::new("/v1/tokens"), Repeat::Never).json(spec)?).await
    }

    pub async fn tokens(&self, page: PageArgs) -> Result<Page<TokenView>, ClientError> {
        self.fetch(Call::get(page.of(Target::new("/v1/tokens")))).await
    }

    pub async fn revoke_token(&self, id: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(Target::new("/v1/tokens").part(id))).await.map(drop)
    }

    /// Makes a one-time token for a worker.
    pub async fn create_enrolment(&self, spec: &EnrolmentSpec) -> Result<Enrolment, ClientError> {
        self.fetch(Call::post(Target::new("/v1/workers/enrolments"), Repeat::Never).json(spec)?).await
    }

    /// Spends a one-time token, unless it was made for another queue than the worker means, if it says so.
    pub async fn enrol(&self, enrol: &Enrol, queue: Option<&QueueName>) -> Result<Enrolled, ClientError> {
        let target = Target::new("/v1/workers/enrol").arg("queue", queue);
        self.fetch(Call::post(target, Repeat::Never).json(enrol)?).await
    }

    /// How the worker whose key this client has reaches the broker. A new answer makes a former one worthless.
    pub async fn way_to_broker(&self) -> Result<Way, ClientError> {
        self.fetch(Call::post(Target::new("/v1/workers/broker"), Repeat::Safe)).await
    }

    /// The enrolled keys of workers, the oldest first.
    pub async fn worker_keys(&self, page: PageArgs) -> Result<Page<KeyView>, ClientError> {
        self.fetch(Call::get(page.of(Target::new("/v1/workers/keys")))).await
    }

    pub async fn revoke_worker_key(&self, worker: &str) -> Result<(), ClientError> {
        self.fetch_bytes(Call::delete(Target::new("/v1/workers/keys").part(worker))).await.map(drop)
    }

    /// Whether the process lives.
    pub async fn health(&self) -> Result<Health, ClientError> {
        let (headers, body) = self.fetch_bytes(Call::get(Target::new("/healthz"))).await?;
        let body: HealthBody = serde_json::from_slice(&body).unwrap_or_default();
        Ok(Health { version: body.version, installation: body.installation, now: server_time(&headers) })
    }

    /// Whether it can do its work; the problem says what is missing.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.fetch_bytes(Call::get(Target::new("/readyz"))).await.map(drop)
    }
}

fn server_time(headers: &HeaderMap) -> Option<Timestamp> {
    let at: SystemTime = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    Some(Timestamp(at.duration_since(UNIX_EPOCH).ok()?.as_millis() as i64))
}
