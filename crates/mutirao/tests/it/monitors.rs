//! Monitors as a user meets them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mutirao_testkit::{Installation, wait};
use serde_json::Value;

use crate::said::{SOON, Said};

/// A service that is well until it is told not to be.
pub fn service() -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let well = Arc::new(AtomicBool::new(true));
    let is_well = well.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let word = if is_well.load(Ordering::Relaxed) { "200 OK" } else { "500 Oh" };
            let _ = write!(stream, "HTTP/1.1 {word}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi");
        }
    });
    (format!("http://{address}/"), well)
}

pub fn state(up: &Installation, name: &str) -> String {
    let view: Value = serde_json::from_str(&up.ok(&["--json", "monitor", "show", name])).unwrap();
    view["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_service_is_watched_through_its_troubles_and_through_a_kill_of_the_manager() {
    let (url, well) = service();
    let mut up = Installation::setup().workers(0).start();
    let add = ["monitor", "add", "shop", "--http", &url, "--every", "1s", "--timeout", "900ms", "--failures", "2"];
    assert!(up.ok(&add).contains("monitor shop is checked from now on, every 1s"));
    wait::until("it to be up", SOON, || state(&up, "shop") == "up");
    well.store(false, Ordering::Relaxed);
    wait::until("it to be down", SOON, || state(&up, "shop") == "down");
    up.kill9_everything();
    up.restart();
    assert_eq!(state(&up, "shop"), "down", "what was believed is not forgotten");
    well.store(true, Ordering::Relaxed);
    wait::until("it to be up again", SOON, || state(&up, "shop") == "up");
    let history: Value = serde_json::from_str(&up.ok(&["--json", "monitor", "history", "shop"])).unwrap();
    let incidents = history["incidents"].as_array().unwrap();
    assert!(incidents.len() == 1 && incidents[0]["closed_at"].is_i64(), "{history}");
    assert_eq!(incidents[0]["evidence"], "status 500");
    let shown = up.ok(&["monitor", "history", "shop"]);
    assert!(shown.contains("up, last day") && shown.contains("status 500"), "{shown}");
}

#[test]
fn one_check_can_be_made_at_once_and_ends_as_it_ends() {
    let (url, well) = service();
    let up = Installation::setup().workers(0).start();
    up.ok(&["monitor", "add", "shop", "--http", &url, "--when", "status == 200"]);
    let good = Said::from(up.cli(&["monitor", "run", "shop"]));
    assert!(good.code == Some(0) && good.out.contains("first byte") && good.out.contains("200"), "{good:?}");
    well.store(false, Ordering::Relaxed);
    let bad = Said::from(up.cli(&["monitor", "run", "shop"]));
    assert!(bad.code == Some(1) && bad.out.contains("status == 200 does not hold"), "{bad:?}");
}

#[test]
fn what_cannot_work_is_refused_in_one_line_and_a_bad_row_fails_the_file_whole() {
    let up = Installation::setup().workers(0).start();
    for (args, words) in [
        (&["--http", "nowhere"][..], "http.url"),
        (&["--tcp", "x:1", "--when", "stat == 1"], "has no \"stat\""),
        (&["--tcp", "x:1", "--every", "1s"], "every: 1s is shorter than a check may take"),
        (&["--exec", "cat", "admin.token"], "monitors.exec=allowed"),
        (&[], "what is to be checked?"),
    ] {
        let said = Said::from(up.cli(&[&["monitor", "add", "m"], args].concat()));
        assert!(said.code != Some(0) && said.err.lines().count() == 1 && said.err.contains(words), "{said:?}");
    }
    let file = up.data().join("m.yaml");
    std::fs::write(
        &file,
        "kind: Monitor\nname: good\nevery: 1m\ntcp: { address: 'x:1' }\n---\nkind: Monitor\nname: one\nevery: 1m\n---\n\
         kind: Monitor\nname: two\nevery: 1s\nicmp: { host: x }\n",
    )
    .unwrap();
    let said = Said::from(up.cli(&["apply", "-f", file.to_str().unwrap()]));
    assert!(said.err.contains("document 2: it checks nothing") && said.err.contains("document 3: every"), "{said:?}");
    assert_eq!(up.ok(&["--json", "monitor", "list"]).trim(), "[]", "nothing is half made");
    std::fs::write(&file, "kind: Monitor\nname: good\nevery: 1m\ntcp: { address: 'x:1' }\n").unwrap();
    assert!(up.ok(&["apply", "-f", file.to_str().unwrap()]).contains("monitor good was made"));
    assert!(up.ok(&["apply", "-f", file.to_str().unwrap()]).contains("monitor good is as declared already"));
}

/// Something that takes what is posted to it.
fn pager() -> (String, Arc<std::sync::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = heard.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                let length = |head: &str| {
                    let line = head.lines().find(|line| line.to_lowercase().starts_with("content-length"))?;
                    line.split(": ").nth(1)?.trim().parse::<usize>().ok()
                };
                if let Some((head, body)) = text.split_once("\r\n\r\n")
                    && body.len() >= length(head).unwrap_or(0)
                {
                    break;
                }
            }
            hears.lock().unwrap().push(text);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    (format!("http://{address}/in/geheim"), heard)
}

