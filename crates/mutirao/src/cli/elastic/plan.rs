//! `mutirao elastic plan` in words.

use mutirao_elastic::packing::Market;
use mutirao_elastic::view::{EmptyPlan, LeavePlan, MakePlan, Plan, QueuePlan};

/// Workers of one queue that leave are named up to so many.
const NAMED_MAX: usize = 10;

pub fn plan(plan: &Plan, holder: String) -> String {
    let mut lines = vec![holder];
    let acts = plan.holder.as_ref().is_some_and(|holder| holder.silent_since.is_none());
    lines.push(match acts {
        true => "what it would do now; nothing was done:".into(),
        false => "what one would do that took over now; nothing was done:".into(),
    });
    if plan.queues.is_empty() {
        lines.push("no queue is elastic; `elastic:` in its definition makes it so (docs/elastic.md)".into());
    }
    plan.queues.iter().for_each(|queue| lines.extend(of_queue(queue)));
    lines.extend(plan.empty.iter().map(empty));
    if !plan.idle.is_empty() {
        lines.push(format!(
            "{} made and with nobody, given back when that has lasted: {}",
            plan.idle.len(),
            named(&plan.idle)
        ));
    }
    lines.extend(plan.held.iter().map(|why| format!("held back: {why}")));
    let quiet = |queue: &QueuePlan| {
        queue.place.is_empty() && queue.make.is_empty() && queue.drain.is_empty() && queue.end.is_empty()
    };
    if !plan.queues.is_empty() && plan.queues.iter().all(quiet) && plan.empty.is_empty() {
        lines.push("nothing would be done now".into());
    }
    lines.join("\n")
}

fn of_queue(queue: &QueuePlan) -> Vec<String> {
    let QueuePlan { queue: name, standing, wanted, because, place, make, drain, end, held } = queue;
    let wanted = wanted.map_or("nothing decided".into(), |wanted| format!("{wanted} wanted"));
    let why = because.as_ref().map_or_else(String::new, |because| format!(": {because}"));
    let mut lines = vec![format!("{name}: {standing} there or coming, {wanted}{why}")];
    lines.extend(place.iter().map(|place| format!("  start {} on {}", place.workers, place.node)));
    lines.extend(make.iter().map(made));
    lines.extend(leave("drain", drain));
    lines.extend(leave("end", end));
    lines.extend(held.iter().map(|why| format!("  held back: {why}")));
    lines
}

fn made(make: &MakePlan) -> String {
    let MakePlan { kind, nodes, market, price_micros_per_hour, expected_micros_per_hour } = make;
    let market = match market {
        Market::OnDemand => "on demand",
        Market::Reserved => "reserved, paid for already",
        Market::Spot => "spot",
    };
    let redone = match market {
        "spot" => format!(", {} with what would be begun again", money(*expected_micros_per_hour)),
        _ => String::new(),
    };
    format!("  make {nodes} {kind} ({market}, {} an hour{redone})", money(*price_micros_per_hour))
}

fn leave(what: &str, all: &[LeavePlan]) -> Vec<String> {
    let one = |leave: &LeavePlan| {
        let at = leave.node.as_ref().map_or_else(String::new, |node| format!(" on {node}"));
        format!("  {what} {}{at}: {}", leave.worker, leave.because)
    };
    let mut lines: Vec<String> = all.iter().take(NAMED_MAX).map(one).collect();
    if all.len() > NAMED_MAX {
        lines.push(format!("  {what} {} more (--json has all)", all.len() - NAMED_MAX));
    }
    lines
}

fn empty(empty: &EmptyPlan) -> String {
    let EmptyPlan { because, draining_micros, killing_micros, .. } = empty;
    let beside = match killing_micros {
        0 => String::new(),
        killing => format!(
            " (until then it costs {}; ending its tasks at once would throw away {})",
            money(*draining_micros),
            money(*killing)
        ),
    };
    format!("{because}{beside}")
}

fn named(all: &[String]) -> String {
    let first = all.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED_MAX { format!("{first}, …") } else { first }
}

fn money(micros: u64) -> String {
    format!("{:.4}", micros as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use mutirao_elastic::view::PlacePlan;

    use super::*;

    #[test]
    fn a_plan_reads_as_what_would_be_done_and_why() {
        let queue = QueuePlan {
            queue: "gpu".parse().unwrap(),
            standing: 1,
            wanted: Some(5),
            because: Some("5 ready and 0 running tasks need 5".into()),
            place: vec![PlacePlan { node: "a".into(), workers: 2 }],
            make: vec![MakePlan {
                kind: "small".into(),
                nodes: 2,
                market: Market::Spot,
                price_micros_per_hour: 300_000,
                expected_micros_per_hour: 330_000,
            }],
            drain: Vec::new(),
            end: Vec::new(),
            held: vec!["2 more follow when the nodes are there".into()],
        };
        let said = plan(&Plan { queues: vec![queue], ..Plan::default() }, "no resource manager acts".into());
        for part in [
            "no resource manager acts\nwhat one would do that took over now; nothing was done:\n",
            "gpu: 1 there or coming, 5 wanted: 5 ready and 0 running tasks need 5",
            "  start 2 on a",
            "  make 2 small (spot, 0.3000 an hour, 0.3300 with what would be begun again)",
            "  held back: 2 more follow",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let nothing = plan(&Plan::default(), String::new());
        assert!(nothing.contains("no queue is elastic"), "{nothing}");
    }
}
