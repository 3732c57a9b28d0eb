//! Name servers, echoes and programs.

use std::time::Duration;

use mutirao_core::Clock;
use mutirao_core::SystemClock;
use mutirao_probes::{Ended, Phase};
use tokio::net::UdpSocket;

use crate::server::{SOON, run};

/// Answers every question for addresses of version 4 with these.
async fn name_server(addresses: &'static [[u8; 4]]) -> std::net::SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            // The question ends with the name's zero, its type and its class; what comes after is not for us.
            let name = question[12..length].iter().position(|byte| *byte == 0).unwrap();
            let asked = &question[12..12 + name + 5];
            let mut answer = question[..2].to_vec();
            answer.extend([0x81, 0x80, 0, 1, 0, addresses.len() as u8, 0, 0, 0, 0]);
            answer.extend(asked);
            for ip in addresses {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend(ip);
            }
            let _ = socket.send_to(&answer, from).await;
        }
    });
    address
}

#[tokio::test]
async fn a_name_server_is_asked_for_the_record_and_nothing_else() {
    let server = name_server(&[[192, 0, 2, 9], [192, 0, 2, 7]]).await;
    let found = run(&format!(r#"{{"dns": {{"name": "shop.example.org", "server": "{server}"}}}}"#), SOON).await;
    assert_eq!(found.ended, Ended::Answered);
    assert_eq!(found.seen.answers, ["192.0.2.7", "192.0.2.9"]);
    let found = run(r#"{"dns": {"name": "shop.example.org", "server": "169.254.169.253:53"}}"#, SOON).await;
    assert!(matches!(found.ended, Ended::Failed { why, .. } if why.contains("not probed")));
}

#[tokio::test]
async fn this_machine_answers_an_echo() {
    for host in ["127.0.0.1", "::1"] {
        let found = run(&format!(r#"{{"icmp": {{"host": "{host}"}}}}"#), SOON).await;
        match found.ended {
            Ended::Answered => assert!(found.timings.of(Phase::FirstByte).is_some()),
            // Where neither is allowed, and where there is no version 6, the remedy is told.
            Ended::Failed { why, .. } => assert!(why.contains("ping_group_range") || host == "::1", "{why}"),
            ended => panic!("{host}: {ended:?}"),
        }
    }
}

#[tokio::test]
async fn a_program_s_end_and_output_are_seen() {
    let found = run(r#"{"exec": {"command": ["sh", "-c", "echo LOAD WARNING; exit 1"]}}"#, SOON).await;
    assert_eq!((found.ended, found.seen.exit), (Ended::Answered, Some(1)));
    assert_eq!(found.seen.body, b"LOAD WARNING\n");
    let found = run(r#"{"exec": {"command": ["/no/such/program"]}}"#, SOON).await;
    assert!(matches!(found.ended, Ended::Failed { why, .. } if why.contains("/no/such/program cannot be run")));
    let found = run(r#"{"exec": {"command": ["sh", "-c", "env | wc -l"], "env": {"A": "b"}}}"#, SOON).await;
    let lines: u32 = String::from_utf8(found.seen.body).unwrap().trim().parse().unwrap();
    // A shell adds its own PWD and the like; what this process has is not there.
    assert!(lines <= 6, "{lines}");
}

#[tokio::test]
async fn a_program_that_writes_for_ever_or_leaves_children_behind_is_ended_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("beats");
    let script = format!("while :; do echo x >> {}; sleep 0.05; done & while :; do echo rubbish; done", file.display());
    let check = serde_json::json!({ "exec": { "command": ["sh", "-c", script] } }).to_string();
    let found = run(&check, Duration::from_millis(700)).await;
    assert_eq!(found.ended, Ended::TimedOut { phase: Phase::FirstByte });
    let beats = || std::fs::metadata(&file).map_or(0, |data| data.len());
    // What is being killed may still finish a write.
    SystemClock.sleep(Duration::from_millis(300)).await;
    let before = beats();
    SystemClock.sleep(Duration::from_millis(500)).await;
    assert!(before > 0);
    assert_eq!(beats(), before, "a child of the program goes on");
}