#[test]
fn people_are_told_and_can_say_that_they_know_or_want_quiet() {
    let ((url, well), (hook, heard)) = (service(), pager());
    let up = Installation::setup().workers(0).start();
    let file = up.data().join("all.yaml");
    let text = format!(
        "kind: Monitor\nname: shop\nevery: 1s\ntimeout: 900ms\nhttp: {{ url: '{url}' }}\nthresholds: {{ failures: 2 }}\n\
         alerts: [ {{ to: ops, remind: 1h }} ]\n---\nkind: Channel\nname: ops\nwebhook: {{ url: '{hook}', secret: s3cret }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let said = up.ok(&["apply", "-f", file.to_str().unwrap()]);
    assert!(said.contains("channel ops was made") && said.contains("monitor shop was made"), "{said}");
    for shown in [up.ok(&["monitor", "channel", "list"]), up.ok(&["--json", "monitor", "channel", "show", "ops"])] {
        assert!(shown.contains("127.0.0.1") && !shown.contains("geheim") && !shown.contains("s3cret"), "{shown}");
    }
    assert!(up.ok(&["monitor", "channel", "test", "ops"]).contains("channel ops took it"));
    let early = Said::from(up.cli(&["monitor", "ack", "shop"]));
    assert!(early.code != Some(0) && early.err.contains("no incident of shop is open"), "{early:?}");
    well.store(false, Ordering::Relaxed);
    let told =
        || heard.lock().unwrap().iter().any(|text| text.contains("\"event\":\"opened\"") && text.contains("\"shop\""));
    wait::until("somebody to be told", SOON, told);
    wait::until("that to be written", SOON, || up.ok(&["monitor", "alerts", "shop"]).contains("sent"));
    assert!(up.ok(&["monitor", "ack", "shop"]).contains("nobody is reminded any more"));
    assert!(up.ok(&["monitor", "silence", "shop", "--for", "2h", "--why", "new disks"]).contains("until 20"));
    let shown = up.ok(&["monitor", "show", "shop"]);
    assert!(
        ["acknowledged", "silenced", "new disks", "ops, again each 1h"].iter().all(|word| shown.contains(word)),
        "{shown}"
    );
    up.ok(&["monitor", "unsilence", "shop"]);
    assert!(!up.ok(&["monitor", "show", "shop"]).contains("silenced"));

    let kept = Said::from(up.cli(&["monitor", "channel", "rm", "ops"]));
    assert!(kept.code == Some(1) && kept.err.contains("a monitor tells channel ops"), "{kept:?}");
    up.ok(&["monitor", "channel", "rm", "ops", "--force"]);
    assert!(up.ok(&["monitor", "pause", "shop"]).contains("paused"), "one that could not be made today");
}
