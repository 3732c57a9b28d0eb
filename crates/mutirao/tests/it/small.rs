//! A node on a small machine keeps little of the program in memory once it has started.

use std::process::{Child, Stdio};

use mutirao_testkit::wait;

use crate::said::{SOON, mutirao};

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kib(pid: u32, what: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_node_lets_go_of_what_only_its_start_needed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("node").display().to_string();
    // Nobody listens there: it goes on trying.
    let args =
        ["role", "node", "--id", "small", "--layer", "edge", "--transport", "mqtt", "--server", "mqtt://127.0.0.1:1"];
    let mut command = mutirao(&[&args[..], &["--user", "small", "--dir", &dir]].concat());
    command.env("MUTIRAO_NODE_PASSWORD", "x").stdout(Stdio::null()).stderr(Stdio::null());
    let node = Node(command.spawn().unwrap());
    let (now, most) = (|| kib(node.0.id(), "VmRSS"), || kib(node.0.id(), "VmHWM"));
    wait::until("it to let go", SOON, || now() > 0 && now() < most() / 4 * 3);
    // What a release build takes is measured by hand; what cannot be read again from its file is the same in any.
    assert!(kib(node.0.id(), "RssAnon") < 12 << 10, "{} KiB", kib(node.0.id(), "RssAnon"));
    assert_eq!(kib(node.0.id(), "Threads"), 1);
}
