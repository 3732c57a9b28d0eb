//! The page of metrics is what a manager gives, neither more nor less, word for word.

use std::collections::{BTreeMap, BTreeSet};

use mutirao_testkit::{Installation, wait};

use crate::said::SOON;

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// What is said about a metric.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// Rows of the table: name, type, labels, meaning.
fn on_the_page() -> BTreeMap<String, Said> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `mutirao_"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        let said = Said { kind: cells[1].into(), help: cells[3].into(), labels };
        (format!("mutirao_{}", cells[0].trim_end_matches('`')), said)
    };
    rows.map(row).collect()
}

fn given(text: &str) -> BTreeMap<String, Said> {
    let mut given: BTreeMap<String, Said> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            given.entry(name.into()).or_default().help = help.into();
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            given.entry(name.into()).or_default().kind = kind.into();
        } else if let Some((series, labels)) = line.split_once('{') {
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                series.strip_suffix(end).filter(|name| given.get(*name).is_some_and(|said| said.kind == "histogram"))
            });
            let inside = labels.split_once('}').map_or("", |(inside, _)| inside);
            let names = inside.split("\",").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name.to_owned());
            let said = given.entry(name.unwrap_or(series).into()).or_default();
            said.labels.extend(names.filter(|name| name != "le"));
        }
    }
    given
}

#[test]
fn the_page_of_metrics_is_what_a_manager_gives() {
    let up = Installation::start();
    up.ok(&["submit", "--wait", "--array", "1-5", "--", "true"]);
    up.ok(&["kv", "put", "greeting", "hello"]);
    up.ok(&["kv", "get", "greeting"]);
    let health = format!("{}/healthz", up.url());
    up.ok(&["monitor", "add", "self", "--http", &health, "--every", "1s", "--timeout", "900ms"]);
    let page = on_the_page();
    assert!(page.len() > 10, "the table was not found");
    // Gauges are brought up to date every few seconds.
    let read = || given(&up.request("GET /metrics", b"").text());
    let complete = wait::holds_within(SOON, || read() == page);
    let found = read();
    if !complete {
        for (name, said) in &page {
            assert_eq!(found.get(name), Some(said), "{name}, on the page and not so in /metrics");
        }
        for name in found.keys() {
            assert!(page.contains_key(name), "{name} is in /metrics and not on the page");
        }
    }
}
