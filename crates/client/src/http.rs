//! One request, its answer, and when to ask again. The routes themselves are in `jobs` and `access`.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http::Method;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use mutirao_core::{Clock, Dice, Problem, SystemClock};
use mutirao_tls::{Believe, Fault, Trust};

use crate::credentials::Credentials;
use crate::error::{ClientError, root_cause};
use crate::target::Target;

/// Until a server has accepted the connection.
const CONNECT_S_MAX: u64 = 5;
/// Until an answer that is not a stream is complete. A job of a million lines takes a few seconds to be accepted.
const ANSWER_S_MAX: u64 = 120;
/// How often a silent connection is probed by the kernel, so that a stream from a machine that vanished ends.
const KEEPALIVE_S: u64 = 15;
/// Bytes of an answer that is not a stream.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Tries when no connection comes about: a server that is starting is given a moment, one that is off is not waited for.
const CONNECT_TRIES_MAX: u32 = 3;
/// Tries when a repeatable request may have arrived: long enough for a manager to be started again.
const REPEAT_TRIES_MAX: u32 = 8;
/// How long, in all, one request stays away because the server asks for fewer of them.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(30);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Longer waits are worth a word.
const UNTOLD_MAX: Duration = Duration::from_secs(3);

/// In which the server names the shards whose owners it did not hear, so that what only they know is missing.
const UNHEARD: &str = "mutirao-unheard";

/// Told which shards were not heard, as the server writes them: `3, 12`.
type Unheard = Arc<dyn Fn(&str) + Send + Sync>;

/// Told why a request waits, and for how long.
type Waiting = Arc<dyn Fn(&ClientError, Duration) + Send + Sync>;

/// Bytes as they come.
pub type ByteStream = Pin<Box<dyn Stream<Item = Result<Bytes, ClientError>> + Send>>;

/// Whether asking twice does the same as asking once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Never,
}

/// How long the answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Whole,
    Stream,
}

/// What came of one request until now.
#[derive(Debug, Default)]
struct SoFar {
    failed: u32,
    /// Spent waiting because the server was asked too often.
    busy: Duration,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    method: Method,
    target: Target,
    body: Bytes,
    headers: HeaderMap,
    repeat: Repeat,
}

impl Call {
    pub fn get(target: Target) -> Self {
        Self { method: Method::GET, target, body: Bytes::new(), headers: HeaderMap::new(), repeat: Repeat::Safe }
    }

    pub fn delete(target: Target) -> Self {
        Self { method: Method::DELETE, ..Self::get(target) }
    }

    pub fn post(target: Target, repeat: Repeat) -> Self {
        Self { method: Method::POST, repeat, ..Self::get(target) }
    }

    pub fn put(target: Target, body: Bytes) -> Self {
        Self { method: Method::PUT, body, ..Self::get(target) }.header("content-type", "application/octet-stream")
    }

    pub fn put_json(target: Target, body: &impl Serialize) -> Result<Self, ClientError> {
        Self { method: Method::PUT, ..Self::get(target) }.json(body)
    }

    pub fn json(mut self, body: &impl Serialize) -> Result<Self, ClientError> {
        self.body = serde_json::to_vec(body).map_err(|e| ClientError::Unwritable(e.to_string()))?.into();
        Ok(self.header("content-type", "application/json"))
    }

    pub fn body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    /// Not repeated, whatever happens to its answer.
    pub fn once(self) -> Self {
        Self { repeat: Repeat::Never, ..self }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        // Our own values are always fit for a header; one that is not is left out, and the server says what it lacks.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}

/// A manager's API. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    unheard: Option<Unheard>,
    waiting: Option<Waiting>,
}

struct Inner {
    http: reqwest::Client,
    base: reqwest::Url,
    /// The address as it was given, for messages.
    shown: String,
    credentials: Credentials,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
}

impl Client {
    /// Connects to nothing yet. An `https` server must be known to the system's authorities.
    pub fn new(url: &str, credentials: Credentials) -> Result<Self, ClientError> {
        Self::trusting(url, credentials, &Trust::for_url(url, &Believe::default())?)
    }

