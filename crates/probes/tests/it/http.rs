use std::sync::atomic::Ordering;
use std::time::Duration;

use mutirao_probes::{Check, Ended, Phase};

use crate::server::{SOON, Then, answering, keeping, probes, run};

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nX-Mood: good\r\n\r\nhello";
const SHORTLY: Duration = Duration::from_millis(300);

#[tokio::test]
async fn an_answer_is_seen_with_the_time_of_each_phase() {
    let server = answering(HELLO, Then::Close).await;
    let found = run(&format!(r#"{{"http": {{"url": "http://{server}/x?y"}}}}"#), SOON).await;
    assert_eq!(found.ended, Ended::Answered);
    assert_eq!((found.seen.status, found.seen.body.as_slice()), (Some(200), b"hello".as_slice()));
    assert_eq!(found.seen.headers["x-mood"], "good");
    assert_eq!(found.seen.address, Some(server));
    let timings = found.timings;
    for phase in [Phase::Dns, Phase::Connect, Phase::FirstByte, Phase::Body] {
        assert!(timings.of(phase).is_some(), "{phase}");
    }
    assert_eq!(timings.of(Phase::Tls), None);
    let sum: u64 = Phase::ALL.iter().filter_map(|phase| timings.of(*phase)).sum();
    assert!(sum > 0 && sum <= timings.total + Phase::ALL.len() as u64, "{timings:?}");
}

#[tokio::test]
async fn each_way_to_fail_ends_in_its_phase_with_the_reason() {
    let nobody = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let silent = answering("", Then::Hang).await;
    let rubbish = answering("\u{1}\u{2}rubbish\r\n\r\n", Then::Close).await;
    let half = answering("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello", Then::Close).await;
    let stuck = answering("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello", Then::Hang).await;
    let failed = |phase: Phase, words: &'static str| (phase, Some(words));
    for (url, (phase, words)) in [
        (format!("http://{nobody}"), failed(Phase::Connect, "nobody listens there")),
        (format!("http://{silent}"), (Phase::FirstByte, None)),
        (format!("http://{rubbish}"), failed(Phase::FirstByte, "invalid HTTP")),
        (format!("https://{rubbish}"), failed(Phase::Tls, "")),
        (format!("https://{silent}"), (Phase::Tls, None)),
        (format!("http://{half}"), failed(Phase::Body, "end of file before message")),
        (format!("http://{stuck}"), (Phase::Body, None)),
        ("http://no-such-host.invalid".into(), failed(Phase::Dns, "no-such-host.invalid has no address")),
        ("http://169.254.169.254/latest".into(), failed(Phase::Connect, "not probed")),
    ] {
        let within = if words.is_some() { SOON } else { SHORTLY };
        let found = run(&format!(r#"{{"http": {{"url": "{url}"}}}}"#), within).await;
        match (&found.ended, words) {
            (Ended::TimedOut { phase: in_ }, None) => assert_eq!(*in_, phase, "{url}"),
            (Ended::Failed { phase: in_, why }, Some(words)) => {
                assert!(*in_ == phase && why.contains(words), "{url}: {in_:?} {why}");
            }
            (ended, _) => panic!("{url}: {ended:?}"),
        }
    }
}

#[tokio::test]
async fn a_body_without_end_is_cut_and_not_waited_for() {
    let server = answering("HTTP/1.1 200 OK\r\n\r\n", Then::ForEver).await;
    let found = run(&format!(r#"{{"http": {{"url": "http://{server}", "body_max": "100KiB"}}}}"#), SOON).await;
    assert_eq!((found.ended, found.seen.body_cut), (Ended::Answered, true));
    assert_eq!(found.seen.body.len(), 100 << 10);
}

#[tokio::test]
async fn redirects_are_followed_as_far_as_allowed_and_never_to_forbidden_places() {
    let home = answering(HELLO, Then::Close).await;
    let to = |place: &str| format!("HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n");
    let away = answering(&to(&format!("http://{home}/there")), Then::Close).await;
    let further = answering(&to(&format!("//{away}/")), Then::Close).await;
    let ask = async |server: std::net::SocketAddr, redirects: u8| {
        run(&format!(r#"{{"http": {{"url": "http://{server}/a/b", "redirects": {redirects}}}}}"#), SOON).await
    };
    let found = ask(further, 2).await;
    assert_eq!((found.seen.status, found.seen.redirects), (Some(200), 2));
    let found = ask(further, 1).await;
    assert_eq!((found.seen.status, found.seen.redirects), (Some(302), 1), "the last redirect is the answer");
    let trap = answering(&to("http://169.254.169.254/latest/meta-data"), Then::Close).await;
    assert!(
        matches!(ask(trap, 5).await.ended, Ended::Failed { phase: Phase::Connect, why } if why.contains("not probed"))
    );
    let odd = answering(&to("gopher://x"), Then::Close).await;
    assert!(matches!(ask(odd, 5).await.ended, Ended::Failed { why, .. } if why.contains("gopher")));
}

#[tokio::test]
async fn a_connection_is_all_that_a_tcp_check_wants() {
    let silent = answering("", Then::Hang).await;
    let found = run(&format!(r#"{{"tcp": {{"address": "{silent}"}}}}"#), SOON).await;
    assert_eq!((found.ended, found.seen.address), (Ended::Answered, Some(silent)));
    assert!(found.timings.of(Phase::Connect).is_some() && found.timings.of(Phase::FirstByte).is_none());
}

#[tokio::test]
async fn a_connection_is_new_for_each_check_unless_it_is_to_be_reused_and_then_it_says_so() {
    let (server, connections) = keeping(usize::MAX).await;
    let probes = probes();
    let check = |reuse: bool| -> Check {
        serde_json::from_str(&format!(r#"{{"http": {{"url": "http://{server}/", "reuse": {reuse}}}}}"#)).unwrap()
    };
    for _ in 0..3 {
        assert!(!probes.run(&check(false), SOON).await.seen.reused);
    }
    assert_eq!(connections.load(Ordering::Relaxed), 3);
    let first = probes.run(&check(true), SOON).await;
    assert!(!first.seen.reused && first.timings.of(Phase::Connect).is_some(), "there is none yet");
    for _ in 0..5 {
        let found = probes.run(&check(true), SOON).await;
        assert_eq!((found.ended.clone(), found.seen.reused), (Ended::Answered, true), "{found:?}");
        assert_eq!((found.timings.of(Phase::Dns), found.timings.of(Phase::Connect)), (None, None));
        assert_eq!((found.seen.address, found.seen.body.as_slice()), (Some(server), b"hi".as_slice()));
    }
    assert_eq!(connections.load(Ordering::Relaxed), 4);
    assert!(!probes.run(&check(false), SOON).await.seen.reused, "who did not ask for it gets a new one");
}

#[tokio::test]
async fn a_kept_connection_that_the_other_side_closed_is_no_fault_of_the_service() {
    for each in [1, 2] {
        let (server, connections) = keeping(each).await;
        let probes = probes();
        let check: Check =
            serde_json::from_str(&format!(r#"{{"http": {{"url": "http://{server}/", "reuse": true}}}}"#)).unwrap();
        for n in 0..20 {
            assert_eq!(probes.run(&check, SOON).await.ended, Ended::Answered, "check {n} at {each} a connection");
        }
        assert!(connections.load(Ordering::Relaxed) >= 20 / each);
    }
}
