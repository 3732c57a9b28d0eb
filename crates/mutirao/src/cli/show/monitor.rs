//! How monitors look.

use mutirao_core::Timestamp;
use mutirao_core::quantity::Span;
use mutirao_monitors::alerts::channel::Way;
use mutirao_monitors::alerts::rule::Rule;
use mutirao_monitors::health::Verdict;
use mutirao_monitors::service::alerts::{AlertView, ChannelView};
use mutirao_monitors::service::history::{History, SumView, Uptime};
use mutirao_monitors::service::{IncidentView, MonitorView, OutcomeView, Tried};
use mutirao_monitors::spec::Subject;
use mutirao_monitors::store::alerts::Delivery;
use mutirao_monitors::{MonitorSpec, State};
use mutirao_probes::{Check, Ended, Phase};

use super::{ago, facts, one_line, or_dash, table};

pub fn monitors(views: &[MonitorView], now: Timestamp) -> String {
    let row = |view: &MonitorView| {
        [
            view.definition.name.clone(),
            state(view),
            view.definition.subject.word().into(),
            view.definition.every.to_string(),
            or_dash(view.last_at.map(|at| ago(at, now))),
            subject(&view.definition),
        ]
    };
    table(["NAME", "STATE", "KIND", "EVERY", "CHECKED", "WHAT"], views.iter().map(row))
}

pub fn monitor(view: &MonitorView, now: Timestamp) -> String {
    let spec = &view.definition;
    let mut told = vec![
        ("name", spec.name.clone()),
        ("state", state(view)),
        ("checks", format!("{} {}", spec.subject.word(), subject(spec))),
        ("every", spec.every.to_string()),
        ("timeout", spec.timeout.to_string()),
        ("when", if spec.when.is_empty() { "-".into() } else { spec.when.join("; ") }),
        ("retries", spec.retries.to_string()),
        ("down after", format!("{} bad", spec.thresholds.failures)),
        ("up after", format!("{} good", spec.thresholds.successes)),
        ("checked", or_dash(view.last_at.map(|at| format!("{} ago", ago(at, now))))),
        ("owner", one_line(&view.owner)),
    ];
    told.extend(uptimes(&view.uptime));
    told.push(("missed, last day", or_dash(view.missed_day.map(|missed| missed.to_string()))));
    if matches!(spec.subject, Subject::Push(_)) {
        told.push(("called", or_dash(view.called_at.map(|at| format!("{} ago", ago(at, now))))));
        told.push(("address", format!("shown when it was made; `mutirao monitor token {}` makes another", spec.name)));
    }
    if view.in_maintenance {
        told.push(("maintenance", "now: what is bad opens nothing".into()));
    }
    if !spec.alerts.is_empty() {
        let line = |rule: &Rule| match rule.remind {
            Some(remind) => format!("{}, again each {remind}", rule.to),
            None => rule.to.clone(),
        };
        told.push(("tells", one_line(&spec.alerts.iter().map(line).collect::<Vec<_>>().join("; "))));
    }
    if let Some(silence) = &view.silence {
        let why = silence.why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        told.push(("silenced", one_line(&format!("until {} by {}{why}", silence.until, silence.by))));
    }
    if let Some(known) = &view.acknowledged {
        told.push(("acknowledged", format!("{} ago by {}", ago(known.at, now), one_line(&known.by))));
    }
    if let Some(note) = &view.note {
        told.insert(2, ("why", one_line(&format!("no data: {note}"))));
    }
    if let Some(place) = &spec.on {
        told.push(("on", one_line(&place.to_string())));
    }
    if !spec.labels.is_empty() {
        let labels: Vec<String> = spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        told.push(("labels", one_line(&labels.join(" "))));
    }
    told.push((
        "changed",
        format!("{} ago by {}, revision {}", ago(view.changed_at, now), one_line(&view.changed_by), view.revision),
    ));
    facts(&told)
}

pub fn history(history: &History, now: Timestamp) -> String {
    let mut text = facts(&uptimes(&history.uptime));
    if !history.incidents.is_empty() {
        let row = |incident: &IncidentView| {
            let end = incident.closed_at.map_or("open".into(), |at| at.to_string());
            [incident.since.to_string(), end, one_line(&incident.evidence)]
        };
        text = format!("{text}\n\n{}", table(["DOWN SINCE", "UNTIL", "WHY"], history.incidents.iter().map(row)));
    }
    if !history.sums.is_empty() {
        let row = |sum: &SumView| {
            [
                sum.at.to_string(),
                or_dash(sum.uptime_percent.map(percent)),
                sum.good.to_string(),
                sum.bad.to_string(),
                sum.excused.to_string(),
                or_dash(sum.p50_us.map(millis)),
                or_dash(sum.p95_us.map(millis)),
                or_dash(sum.p99_us.map(millis)),
                millis(sum.longest_us),
            ]
        };
        let head = ["FROM", "UP", "GOOD", "BAD", "EXCUSED", "P50", "P95", "P99", "LONGEST"];
        return format!("{text}\n\n{}", table(head, history.sums.iter().map(row)));
    }
    let row = |outcome: &OutcomeView| {
        [
            format!("{} ago", ago(outcome.at, now)),
            word(outcome.verdict).into(),
            or_dash(outcome.took_us.map(millis)),
            or_dash(outcome.detail.as_deref().map(one_line)),
        ]
    };
    format!("{text}\n\n{}", table(["CHECKED", "OUTCOME", "TOOK", "WHY"], history.outcomes.iter().map(row)))
}