    /// For servers that the system's authorities do not know.
    pub fn trusting(url: &str, credentials: Credentials, trust: &Trust) -> Result<Self, ClientError> {
        Self::with_clock(url, credentials, trust, SystemClock::shared(), Arc::new(Dice::from_os()))
    }

    pub fn with_clock(
        url: &str,
        credentials: Credentials,
        trust: &Trust,
        clock: Arc<dyn Clock>,
        dice: Arc<Dice>,
    ) -> Result<Self, ClientError> {
        let bad = |why: String| ClientError::BadUrl { url: url.into(), why };
        let base = reqwest::Url::parse(url).map_err(|e| bad(e.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(bad(format!("{}: is not spoken, only http: and https:", base.scheme())));
        }
        if base.path() != "/" || base.query().is_some() {
            return Err(bad("it goes on after the port".into()));
        }
        if let Credentials::Token(token) = &credentials {
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| ClientError::BadToken)?;
        }
        let http = reqwest::Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(trust.config()))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(CONNECT_S_MAX))
            .tcp_keepalive(Duration::from_secs(KEEPALIVE_S))
            .user_agent(concat!("mutirao/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| bad(root_cause(&e)))?;
        let shown = url.trim_end_matches('/').to_owned();
        let inner = Arc::new(Inner { http, base, shown, credentials, clock, dice });
        Ok(Self { inner, unheard: None, waiting: None })
    }

    /// Has `tell` hear of each answer from which something is missing, since some owners of queues were not heard.
    pub fn telling_unheard(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { unheard: Some(Arc::new(tell)), ..self }
    }

    /// Has `tell` hear before each wait of more than a moment why and for how long: people would take it for a hang.
    pub fn telling_waits(self, tell: impl Fn(&ClientError, Duration) + Send + Sync + 'static) -> Self {
        Self { waiting: Some(Arc::new(tell)), ..self }
    }

    /// The address as it was given.
    pub fn url(&self) -> &str {
        &self.inner.shown
    }

    pub(crate) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        let (headers, bytes) = self.fetch_bytes(call).await?;
        let shards = headers.get(UNHEARD).and_then(|value| value.to_str().ok());
        if let (Some(tell), Some(shards)) = (&self.unheard, shards) {
            tell(shards);
        }
        serde_json::from_slice(&bytes).map_err(|e| self.unexpected(e.to_string()))
    }

