//! Where alerts go, as people write it: one key for each way.
//!
//! ```yaml
//! kind: Channel
//! name: ops
//! webhook: { url: "https://pager.example.org/in", secret: "…", headers: { authorization: "Bearer …" } }
//! ---
//! kind: Channel
//! name: chat
//! slack: { url: "https://hooks.slack.com/services/…" }
//! ```
//!
//! Secrets, the values of headers and all of a URL but its host are never shown: [`ChannelSpec::shown`] is what people see.
//! Who sends that back means what is kept ([`ChannelSpec::keeping`]).

use std::collections::BTreeMap;
use std::fmt;

use mutirao_core::Problem;
use mutirao_probes::Check;
use mutirao_probes::check::{Exec, Http};
use serde::{Deserialize, Serialize};

use super::template;

const NAME_CHARS_MAX: usize = 100;
const SECRET_CHARS_MAX: usize = 1_000;
/// Stands for what is not shown.
pub const HIDDEN: &str = "***";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ChannelSpec {
    pub name: String,
    pub way: Way,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    Webhook(Webhook),
    Slack(Slack),
    Exec(Program),
}

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Webhook {
    pub url: Secret,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// What is sent, with `{{names}}`; without it, all there is to say, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// What the body is signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Secret>,
}

/// Anything that takes what Slack takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    pub url: Secret,
}

/// A program that is given the message as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub command: Vec<String>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<Webhook>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slack: Option<Slack>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exec: Option<Program>,
}

impl TryFrom<Written> for ChannelSpec {
    type Error = String;

    fn try_from(Written { name, webhook, slack, exec }: Written) -> Result<Self, String> {
        let ways = [webhook.map(Way::Webhook), slack.map(Way::Slack), exec.map(Way::Exec)];
        let mut ways = ways.into_iter().flatten();
        match (ways.next(), ways.next()) {
            (Some(way), None) => Ok(Self { name, way }),
            (None, _) => Err("it leads nowhere: give one of webhook, slack or exec".into()),
            (Some(one), Some(other)) => {
                Err(format!("it has both {} and {}: a channel goes one way", one.word(), other.word()))
            }
        }
    }
}

impl From<ChannelSpec> for Written {
    fn from(ChannelSpec { name, way }: ChannelSpec) -> Self {
        let mut written = Self { name, webhook: None, slack: None, exec: None };
        match way {
            Way::Webhook(way) => written.webhook = Some(way),
            Way::Slack(way) => written.slack = Some(way),
            Way::Exec(way) => written.exec = Some(way),
        }
        written
    }
}

impl Way {
    pub fn word(&self) -> &'static str {
        match self {
            Way::Webhook(_) => "webhook",
            Way::Slack(_) => "slack",
            Way::Exec(_) => "exec",
        }
    }
}

impl ChannelSpec {
    pub fn check(&self) -> Result<(), Problem> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || self.name.len() > NAME_CHARS_MAX || !self.name.chars().all(fits) {
            let detail = format!("a name has 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes and underscores");
            return Err(Problem::invalid("name", detail));
        }
        match &self.way {
            Way::Webhook(webhook) => webhook.check().map_err(|problem| problem.under("webhook")),
            Way::Slack(slack) => post(&slack.url, BTreeMap::new()).map_err(|problem| problem.under("slack")),
            Way::Exec(program) => Check::Exec(Exec { command: program.command.clone(), env: BTreeMap::new() }).check(),
        }
    }

    /// As people may see it.
    pub fn shown(&self) -> Self {
        let way = match &self.way {
            Way::Webhook(Webhook { url, headers, template, secret }) => Way::Webhook(Webhook {
                url: shown_url(url),
                headers: headers.keys().map(|name| (name.clone(), Secret(HIDDEN.into()))).collect(),
                template: template.clone(),
                secret: secret.as_ref().map(|_| Secret(HIDDEN.into())),
            }),
            Way::Slack(Slack { url }) => Way::Slack(Slack { url: shown_url(url) }),
            Way::Exec(program) => Way::Exec(program.clone()),
        };
        Self { name: self.name.clone(), way }
    }

    /// With what is kept wherever this says what is shown of it.
    pub fn keeping(mut self, there: Option<&ChannelSpec>) -> Result<Self, Problem> {
        match (&mut self.way, there.map(|there| &there.way)) {
            (Way::Webhook(new), Some(Way::Webhook(old))) => {
                keep(&mut new.url, Some(&old.url), shown_url);
                // What is kept goes nowhere but where it went before.
                if new.url == old.url {
                    for (name, value) in &mut new.headers {
                        keep(value, old.headers.get(name), hidden);
                    }
                    if let Some(secret) = &mut new.secret {
                        keep(secret, old.secret.as_ref(), hidden);
                    }
                }
            }
            (Way::Slack(new), Some(Way::Slack(old))) => keep(&mut new.url, Some(&old.url), shown_url),
            _ => {}
        }
        let mut texts: Vec<(&str, &Secret)> = Vec::new();
        match &self.way {
            Way::Webhook(Webhook { url, headers, secret, .. }) => {
                texts.push(("webhook.url", url));
                texts.extend(headers.values().map(|value| ("webhook.headers", value)));
                texts.extend(secret.iter().map(|secret| ("webhook.secret", secret)));
            }
            Way::Slack(Slack { url }) => texts.push(("slack.url", url)),
            Way::Exec(_) => {}
        }
        match texts.into_iter().find(|(_, text)| text.0.ends_with(HIDDEN)) {
            Some((field, _)) => {
                Err(Problem::invalid(field, format!("{HIDDEN} stands for what is kept, and nothing is kept for this"))
                    .remedy("write the value itself"))
            }
            None => Ok(self),
        }
    }
}

