//! A definition as it stands in a file.

use std::collections::BTreeMap;

use mutirao_core::quantity::Span;
use mutirao_probes::Check;
use mutirao_probes::check::{Dns, Exec, Http, Icmp, Tcp, Tls};
use serde::{Deserialize, Serialize};

use super::{MonitorSpec, Subject};
use crate::agenda::Missed;
use crate::alerts::rule::Rule;
use crate::health::Thresholds;
use crate::maintenance::Window;
use crate::placement::Place;
use crate::push::Push;

/// As it stands in a file: one key for each kind of check, of which one is there.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    name: String,
    every: Span,
    #[serde(default = "MonitorSpec::timeout")]
    timeout: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    http: Option<Http>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp: Option<Tcp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tls: Option<Tls>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dns: Option<Dns>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    icmp: Option<Icmp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exec: Option<Exec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    push: Option<Push>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    when: Vec<String>,
    #[serde(default)]
    retries: u32,
    #[serde(default)]
    thresholds: Thresholds,
    #[serde(default)]
    missed: Missed,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    maintenance: Vec<Window>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alerts: Vec<Rule>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on: Option<Place>,
    #[serde(default)]
    paused: bool,
}

impl TryFrom<Written> for MonitorSpec {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { http, tcp, tls, dns, icmp, exec, push, .. } = written;
        let checks = [
            http.map(Check::Http),
            tcp.map(Check::Tcp),
            tls.map(Check::Tls),
            dns.map(Check::Dns),
            icmp.map(Check::Icmp),
            exec.map(Check::Exec),
        ];
        let mut subjects = checks.into_iter().flatten().map(Subject::Check).chain(push.map(Subject::Push));
        let subject = match (subjects.next(), subjects.next()) {
            (Some(subject), None) => subject,
            (None, _) => return Err("it checks nothing: give one of http, tcp, tls, dns, icmp, exec or push".into()),
            (Some(one), Some(other)) => {
                return Err(format!(
                    "it has both {} and {}: a monitor makes one kind of check",
                    one.word(),
                    other.word()
                ));
            }
        };
        Ok(Self {
            name: written.name,
            every: written.every,
            timeout: written.timeout,
            subject,
            when: written.when,
            retries: written.retries,
            thresholds: written.thresholds,
            missed: written.missed,
            maintenance: written.maintenance,
            alerts: written.alerts,
            labels: written.labels,
            on: written.on,
            paused: written.paused,
        })
    }
}

impl From<MonitorSpec> for Written {
    fn from(spec: MonitorSpec) -> Self {
        let mut written = Self {
            name: spec.name,
            every: spec.every,
            timeout: spec.timeout,
            http: None,
            tcp: None,
            tls: None,
            dns: None,
            icmp: None,
            exec: None,
            push: None,
            when: spec.when,
            retries: spec.retries,
            thresholds: spec.thresholds,
            missed: spec.missed,
            maintenance: spec.maintenance,
            alerts: spec.alerts,
            labels: spec.labels,
            on: spec.on,
            paused: spec.paused,
        };
        match spec.subject {
            Subject::Check(Check::Http(ask)) => written.http = Some(ask),
            Subject::Check(Check::Tcp(ask)) => written.tcp = Some(ask),
            Subject::Check(Check::Tls(ask)) => written.tls = Some(ask),
            Subject::Check(Check::Dns(ask)) => written.dns = Some(ask),
            Subject::Check(Check::Icmp(ask)) => written.icmp = Some(ask),
            Subject::Check(Check::Exec(ask)) => written.exec = Some(ask),
            Subject::Push(push) => written.push = Some(push),
        }
        written
    }
}
