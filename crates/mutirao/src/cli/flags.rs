//! The API names fields, people type flags: a problem about the one is told in terms of the other. Pure.

use mutirao_core::Problem;

/// Fields and the flags that set them, the more exact first.
const FLAGS: &[(&str, &str)] = &[
    ("spread.array", "--array"),
    ("spread.entries", "--each-line"),
    ("spread.tasks", "--from-json"),
    ("spread", "--array/--each-line/--from-json"),
    ("task.retry.retries", "--retries"),
    ("task.timeout", "--timeout"),
    ("task.needs.cpus", "--cpus"),
    ("task.needs.memory", "--mem"),
    ("task.action.exec.command", "the command"),
    ("task.action.exec.env", "--env"),
    ("task.action.exec.dir", "--dir"),
    ("task.action.exec.stdin", "--stdin"),
    ("task", "the task"),
    ("Idempotency-Key", "--idempotency-key"),
    ("name", "--name"),
    ("queue", "--queue"),
    ("labels", "--label"),
    ("priority", "--priority"),
    ("crash_limit", "--crash-limit"),
    ("unique", "--unique"),
    ("after", "--after/--after-ok"),
    ("limits.running", "--running-max"),
    ("limits.starts_per_second", "--starts-per-second"),
    ("limits.waiting", "--waiting-max"),
    ("workers.cpus", "--worker-cpus"),
    ("workers.memory", "--worker-mem"),
    ("workers.labels", "--worker-label"),
    ("workers.layer", "--worker-layer"),
    ("elastic.min", "--workers-min"),
    ("elastic.max", "--workers-max"),
    ("defaults.timeout", "--timeout"),
    ("policy.fair_share.half_life", "--half-life"),
    ("policy.fair_share.by", "--share-by"),
    ("policy.fair_share.shares", "--share"),
    ("label", "--label"),
    ("state", "--state"),
    ("limit", "--limit"),
    ("cursor", "--cursor"),
    ("role", "--role"),
    ("expires_in", "--expires-in"),
    ("ttl", "--ttl"),
    ("min_rev", "--min-rev"),
    ("wait", "--wait"),
    ("Content-Type", "--content-type"),
    ("If-Match", "--if-revision"),
];

/// The same problem, with the flag in place of the field. A field without a flag stays as it is.
pub fn named(problem: Problem) -> Problem {
    let field = problem.field.map(|field| flag(&field).unwrap_or(field));
    Problem { field, ..problem }
}

fn flag(field: &str) -> Option<String> {
    let rest_of = |key: &str| field.strip_prefix(key).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let (flag, rest) = FLAGS.iter().find_map(|(key, flag)| Some((*flag, rest_of(key)?)))?;
    let position = || rest.strip_prefix('[')?.split(']').next()?.parse::<u64>().ok();
    Some(match (flag, position(), rest.strip_prefix('.')) {
        // Lines are counted from one.
        ("--each-line", Some(position), _) => format!("{flag}, line {}", position + 1),
        ("--from-json", Some(position), _) => match rest.split_once("].") {
            Some((_, part)) => format!("{flag}, task {}, {part}", position + 1),
            None => format!("{flag}, task {}", position + 1),
        },
        ("--env", _, Some(name)) => format!("{flag} {name}"),
        _ => flag.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_told_as_its_flag_and_one_without_a_flag_as_itself() {
        let told = |field: &str| named(Problem::invalid(field, "is wrong")).line();
        for (field, line) in [
            ("spread", "--array/--each-line/--from-json: is wrong"),
            ("spread.tasks[4].env", "--from-json, task 5, env: is wrong"),
            ("spread.array", "--array: is wrong"),
            ("spread.entries[4]", "--each-line, line 5: is wrong"),
            ("task.retry.retries", "--retries: is wrong"),
            ("task.needs.memory", "--mem: is wrong"),
            ("task.action.exec.env.HOME", "--env HOME: is wrong"),
            ("task.action.exec.command[3]", "the command: is wrong"),
            ("labels", "--label: is wrong"),
            ("queue", "--queue: is wrong"),
            ("queues", "queues: is wrong"),
            ("public_key", "public_key: is wrong"),
        ] {
            assert_eq!(told(field), line);
        }
        assert_eq!(named(Problem::internal()).field, None);
    }
}