fn uptimes(uptime: &Uptime) -> Vec<(&'static str, String)> {
    let share = |share: Option<f64>| share.map_or("-".into(), percent);
    vec![
        ("up, last day", share(uptime.uptime_day_percent)),
        ("up, last 7 days", share(uptime.uptime_week_percent)),
        ("up, last 30 days", share(uptime.uptime_month_percent)),
        ("up, last 90 days", share(uptime.uptime_quarter_percent)),
    ]
}

pub fn alerts(views: &[AlertView], now: Timestamp) -> String {
    let row = |view: &AlertView| {
        let event = if view.reminder > 0 { format!("reminder {}", view.reminder) } else { view.event.to_string() };
        let delivery = match (view.delivery, view.next_at) {
            (Some(Delivery::Sent), _) => "sent".into(),
            (Some(Delivery::Dropped), _) => "not told".into(),
            (Some(Delivery::GivenUp), _) => "given up".into(),
            (None, Some(next)) if next > now => format!("in {}", ago(now, next)),
            (None, _) => "waits".into(),
        };
        [
            format!("{} ago", ago(view.raised_at, now)),
            event,
            one_line(&view.to),
            delivery,
            view.tries.to_string(),
            or_dash(view.note.as_deref().map(one_line)),
        ]
    };
    table(["RAISED", "EVENT", "TO", "TOLD", "TRIES", "WHY"], views.iter().map(row))
}

pub fn channels(views: &[ChannelView], now: Timestamp) -> String {
    let row = |ChannelView { definition, changed_at, changed_by }: &ChannelView| {
        let to = match &definition.way {
            Way::Webhook(webhook) if webhook.secret.is_some() => format!("{}, signed", webhook.url.0),
            Way::Webhook(webhook) => webhook.url.0.clone(),
            Way::Slack(slack) => slack.url.0.clone(),
            Way::Exec(program) => program.command.join(" "),
        };
        let changed = format!("{} ago by {changed_by}", ago(*changed_at, now));
        [definition.name.clone(), definition.way.word().into(), one_line(&to), one_line(&changed)]
    };
    table(["NAME", "WAY", "TO", "CHANGED"], views.iter().map(row))
}

pub fn tried(tried: &Tried) -> String {
    let mut told = vec![("outcome", word(tried.verdict).to_owned())];
    told.extend(tried.detail.as_deref().map(|why| ("why", one_line(why))));
    told.extend(tried.seen.seen.status.map(|status| ("status", status.to_string())));
    told.extend(tried.seen.seen.address.map(|address| ("address", address.to_string())));
    if let Some(certificate) = &tried.seen.seen.certificate {
        told.push(("certificate", format!("good for {} days more", certificate.days_left)));
    }
    if tried.seen.seen.reused {
        told.push(("connection", "reused".into()));
    }
    if !tried.seen.seen.answers.is_empty() {
        told.push(("answers", one_line(&tried.seen.seen.answers.join(", "))));
    }
    let phases = Phase::ALL.into_iter().filter_map(|phase| Some((phase, tried.seen.timings.of(phase)?)));
    told.extend(phases.map(|(phase, micros)| (name_of(phase), millis(micros))));
    told.push(("total", millis(tried.seen.timings.total)));
    if tried.seen.ended != Ended::Answered && tried.detail.is_none() {
        told.push(("ended", "without an answer".into()));
    }
    facts(&told)
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Dns => "name lookup",
        Phase::Connect => "connect",
        Phase::Tls => "tls",
        Phase::FirstByte => "first byte",
        Phase::Body => "body",
    }
}

fn state(view: &MonitorView) -> String {
    let word = match view.state {
        _ if view.definition.paused => "paused",
        State::New => "new",
        State::Up => "up",
        State::Down => "down",
        State::NoData => "no data",
    };
    if view.flapping { format!("{word}, flapping") } else { word.into() }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Good => "good",
        Verdict::Bad => "bad",
    }
}

fn subject(spec: &MonitorSpec) -> String {
    let check = match &spec.subject {
        Subject::Check(check) => check,
        Subject::Push(push) => return format!("with {} of grace", Span(push.grace(spec.every.0))),
    };
    one_line(&match check {
        Check::Http(http) if http.method == "GET" => http.url.clone(),
        Check::Http(http) => format!("{} {}", http.method, http.url),
        Check::Tcp(tcp) => tcp.address.clone(),
        Check::Tls(tls) => tls.address.clone(),
        Check::Dns(dns) => dns.name.clone(),
        Check::Icmp(icmp) => icmp.host.clone(),
        Check::Exec(exec) => exec.command.join(" "),
    })
}

/// What was not always up is never shown as if it had been.
fn percent(share: f64) -> String {
    let shown = (share * 1_000.0).floor() / 1_000.0;
    if shown >= 100.0 { "100 %".into() } else { format!("{shown:.3} %") }
}

fn millis(micros: u64) -> String {
    format!("{:.1} ms", micros as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_always_up_is_never_shown_as_if() {
        assert_eq!([100.0, 99.999_99, 99.9].map(percent), ["100 %", "99.999 %", "99.900 %"]);
    }
}
