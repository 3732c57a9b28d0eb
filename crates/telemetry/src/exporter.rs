//! From whoever tells spans to the collector.

use std::sync::Arc;
use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use mutirao_core::trace::{self, Listener, Span};
use mutirao_tls::{Believe, TlsError, Trust};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::otlp::{self, Teller};
use crate::{DROPPED, SENT};

/// Spans that wait to be sent. Past this they are dropped.
const WAITING_MAX: usize = 4_096;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// How long spans gather.
const GATHER: Duration = Duration::from_secs(1);
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Tries at one batch, and the pause between them.
const TRIES_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// How long the last spans may take when the process ends.
const GOODBYE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the collector listens: `http://127.0.0.1:4318`. Spans go to `/v1/traces` there.
    pub collector: String,
    /// Of requests whose callers do not say whether to follow them, the share that is.
    pub share: f64,
    pub believe: Believe,
    pub teller: Teller,
}

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("telemetry.otlp: {0}")]
    Tls(#[from] TlsError),
    #[error("telemetry.otlp cannot be used: {0}")]
    Http(#[from] reqwest::Error),
}

/// Spans are sent while this lives. [`Exporter::stop`] sends the last.
pub struct Exporter {
    last: oneshot::Sender<()>,
    sending: JoinHandle<()>,
    clock: Arc<dyn Clock>,
}

impl Exporter {
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, TelemetryError> {
        let trust = Trust::for_url(&settings.collector, &settings.believe)?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(rustls::ClientConfig::clone(trust.config()))
            .timeout(ANSWERED_WITHIN)
            .build()?;
        let (sender, waiting) = mpsc::channel(WAITING_MAX);
        let (last, stop) = oneshot::channel();
        let url = format!("{}/v1/traces", settings.collector.trim_end_matches('/'));
        let post = Post { http, url, teller: settings.teller, clock: clock.clone(), told: false };
        let sending = tokio::spawn(post.run(waiting, stop));
        trace::listen(Box::new(Queue(sender)), settings.share);
        Ok(Self { last, sending, clock })
    }

    /// Sends what waits, as far as the collector takes it in a moment.
    pub async fn stop(self) {
        // An error says that it has ended already.
        let _ = self.last.send(());
        let _ = self.clock.timeout(GOODBYE, self.sending).await;
    }
}

struct Queue(mpsc::Sender<Span>);

impl Listener for Queue {
    fn hear(&self, span: Span) {
        if self.0.try_send(span).is_err() {
            metrics::counter!(DROPPED).increment(1);
        }
    }
}

struct Post {
    http: reqwest::Client,
    url: String,
    teller: Teller,
    clock: Arc<dyn Clock>,
    /// Whether trouble was told: once until it is over.
    told: bool,
}

impl Post {
    async fn run(mut self, mut waiting: mpsc::Receiver<Span>, mut stop: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let stopping = tokio::select! {
                received = waiting.recv_many(&mut batch, BATCH_MAX) => received == 0,
                _ = &mut stop => true,
            };
            if !stopping {
                // A moment for others to join.
                let _ = self.clock.timeout(GATHER, fill(&mut waiting, &mut batch)).await;
            } else {
                while batch.len() < BATCH_MAX
                    && let Ok(span) = waiting.try_recv()
                {
                    batch.push(span);
                }
            }
            if !batch.is_empty() {
                self.send(&batch, if stopping { 1 } else { TRIES_MAX }).await;
                batch.clear();
            }
            if stopping && waiting.is_empty() {
                return;
            }
        }
    }

    async fn send(&mut self, batch: &[Span], tries_max: u32) {
        let body = otlp::body(&self.teller, batch);
        for again in 1..=tries_max {
            let answer = self.http.post(&self.url).json(&body).send().await;
            match answer.and_then(reqwest::Response::error_for_status) {
                Ok(_) => {
                    metrics::counter!(SENT).increment(batch.len() as u64);
                    if std::mem::take(&mut self.told) {
                        tracing::info!("the collector takes spans again");
                    }
                    return;
                }
                Err(error) if again == tries_max => {
                    metrics::counter!(DROPPED).increment(batch.len() as u64);
                    if !std::mem::replace(&mut self.told, true) {
                        let error = error.without_url();
                        tracing::warn!(url = self.url, %error, "the collector does not take spans; they are dropped until it does");
                    }
                }
                Err(_) => self.clock.sleep(PAUSE).await,
            }
        }
    }
}

/// Until the batch is full.
async fn fill(waiting: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        if waiting.recv_many(batch, room).await == 0 {
            return;
        }
    }
}
