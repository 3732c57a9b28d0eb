//! Rubbish on the link: strangers, the wrong protocol, noise in the right one. The connection ends; the server, the other
//! workers and their tasks do not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use mutirao_client::{Client, Credentials, Signer, WorkerKey};
use mutirao_core::SystemClock;
use mutirao_core::auth::Enrol;
use mutirao_testkit::Installation;

use super::{Effects, LEAVE, ends_ok, still_works};

const PATH: &str = "/v1/link";
const PROTOCOL: &str = mutirao_broker::link::SUBPROTOCOL;
/// The opcodes of RFC 6455 that are used here.
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;

/// An enrolled worker that will not behave.
fn enrol(up: &Installation) -> Signer {
    let token = up.ok(&["worker", "invite"]).trim().to_owned();
    let key = WorkerKey::generate();
    let enrol = Enrol { token, public_key: key.public_base64(), name: "rogue".into() };
    let client = Client::new(&up.url(), Credentials::None).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let enrolled = runtime.block_on(client.enrol(&enrol, None)).expect("it is let in");
    Signer::new(enrolled.worker, key, SystemClock::shared())
}

/// Asks for a WebSocket, by hand, and reads the answer's head.
fn ask(up: &Installation, authorization: Option<&str>, protocol: Option<&str>) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(up.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let mut head = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
        up.address()
    );
    let mut add = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            head += &format!("{name}: {value}\r\n");
        }
    };
    add("Authorization", authorization);
    add("Sec-WebSocket-Protocol", protocol);
    stream.write_all(format!("{head}\r\n").as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        answer.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&answer).into_owned())
}

/// A client's frame, with the mask that RFC 6455 wants, which may be zero.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode, 0x80 | 127];
    frame.extend((payload.len() as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Sends bytes and waits until the server hangs up: what it said before, which ends in a close frame.
#[track_caller]
fn is_hung_up_on(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        // A reset is a hang-up too; a read that had to be given up is not.
        assert!(error.kind() == std::io::ErrorKind::ConnectionReset, "it does not hang up: {error}");
    }
    answer
}

fn noise(bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn strangers_get_no_link() {
    let up = Installation::start();
    let status = |authorization: Option<&str>| {
        let (_, head) = ask(&up, authorization, Some(PROTOCOL));
        head.split_whitespace().nth(1).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(status(None), "401", "unsigned");
    assert_eq!(status(Some(&format!("Bearer {}", up.token()))), "403", "a link is not for people, admins among them");

    let signer = enrol(&up);
    let stranger = Signer::new(signer.worker().clone(), WorkerKey::generate(), SystemClock::shared());
    assert_eq!(status(Some(&stranger.authorize("GET", PATH, b""))), "401", "signed with another key");
    assert_eq!(status(Some(&signer.authorize("GET", "/v1/jobs", b""))), "401", "signed for another path");
    let once = signer.authorize("GET", PATH, b"");
    assert_eq!((status(Some(&once)), status(Some(&once))), ("101".into(), "401".into()), "good for one use");
    still_works(&up);
}

#[test]
fn a_peer_that_speaks_another_protocol_is_told_so_and_hung_up_on() {
    let up = Installation::start();
    let signer = enrol(&up);
    for protocol in [None, Some("chat"), Some("mutirao.link.v999")] {
        let (stream, head) = ask(&up, Some(&signer.authorize("GET", PATH, b"")), protocol);
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let goodbye = is_hung_up_on(stream, b"");
        assert_eq!(goodbye.first().map(|byte| byte & 0x0f), Some(CLOSE), "{goodbye:?}");
        assert!(String::from_utf8_lossy(&goodbye).contains(PROTOCOL), "it says what it speaks: {goodbye:?}");
    }
    still_works(&up);
}

#[test]
fn noise_ends_its_own_link_and_disturbs_no_task() {
    let up = Installation::start();
    let (signer, effects) = (enrol(&up), Effects::new());
    let job = effects.submit(&up, 500, "500m", LEAVE);
    let open = || {
        let (stream, head) = ask(&up, Some(&signer.authorize("GET", PATH, b"")), Some(PROTOCOL));
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        stream
    };
    for seed in 1..=20 {
        is_hung_up_on(open(), &frame(BINARY, &noise(300 * seed as usize, seed)));
    }
    is_hung_up_on(open(), &frame(TEXT, b"{\"publish\": \"results.jobs.0\"}"));
    is_hung_up_on(open(), &frame(TEXT, b"\xff\xfe"));
    is_hung_up_on(open(), &noise(4_096, 99));
    // A frame that promises an exabyte.
    let mut promise = vec![0x80 | BINARY, 0x80 | 127];
    promise.extend((1u64 << 60).to_be_bytes());
    promise.extend([0; 4]);
    is_hung_up_on(open(), &promise);
    // Gone without a word, in the middle of a frame.
    let mut torn = open();
    torn.write_all(&frame(BINARY, &noise(1_000, 7))[..500]).expect("it reads");
    drop(torn);

    ends_ok(&up, &job, 500);
    assert_eq!(effects.check(500).doubled, 0);
    still_works(&up);
}
