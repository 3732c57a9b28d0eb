//! `mutirao doctor`: looks at the set-up, line by line, and says how to mend what is wrong.

mod api;
mod broker;
mod cache;
mod database;
mod hooks;
mod hosts;
mod installation;
mod machine;
mod tls;

use mutirao_core::{Clock, SystemClock};
use serde::Serialize;

use crate::cli::{Globals, Out, Paint};
use crate::failure::{Exit, Failure};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mark {
    Ok,
    Warn,
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    what: &'static str,
    mark: Mark,
    /// What was found.
    found: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, mark: Mark::Ok, found: found.into(), remedy: None }
    }

    fn warn(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, mark: Mark::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, mark: Mark::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn line(&self, paint: Paint) -> String {
        let mark = match self.mark {
            Mark::Ok => paint.green("ok  "),
            Mark::Warn => paint.yellow("warn"),
            Mark::Fail => paint.red("fail"),
        };
        let remedy = self.remedy.as_deref().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("{mark}  {:13} {}{remedy}", self.what, self.found)
    }
}

pub async fn run(globals: &Globals) -> Result<(), Failure> {
    let out = Out::new(globals.shape());
    let config = globals.config(vec![])?;
    let mut findings = machine::look(&config);
    findings.extend(database::look(&config, &SystemClock).await);
    findings.extend(broker::look(&config.settings).await);
    findings.extend(cache::look(&config.settings).await);
    findings.extend(hosts::look(&config.settings).await);
    findings.extend(hooks::look(&config.settings).await);
    findings.extend(tls::files(&config.settings, SystemClock.now()));
    findings.extend(api::look(&config.settings, &SystemClock).await);
    let paint = Paint::for_stdout();
    out.answer(&findings, |all| all.iter().map(|finding| finding.line(paint)).collect::<Vec<_>>().join("\n"))?;
    if findings.iter().any(|finding| finding.mark == Mark::Fail) {
        return Err(Failure::Silent { code: Exit::Failed as u8 });
    }
    Ok(())
}