    pub(crate) async fn fetch_bytes(&self, call: Call) -> Result<(HeaderMap, Bytes), ClientError> {
        let mut so_far = SoFar::default();
        loop {
            match self.try_once(&call).await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.wait_or_give_up(&call, error, &mut so_far).await?,
            }
        }
    }

    /// An answer that comes bit by bit. Once it has begun it is not repeated: the reader knows how far it got.
    pub(crate) async fn open_stream(&self, call: Call) -> Result<ByteStream, ClientError> {
        let mut so_far = SoFar::default();
        let response = loop {
            match self.send(&call, Answer::Stream).await {
                Ok(response) => break response,
                Err(error) if error.is_busy() => self.wait_or_give_up(&call, error, &mut so_far).await?,
                Err(error) => return Err(error),
            }
        };
        let this = self.clone();
        Ok(Box::pin(response.bytes_stream().map(move |chunk| chunk.map_err(|e| this.explain(&e, ANSWER_S_MAX)))))
    }

    async fn try_once(&self, call: &Call) -> Result<(HeaderMap, Bytes), ClientError> {
        let response = self.send(call, Answer::Whole).await?;
        let headers = response.headers().clone();
        Ok((headers, self.read_whole(response).await?))
    }

    async fn send(&self, call: &Call, answer: Answer) -> Result<reqwest::Response, ClientError> {
        let inner = &self.inner;
        let url = inner.base.join(call.target.as_str()).map_err(|e| self.unexpected(e.to_string()))?;
        let mut headers = call.headers.clone();
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("application/json, */*"));
        if let Some(proof) = inner.credentials.authorize(call.method.as_str(), call.target.as_str(), &call.body) {
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&proof).map_err(|_| ClientError::BadToken)?);
        }
        let request = inner.http.request(call.method.clone(), url).headers(headers).body(call.body.clone());
        let response = match answer {
            Answer::Whole => request.timeout(Duration::from_secs(ANSWER_S_MAX)).send().await,
            Answer::Stream => request.send().await,
        };
        let response = response.map_err(|e| self.explain(&e, ANSWER_S_MAX))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    async fn refusal(&self, response: reqwest::Response) -> ClientError {
        let status = response.status();
        let ours =
            response.headers().get(CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/problem+json"));
        let body = match self.read_whole(response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) if ours => problem.into(),
            _ => self.unexpected(format!("status {}", status.as_u16())),
        }
    }

    async fn read_whole(&self, response: reqwest::Response) -> Result<Bytes, ClientError> {
        let mut chunks = response.bytes_stream();
        let mut whole = BytesMut::new();
        while let Some(chunk) = chunks.next().await {
            whole.extend_from_slice(&chunk.map_err(|e| self.explain(&e, ANSWER_S_MAX))?);
            if whole.len() > ANSWER_BYTES_MAX {
                return Err(self.unexpected(format!("more than {ANSWER_BYTES_MAX} bytes")));
            }
        }
        Ok(whole.freeze())
    }

    /// Waits until asking again makes sense; the error comes back when it does not.
    async fn wait_or_give_up(&self, call: &Call, error: ClientError, so_far: &mut SoFar) -> Result<(), ClientError> {
        so_far.failed += 1;
        let Some(wait) = self.wait_before_repeat(call, &error, so_far) else { return Err(error) };
        if let Some(tell) = self.waiting.as_ref().filter(|_| wait > UNTOLD_MAX) {
            tell(&error, wait);
        }
        self.inner.clock.sleep(wait).await;
        Ok(())
    }

    fn wait_before_repeat(&self, call: &Call, error: &ClientError, so_far: &mut SoFar) -> Option<Duration> {
        let grown = FIRST_WAIT.saturating_mul(1 << so_far.failed.saturating_sub(1).min(10)).min(LONGEST_WAIT);
        let wait = self.inner.dice.jitter(grown);
        let tries_max = match error {
            // Nothing was asked yet, so even what must not be asked twice may be tried again.
            ClientError::Unreachable { .. } => CONNECT_TRIES_MAX,
            _ if call.repeat == Repeat::Never => return None,
            error if error.is_busy() => {
                let wait = wait.max(error.retry_after());
                so_far.busy = so_far.busy.saturating_add(wait);
                return (so_far.busy <= BUSY_WAIT_MAX).then_some(wait);
            }
            error if error.is_away() => REPEAT_TRIES_MAX,
            _ => return None,
        };
        (so_far.failed < tries_max).then(|| wait.max(error.retry_after().min(LONGEST_WAIT)))
    }

    fn explain(&self, error: &reqwest::Error, limit_s: u64) -> ClientError {
        let (url, why) = (self.inner.shown.clone(), root_cause(error));
        if let Some(fault) = Fault::find(error) {
            ClientError::Unsafe { url, fault }
        } else if error.is_connect() {
            ClientError::Unreachable { url, why }
        } else if error.is_timeout() {
            ClientError::TimedOut { url, limit_s }
        } else {
            ClientError::Broken { url, why }
        }
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn unexpected(&self, what: impl Into<String>) -> ClientError {
        ClientError::Unexpected { url: self.inner.shown.clone(), what: what.into() }
    }
}
