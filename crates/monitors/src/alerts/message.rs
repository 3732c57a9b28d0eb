//! What is said, and how it is put for each way: as what the probes can send, since those know which addresses are out of
//! bounds, how long is long enough, and how much of an answer to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use mutirao_core::Timestamp;
use mutirao_probes::check::{Exec, Http};
use mutirao_probes::{Check, Ended, Observation};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::channel::{Secret, Slack, Way, Webhook};
use super::template::{self, TemplateError};
use super::{AlertEvent, Raised};

/// The same for every try of one alert, so that whoever gets it twice can tell.
pub const ID_HEADER: &str = "mutirao-alert-id";
/// `t=SECONDS,v1=HEX`: when it was signed, and HMAC-SHA256 of `SECONDS.BODY` under the channel's secret.
pub const SIGNATURE_HEADER: &str = "mutirao-signature";
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 4 << 10;
/// Of what a channel answers when it refuses, this much is kept.
const ANSWER_CHARS_KEPT: usize = 200;

/// All there is to say. As JSON it is what a webhook gets that has no template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub id: String,
    pub event: AlertEvent,
    pub text: String,
    pub monitor: String,
    pub namespace: String,
    pub labels: BTreeMap<String, String>,
    /// Why it is bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The first of the bad outcomes, or the last before the silence.
    pub since: String,
    /// When it was raised.
    pub at: String,
    /// When the incident closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Which of the reminders.
    pub reminder: u32,
}

/// What is known of the monitor and the incident that an alert is about.
#[derive(Clone, Debug)]
pub struct About<'a> {
    pub uuid: &'a str,
    pub monitor: &'a str,
    pub namespace: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub since: Option<Timestamp>,
    pub closed_at: Option<Timestamp>,
    pub evidence: Option<&'a str>,
}

/// The id of an alert, wherever and however often it is sent.
pub fn id(uuid: &str, raised: &Raised) -> String {
    let Raised { about, event, turn, to, .. } = raised;
    let digest = Sha256::digest(format!("{uuid}\n{}\n{event}\n{turn}\n{to}", about.0));
    hex(&digest[..16])
}

impl Message {
    pub fn new(raised: &Raised, about: &About<'_>) -> Self {
        let since = about.since.unwrap_or(raised.about);
        let detail = raised.detail.as_deref().or(about.evidence.filter(|_| raised.event.of_incident()));
        let name = about.monitor;
        let for_long = |until: Timestamp| {
            let seconds = until.since(since).as_secs();
            humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
        };
        let why = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
        let text = match raised.event {
            AlertEvent::Opened => format!("{name} is down{why}"),
            AlertEvent::Closed => {
                let until = about.closed_at.unwrap_or(raised.at);
                format!("{name} is up again after {}{}", for_long(until), why.replacen(": ", ", was: ", 1))
            }
            AlertEvent::Reminder => format!("{name} is still down after {}{why}", for_long(raised.at)),
            AlertEvent::Flapping => format!("{name} is flapping: it goes up and down again and again"),
            AlertEvent::Calm => format!("{name} has stopped flapping"),
            AlertEvent::NoData => format!("{name} is not checked any more: there is no outcome after {since}"),
            AlertEvent::Heard => format!("{name} is checked again"),
        };
        Self {
            id: id(about.uuid, raised),
            event: raised.event,
            text,
            monitor: name.into(),
            namespace: about.namespace.into(),
            labels: about.labels.clone(),
            detail: detail.map(str::to_owned),
            since: since.to_string(),
            at: raised.at.to_string(),
            until: about.closed_at.map(|at| at.to_string()),
            reminder: raised.turn,
        }
    }

    fn value(&self, name: &str) -> Option<String> {
        match name {
            "text" => Some(self.text.clone()),
            "id" => Some(self.id.clone()),
            "event" => Some(self.event.to_string()),
            "monitor" => Some(self.monitor.clone()),
            "namespace" => Some(self.namespace.clone()),
            "detail" => self.detail.clone(),
            "since" => Some(self.since.clone()),
            "at" => Some(self.at.clone()),
            "until" => self.until.clone(),
            "reminder" => Some(self.reminder.to_string()),
            _ => self.labels.get(name.strip_prefix("labels.")?).cloned(),
        }
    }

    fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What is to be sent. `wall`: when, as everybody's clock has it.
    pub fn put_for(&self, way: &Way, wall: Timestamp) -> Result<Check, TemplateError> {
        let mut headers = BTreeMap::from([(ID_HEADER.to_owned(), self.id.clone())]);
        Ok(match way {
            Way::Webhook(Webhook { url, headers: own, template, secret }) => {
                let body = match template {
                    Some(template) => template::render(template, |name| self.value(name))?,
                    None => self.json(),
                };
                headers.extend(secret.iter().map(|secret| (SIGNATURE_HEADER.into(), signature(secret, &body, wall))));
                headers.extend(own.iter().map(|(name, value)| (name.clone(), value.0.clone())));
                post(url, headers, body)
            }
            Way::Slack(Slack { url }) => {
                let text = self.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                post(url, headers, serde_json::json!({ "text": text }).to_string())
            }
            Way::Exec(program) => {
                let told = [
                    ("MUTIRAO_ALERT", self.json()),
                    ("MUTIRAO_ALERT_ID", self.id.clone()),
                    ("MUTIRAO_ALERT_EVENT", self.event.to_string()),
                    ("MUTIRAO_ALERT_MONITOR", self.monitor.clone()),
                    ("MUTIRAO_ALERT_TEXT", self.text.replace('\0', " ")),
                ];
                let env = told.into_iter().map(|(name, value)| (name.into(), value)).collect();
                Check::Exec(Exec { command: program.command.clone(), env })
            }
        })
    }
}

fn post(url: &Secret, mut headers: BTreeMap<String, String>, body: String) -> Check {
    if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
        headers.insert("content-type".into(), "application/json".into());
    }
    let body_max = mutirao_core::quantity::Bytes(ANSWER_BYTES_MAX);
    Check::Http(Http { method: "POST".into(), headers, body, body_max, ..Http::new(&url.0) })
}

/// What the signature's header says of a body at a moment.
pub fn signature(secret: &Secret, body: &str, at: Timestamp) -> String {
    let seconds = at.0.div_euclid(1_000);
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.0.as_bytes()) else { return String::new() };
    mac.update(format!("{seconds}.{body}").as_bytes());
    format!("t={seconds},v1={}", hex(&mac.finalize().into_bytes()))
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Taken,
    /// Worth trying again.
    NotNow(String),
    /// It would be refused again.
    Refused(String),
}

