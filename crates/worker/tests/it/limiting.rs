//! Limits kept by the kernel, where it lets us.

use mutirao_core::Verdict;
use mutirao_core::quantity::Bytes;
use mutirao_worker::CpuLimit;

use crate::stage::{Stage, shell};

fn can_limit() -> bool {
    let notices = mutirao_worker::notices();
    for notice in &notices {
        eprintln!("skipped: {notice}");
    }
    notices.is_empty()
}

#[tokio::test]
async fn a_task_that_uses_too_much_memory_is_killed_and_told_why() {
    if !can_limit() {
        return;
    }
    let stage = Stage::set().await;
    let mut spec = shell("head -c 300000000 /dev/zero | tail");
    spec.needs.memory = Bytes(64 << 20);
    let outcome = stage.outcome(spec.clone()).await;
    assert_eq!(outcome.verdict, Verdict::Failed, "{outcome:?}");
    assert_eq!(outcome.reason.as_deref(), Some("killed: used more than its 64MiB of memory"));
    let modest = stage.outcome({
        let mut spec = shell("echo fine");
        spec.needs.memory = Bytes(64 << 20);
        spec
    });
    let modest = modest.await;
    assert_eq!((modest.verdict, modest.reason), (Verdict::Ok, None));
    let peak = modest.usage.memory_peak_bytes.unwrap();
    assert!((1..64 << 20).contains(&peak), "{peak}");
    let own_groups = groups_of(&stage.session.0);
    assert!(own_groups.iter().all(|group| !group.ends_with(".1.3-1")), "{own_groups:?}");
    let session = stage.session.0.clone();
    stage.end().await.unwrap();
    assert_eq!(groups_of(&session), Vec::<String>::new());
}

#[tokio::test]
async fn a_task_is_held_to_its_cpus_where_that_is_asked_for() {
    if !can_limit() {
        return;
    }
    let stage = Stage::set_with(|config| config.cpu_limit = CpuLimit::Enforced).await;
    let mut spec = shell("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done");
    spec.needs.cpus = "200m".parse().unwrap();
    let outcome = stage.outcome(spec).await;
    let cpu_us = outcome.usage.cpu_user_us + outcome.usage.cpu_system_us;
    assert!(outcome.usage.wall_us > 3 * cpu_us, "{:?}", outcome.usage);
}

/// Control groups anywhere whose path holds `text`.
fn groups_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path();
                if path.to_string_lossy().contains(text) {
                    found.push(path.display().to_string());
                }
                left.push(path);
            }
        }
    }
    found
}
