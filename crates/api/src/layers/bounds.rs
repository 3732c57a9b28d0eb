//! How many requests are worked on at once, and for how long. Past the first a request is pushed back, past the second it
//! is given up. Streams and links count only until their answer's head is sent; the connections bound them.

use std::sync::Arc;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Problem};
use mutirao_surface::Rejection;
use tokio::sync::Semaphore;

pub struct Bounds {
    pub clock: Arc<dyn Clock>,
    pub requests: Semaphore,
    pub timeout: Duration,
}

impl Bounds {
    pub async fn hold(&self, answer: impl Future<Output = Response> + Send) -> Response {
        let Ok(_place) = self.requests.try_acquire() else {
            return Rejection(Problem {
                retry_after_s: Some(1),
                ..Problem::new(503, "busy", "too much at once").detail("too many requests are being worked on")
            })
            .into_response();
        };
        match self.clock.timeout(self.timeout, answer).await {
            Ok(response) => response,
            Err(_) => {
                let detail = format!("the request took longer than {} s and was given up", self.timeout.as_secs_f64());
                let problem = Problem::new(504, "timed-out", "it took too long").detail(detail);
                Rejection(problem.remedy("it may have been carried out; look before repeating it")).into_response()
            }
        }
    }
}