impl Webhook {
    fn check(&self) -> Result<(), Problem> {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        post(&self.url, headers)?;
        if let Some(template) = &self.template {
            template::check(template).map_err(|error| Problem::invalid("template", error.to_string()))?;
        }
        match &self.secret {
            Some(Secret(secret)) if secret.is_empty() || secret.chars().count() > SECRET_CHARS_MAX => {
                Err(Problem::invalid("secret", format!("a secret has 1 to {SECRET_CHARS_MAX} characters")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether something could be sent there.
fn post(url: &Secret, headers: BTreeMap<String, String>) -> Result<(), Problem> {
    let request = Http { method: "POST".into(), headers, ..Http::new(&url.0) };
    Check::Http(request).check().map_err(|mut problem| {
        problem.field = problem.field.map(|field| field.trim_start_matches("http.").to_owned());
        problem
    })
}

fn keep(new: &mut Secret, old: Option<&Secret>, shown: impl Fn(&Secret) -> Secret) {
    if let Some(old) = old.filter(|old| shown(old) == *new) {
        *new = old.clone();
    }
}

fn hidden(_: &Secret) -> Secret {
    Secret(HIDDEN.into())
}

/// Many a URL is a secret itself: who knows it may post. The host says whose it is.
fn shown_url(Secret(url): &Secret) -> Secret {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    Secret(format!("{scheme}://{host}/{HIDDEN}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> ChannelSpec {
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"))
    }

    const WHOLE: &str = r#"{"name": "ops", "webhook": {"url": "https://pager.example.org:8443/in/tok?k=v",
        "headers": {"authorization": "Bearer geheim"}, "secret": "noch geheimer"}}"#;

    #[test]
    fn what_is_secret_is_shown_to_nobody_and_kept_when_it_comes_back_as_shown() {
        let spec = read(WHOLE);
        assert!(spec.check().is_ok());
        for text in [serde_json::to_string(&spec.shown()).unwrap(), format!("{spec:?}")] {
            assert!(!["geheim", "geheimer", "tok", "k=v"].iter().any(|word| text.contains(word)), "{text}");
        }
        let shown = serde_json::to_string(&spec.shown()).unwrap();
        assert!(shown.contains("https://pager.example.org:8443/***"), "{shown}");
        assert_eq!(read(&shown).keeping(Some(&spec)).unwrap(), spec);
        assert!(read(&shown).keeping(None).unwrap_err().line().starts_with("webhook.url: *** stands for"));
        let elsewhere = shown.replace("pager.example.org", "evil.example.org");
        assert!(read(&elsewhere).keeping(Some(&spec)).is_err());
        let elsewhere = shown.replace("pager.example.org:8443/***", "evil.example.org/");
        let line = read(&elsewhere).keeping(Some(&spec)).unwrap_err().line();
        assert!(line.starts_with("webhook.headers: ***"), "what is kept goes nowhere else: {line}");
        assert_eq!(read(&serde_json::to_string(&spec).unwrap()), spec);
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        for (json, words) in [
            (r#"{"name": "a b", "slack": {"url": "https://x/y"}}"#, "name: a name has"),
            (r#"{"name": "a", "slack": {"url": "nowhere"}}"#, "slack.url: "),
            (r#"{"name": "a", "webhook": {"url": "ftp://x"}}"#, "webhook.url: "),
            (
                r#"{"name": "a", "webhook": {"url": "http://x", "template": "{{x}}"}}"#,
                "webhook.template: there is no x",
            ),
            (r#"{"name": "a", "webhook": {"url": "http://x", "secret": ""}}"#, "webhook.secret: "),
            (r#"{"name": "a", "webhook": {"url": "http://x", "headers": {"a b": "c"}}}"#, "webhook.headers"),
            (r#"{"name": "a", "exec": {"command": []}}"#, "exec.command"),
        ] {
            let line = read(json).check().expect_err(json).line();
            assert!(line.starts_with(words), "{json} gave {line}");
        }
        for (json, words) in [
            (r#"{"name": "a"}"#, "it leads nowhere"),
            (r#"{"name": "a", "slack": {"url": "x"}, "exec": {"command": ["x"]}}"#, "both slack and exec"),
            (r#"{"name": "a", "webhook": {"ulr": "x"}}"#, "unknown field `ulr`"),
        ] {
            let error = serde_json::from_str::<ChannelSpec>(json).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
