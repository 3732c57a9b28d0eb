//! Events posted one after the other to an address. Each has its number as `Idempotency-Key`, so that the other side can know
//! one that comes again. Requests are made as those of flows are: to addresses of this machine and its cloud only where that
//! was allowed.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mutirao_core::quantity::Bytes;
use mutirao_probes::check::{self, Version};
use mutirao_probes::{Check, Ended, Probes};
use mutirao_streams::graph::Secret;
use mutirao_streams::part::SinkRow;

use super::{Away, Given, Outlet};
use crate::running::Means;
use crate::sources::secret;

const WITHIN: Duration = Duration::from_secs(20);
const ANSWER_BYTES_MAX: u64 = 4 << 10;

pub struct Webhook {
    url: String,
    headers: BTreeMap<String, String>,
    /// `s7f3k9q2/alarm`
    named: String,
    probes: Probes,
}

impl Webhook {
    pub fn of(url: String, header: Option<(String, Secret)>, named: String, means: &Means) -> Result<Self, String> {
        let probes = means.ends.web.clone().ok_or("this host calls no webhooks")?;
        let mut headers = BTreeMap::from([("content-type".to_owned(), "application/json".to_owned())]);
        if let Some((name, value)) = header {
            headers.insert(name, secret(&value)?);
        }
        let webhook = Self { url, headers, named, probes };
        webhook.request("0.0", String::new()).check().map_err(|problem| problem.line())?;
        Ok(webhook)
    }

    fn request(&self, number: &str, body: String) -> Check {
        let mut headers = self.headers.clone();
        headers.insert("idempotency-key".into(), format!("{}/{number}", self.named));
        Check::Http(check::Http {
            url: self.url.clone(),
            method: "POST".into(),
            headers,
            body,
            redirects: 0,
            body_max: Bytes(ANSWER_BYTES_MAX),
            version: Version::default(),
            reuse: true,
        })
    }
}

/// What an answer means for the row.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Taken,
    Refused(String),
    Later(String),
}

fn meaning(status: u16) -> Meaning {
    match status {
        200..=299 => Meaning::Taken,
        // Who asks to come again later, or fails, may take it then.
        408 | 425 | 429 | 500..=599 => Meaning::Later(format!("it answers with status {status}")),
        _ => Meaning::Refused(format!("it answered with status {status}")),
    }
}

#[async_trait]
impl Outlet for Webhook {
    async fn give(&mut self, rows: &[SinkRow]) -> Result<Given, Away> {
        let mut given = Given::default();
        for (done, row) in rows.iter().enumerate() {
            let text = String::from_utf8_lossy(&row.value).into_owned();
            let request = self.request(&row.place.to_string(), text);
            let observed = self.probes.run(&request, WITHIN).await;
            let meant = match observed.ended {
                Ended::Answered => meaning(observed.seen.status.unwrap_or_default()),
                Ended::Failed { phase, why } => Meaning::Later(format!("{phase}: {why}")),
                Ended::TimedOut { phase } => Meaning::Later(format!("{phase} took longer than {}s", WITHIN.as_secs())),
            };
            match meant {
                Meaning::Taken => {}
                Meaning::Refused(why) => given.refused.push((done, why)),
                Meaning::Later(why) => {
                    return Err(Away { done, given, why: format!("{}: {why}", self.url) });
                }
            }
        }
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_is_asked_again_and_who_says_no_is_not() {
        assert_eq!(meaning(204), Meaning::Taken);
        assert!(matches!(meaning(503), Meaning::Later(_)) && matches!(meaning(429), Meaning::Later(_)));
        assert!(matches!(meaning(422), Meaning::Refused(_)) && matches!(meaning(301), Meaning::Refused(_)));
    }
}
