//! How queues look.

use mutirao_core::Timestamp;
use mutirao_queues::explain::unreadable;
use mutirao_queues::{By, Explanation, Policy, QueueSpec, QueueView};

use super::{ago, facts, one_line, or_dash, size, table};

pub fn queues(queues: &[QueueView]) -> String {
    let row = |queue: &QueueView| {
        let spec = &queue.definition;
        [
            spec.name.to_string(),
            spec.policy.word().into(),
            state(queue).into(),
            or_dash(queue.load.map(|load| load.waiting)),
            or_dash(queue.load.map(|load| load.out)),
            or_dash(queue.load.map(|load| load.workers)),
            or_dash(spec.limits.running),
        ]
    };
    table(["NAME", "POLICY", "STATE", "WAITING", "OUT", "WORKERS", "RUNNING MAX"], queues.iter().map(row))
}

pub fn queue(queue: &QueueView, now: Timestamp) -> String {
    let spec = &queue.definition;
    let mut told = vec![
        ("name", spec.name.to_string()),
        ("state", state(queue).into()),
        ("policy", policy(spec)),
        ("waiting", or_dash(queue.load.map(|load| load.waiting))),
        ("out", or_dash(queue.load.map(|load| load.out))),
        ("workers", or_dash(queue.load.map(|load| load.workers))),
        ("running max", or_dash(spec.limits.running)),
        ("starts max", or_dash(spec.limits.starts_per_second.map(|rate| format!("{rate} in a second")))),
        ("waiting max", or_dash(spec.limits.waiting)),
        ("retries", or_dash(spec.defaults.retry.map(|retry| retry.retries))),
        ("timeout", or_dash(spec.defaults.timeout)),
        ("worker", worker(spec)),
    ];
    if let Some(why) = &queue.unreadable {
        told.truncate(2);
        told.push((
            "definition",
            one_line(&format!("{}; {}", unreadable::sentence(&spec.name, why), unreadable::remedy(&spec.name))),
        ));
    }
    told.extend(
        spec.elastic.as_ref().map(|elastic| ("elastic", format!("{} to {} workers", elastic.min, elastic.max))),
    );
    told.push((
        "changed",
        format!(
            "{} ({} ago) by {}, revision {}",
            queue.changed_at,
            ago(queue.changed_at, now),
            one_line(&queue.changed_by),
            queue.revision
        ),
    ));
    facts(&told)
}

fn state(queue: &QueueView) -> &'static str {
    match (&queue.unreadable, queue.definition.paused) {
        (Some(_), _) => "unreadable",
        (None, true) => "paused",
        (None, false) => "open",
    }
}

fn policy(spec: &QueueSpec) -> String {
    let Policy::FairShare(fair) = &spec.policy else { return spec.policy.word().into() };
    let by = match &fair.by {
        By::Owner => "owner".to_owned(),
        By::Label(label) => format!("label {label}"),
    };
    let shares: Vec<String> = fair.shares.iter().map(|(who, weight)| format!("{who}={weight}")).collect();
    let shares = if shares.is_empty() { String::new() } else { format!(", shares {}", shares.join(" ")) };
    one_line(&format!("fair_share by {by}, half-life {}{shares}", fair.half_life))
}

fn worker(spec: &QueueSpec) -> String {
    let workers = &spec.workers;
    let cpus = workers.cpus.map(|cpus| format!("cpus {cpus}"));
    let memory = workers.memory.map(|memory| size(memory.0));
    let layer = workers.layer.map(|layer| format!("layer {layer:?}").to_lowercase());
    let labels = workers.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let told: Vec<String> = cpus.into_iter().chain(memory).chain(layer).chain(labels).collect();
    or_dash((!told.is_empty()).then(|| one_line(&told.join(", "))))
}

/// What holds something back, each reason with its remedy under it.
pub fn explanation(explanation: &Explanation) -> String {
    let mut lines = vec![one_line(&explanation.summary)];
    for reason in &explanation.reasons {
        lines.push(format!("- {}", one_line(&reason.why)));
        lines.extend(reason.remedy.as_deref().map(|remedy| format!("  {}", one_line(remedy))));
    }
    lines.join("\n")
}