pub fn answer(seen: &Observation) -> Answer {
    match &seen.ended {
        Ended::Failed { phase, why } => return Answer::NotNow(format!("{phase}: {why}")),
        Ended::TimedOut { phase } => return Answer::NotNow(format!("no answer in time, while {phase}")),
        Ended::Answered => {}
    }
    if let Some(exit) = seen.seen.exit {
        return if exit == 0 { Answer::Taken } else { Answer::NotNow(format!("it ended with {exit}")) };
    }
    let status = seen.seen.status.unwrap_or_default();
    let said = String::from_utf8_lossy(&seen.seen.body);
    let said: String = said.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(ANSWER_CHARS_KEPT).collect();
    let line = if said.is_empty() { format!("status {status}") } else { format!("status {status}: {said}") };
    match status {
        200..=299 => Answer::Taken,
        // Too early, too often, or not here yet.
        408 | 425 | 429 | 500..=599 => Answer::NotNow(line),
        _ => Answer::Refused(line),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::channel::ChannelSpec;
    use crate::grid::MonitorKey;

    fn raised(event: AlertEvent) -> Raised {
        Raised {
            monitor: MonitorKey(1),
            about: Timestamp(1_800_000_000_000),
            event,
            turn: 0,
            to: "ops".into(),
            at: Timestamp(1_800_000_000_000),
            detail: (event == AlertEvent::Opened).then(|| "status 503 & <more>".into()),
        }
    }

    fn message(event: AlertEvent) -> Message {
        let labels = BTreeMap::from([("team".into(), "we\"b".into())]);
        let about = About {
            uuid: "u",
            monitor: "shop",
            namespace: "default",
            labels: &labels,
            since: Some(Timestamp(1_799_999_940_000)),
            closed_at: (event == AlertEvent::Closed).then_some(Timestamp(1_800_000_240_000)),
            evidence: Some("status 503 & <more>"),
        };
        Message::new(&raised(event), &about)
    }

    fn sent(channel: &str, event: AlertEvent) -> Check {
        let channel: ChannelSpec = serde_json::from_str(channel).unwrap();
        message(event).put_for(&channel.way, Timestamp(1_700_000_000_999)).unwrap()
    }

    #[test]
    fn an_alert_has_one_id_and_no_other_alert_has_it() {
        let one = id("u", &raised(AlertEvent::Opened));
        let later = Raised { at: Timestamp(9), detail: None, ..raised(AlertEvent::Opened) };
        assert_eq!(one, id("u", &later));
        for other in [
            raised(AlertEvent::Closed),
            Raised { turn: 1, ..raised(AlertEvent::Opened) },
            Raised { to: "ops2".into(), ..raised(AlertEvent::Opened) },
            Raised { about: Timestamp(1), ..raised(AlertEvent::Opened) },
        ] {
            assert_ne!(one, id("u", &other));
        }
    }

    #[test]
    fn a_webhook_is_signed_over_time_and_body() {
        let Check::Http(http) = sent(
            r#"{"name": "ops", "webhook": {"url": "http://x/", "secret": "s3cret", "headers": {"x-own": "v"},
                "template": "{\"what\": \"{{monitor}}/{{labels.team}}\"}"}}"#,
            AlertEvent::Opened,
        ) else {
            panic!()
        };
        assert_eq!((http.method.as_str(), http.body.as_str()), ("POST", r#"{"what": "shop/we\"b"}"#));
        assert_eq!(http.headers["x-own"], "v");
        // printf '1700000000.{"what": "shop/we\\"b"}' | openssl dgst -sha256 -hmac s3cret
        let signed = "t=1700000000,v1=d3fdadea548604360362092ca1c0de616cb41535edce7ad3eaeacfdd79ebccd3";
        assert_eq!(http.headers[SIGNATURE_HEADER], signed);
    }

    #[test]
    fn each_way_gets_what_it_understands() {
        let Check::Http(slack) = sent(r#"{"name": "c", "slack": {"url": "http://x/"}}"#, AlertEvent::Opened) else {
            panic!()
        };
        assert_eq!(slack.body, r#"{"text":"shop is down: status 503 &amp; &lt;more&gt;"}"#);
        let Check::Exec(exec) = sent(r#"{"name": "c", "exec": {"command": ["tell"]}}"#, AlertEvent::Closed) else {
            panic!()
        };
        assert_eq!(exec.env["MUTIRAO_ALERT_TEXT"], "shop is up again after 5m, was: status 503 & <more>");
        let whole: serde_json::Value = serde_json::from_str(&exec.env["MUTIRAO_ALERT"]).unwrap();
        assert_eq!((&whole["event"], &whole["labels"]["team"]), (&"closed".into(), &"we\"b".into()));
    }

    #[test]
    fn what_is_refused_for_good_is_not_tried_again() {
        let seen = |status| {
            let mut seen = Observation {
                ended: Ended::Answered,
                timings: Default::default(),
                seen: mutirao_probes::observation::Seen::default(),
            };
            (seen.seen.status, seen.seen.body) = (Some(status), b"no\n such".to_vec());
            answer(&seen)
        };
        assert_eq!(seen(204), Answer::Taken);
        assert_eq!(seen(503), Answer::NotNow("status 503: no such".into()));
        assert_eq!(seen(429), Answer::NotNow("status 429: no such".into()));
        assert_eq!(seen(404), Answer::Refused("status 404: no such".into()));
        assert_eq!(seen(302), Answer::Refused("status 302: no such".into()));
    }
}
