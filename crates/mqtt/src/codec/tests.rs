//! Golden bytes from the standard, refusals one by one, and properties over all packets and all bytes.

use bytes::BytesMut;
use proptest::prelude::*;

use super::*;
use crate::topics::tests::{filter, filters, name, names};

const BYTES_MAX: usize = 64 << 10;

fn pid(number: u16) -> Pid {
    Pid::new(number).unwrap()
}

fn bytes_of(packet: &Packet) -> BytesMut {
    let mut out = BytesMut::new();
    encode(packet, &mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Option<Packet>, Malformed> {
    decode(&mut BytesMut::from(bytes), BYTES_MAX)
}

#[test]
fn packets_have_the_bytes_that_the_standard_gives_them() {
    let connect = Connect {
        client_id: "esp32-7".into(),
        clean: true,
        keep_alive_s: 30,
        will: Some(Will { topic: name("w"), payload: "gone".into(), qos: Qos::AtLeastOnce, retain: true }),
        user: Some("u".into()),
        password: Some("p".into()),
    };
    let publish =
        |handling, retain| Packet::Publish(Publish { topic: name("a/b"), payload: "hi".into(), handling, retain });
    let golden: [(Packet, &[u8]); 17] = [
        (
            Packet::Connect(connect),
            b"\x10\x22\x00\x04MQTT\x04\xee\x00\x1e\x00\x07esp32-7\x00\x01w\x00\x04gone\x00\x01u\x00\x01p",
        ),
        (Packet::ConnAck { session_present: true, answer: Answer::Accepted }, b"\x20\x02\x01\x00"),
        (Packet::ConnAck { session_present: false, answer: Answer::NotAuthorized }, b"\x20\x02\x00\x05"),
        (publish(Handling::AtMostOnce, false), b"\x30\x07\x00\x03a/bhi"),
        (publish(Handling::AtLeastOnce { pid: pid(10), dup: true }, true), b"\x3b\x09\x00\x03a/b\x00\x0ahi"),
        (publish(Handling::ExactlyOnce { pid: pid(256), dup: false }, false), b"\x34\x09\x00\x03a/b\x01\x00hi"),
        (Packet::PubAck(pid(1)), b"\x40\x02\x00\x01"),
        (Packet::PubRec(pid(2)), b"\x50\x02\x00\x02"),
        (Packet::PubRel(pid(3)), b"\x62\x02\x00\x03"),
        (Packet::PubComp(pid(4)), b"\x70\x02\x00\x04"),
        (
            Packet::Subscribe {
                pid: pid(10),
                filters: vec![(filter("a/b"), Qos::AtLeastOnce), (filter("c/d"), Qos::ExactlyOnce)],
            },
            b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02",
        ),
        (
            Packet::SubAck { pid: pid(10), granted: vec![Some(Qos::AtMostOnce), Some(Qos::ExactlyOnce), None] },
            b"\x90\x05\x00\x0a\x00\x02\x80",
        ),
        (Packet::Unsubscribe { pid: pid(10), filters: vec![filter("a/b")] }, b"\xa2\x07\x00\x0a\x00\x03a/b"),
        (Packet::UnsubAck(pid(10)), b"\xb0\x02\x00\x0a"),
        (Packet::PingReq, b"\xc0\x00"),
        (Packet::PingResp, b"\xd0\x00"),
        (Packet::Disconnect, b"\xe0\x00"),
    ];
    for (packet, bytes) in golden {
        assert_eq!(bytes_of(&packet), bytes, "{packet:?}");
        assert_eq!(read(bytes).unwrap().unwrap(), packet);
    }
}

#[test]
fn what_breaks_a_rule_is_refused_with_its_name() {
    let bad: [(&[u8], Malformed); 29] = [
        (b"\x00\x00", Malformed::Type),
        (b"\xf0\x00", Malformed::Type),
        (b"\x11", Malformed::Flags),
        (b"\x36", Malformed::Flags),
        (b"\x38", Malformed::Flags),
        (b"\x60", Malformed::Flags),
        (b"\x80", Malformed::Flags),
        (b"\xa0", Malformed::Flags),
        (b"\xc1", Malformed::Flags),
        (b"\x30\xff\xff\xff\xff", Malformed::Length),
        (b"\x30\xff\xff\xff\x7f", Malformed::TooLong { bytes: 268_435_455, bytes_max: BYTES_MAX }),
        (b"\x10\x06\x00\x04MQTT", Malformed::Short),
        (b"\x10\x0c\x00\x04HTTP\x04\x02\x00\x00\x00\x00", Malformed::Protocol),
        (b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x00\x00\x00", Malformed::Level(5)),
        (b"\x10\x0e\x00\x06MQIsdp\x03\x02\x00\x00\x00\x00", Malformed::Level(3)),
        // The reserved bit; a will's retain, or its quality, without a will; a password without a user.
        (b"\x10\x0c\x00\x04MQTT\x04\x03\x00\x00\x00\x00", Malformed::Flags),
        (b"\x10\x0c\x00\x04MQTT\x04\x22\x00\x00\x00\x00", Malformed::Flags),
        (b"\x10\x0c\x00\x04MQTT\x04\x0a\x00\x00\x00\x00", Malformed::Flags),
        (b"\x10\x0c\x00\x04MQTT\x04\x42\x00\x00\x00\x00", Malformed::Flags),
        (b"\x10\x0c\x00\x04MQTT\x04\x1e\x00\x00\x00\x00", Malformed::Qos),
        (b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x00x", Malformed::Trailing),
        (b"\x30\x03\x00\x01\xff", Malformed::Text),
        (b"\x30\x03\x00\x01\x00", Malformed::Text),
        (b"\x30\x05\x00\x03a/+", Malformed::Topic(crate::topics::BadTopic::WildcardInName)),
        (b"\x32\x05\x00\x01a\x00\x00", Malformed::ZeroPid),
        (b"\x82\x02\x00\x01", Malformed::NoFilters),
        (b"\x82\x06\x00\x01\x00\x01a\x03", Malformed::Qos),
        (b"\x20\x02\x00\x06", Malformed::Code),
        (b"\x20\x02\x01\x05", Malformed::Flags),
    ];
    for (bytes, reason) in bad {
        assert_eq!(read(bytes), Err(reason), "{bytes:02x?}");
    }
}

#[test]
fn a_packet_as_long_as_the_bound_is_taken_and_one_byte_more_is_refused_by_its_header() {
    let publish = |len: usize| {
        let payload = vec![b'x'; len - 3].into();
        bytes_of(&Packet::Publish(Publish { topic: name("t"), payload, handling: Handling::AtMostOnce, retain: false }))
    };
    assert!(decode(&mut publish(2_048), 2_048).unwrap().is_some());
    let longer = publish(2_049);
    let refused = Err(Malformed::TooLong { bytes: 2_049, bytes_max: 2_048 });
    assert_eq!(decode(&mut BytesMut::from(&longer[..3]), 2_048), refused);
}

#[test]
fn what_the_lengths_cannot_say_is_not_sent_and_leaves_nothing_behind() {
    let connect =
        Connect { client_id: "x".repeat(65_536), clean: true, keep_alive_s: 0, will: None, user: None, password: None };
    let mut out = BytesMut::from(&b"before"[..]);
    assert_eq!(encode(&Packet::Connect(connect), &mut out), Err(Unsendable));
    assert_eq!(out, &b"before"[..]);
}

fn qos() -> impl Strategy<Value = Qos> {
    proptest::sample::select(vec![Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
}

fn pids() -> impl Strategy<Value = Pid> {
    (1u16..).prop_map(pid)
}

fn payload() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from)
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>().prop_filter("null", |c| *c != '\0'), 0..20).prop_map(String::from_iter)
}

fn connects() -> impl Strategy<Value = Packet> {
    let will = (names(), payload(), qos(), any::<bool>()).prop_map(|(topic, payload, qos, retain)| Will {
        topic,
        payload,
        qos,
        retain,
    });
    let login = proptest::option::of((text(), proptest::option::of(payload())));
    (text(), any::<bool>(), any::<u16>(), proptest::option::of(will), login).prop_map(
        |(client_id, clean, keep_alive_s, will, login)| {
            let (user, password) = login.map_or((None, None), |(user, password)| (Some(user), password));
            Packet::Connect(Connect { client_id, clean, keep_alive_s, will, user, password })
        },
    )
}

fn publishes() -> impl Strategy<Value = Packet> {
    (names(), payload(), qos(), pids(), any::<bool>(), any::<bool>()).prop_map(
        |(topic, payload, qos, pid, dup, retain)| {
            let handling = match qos {
                Qos::AtMostOnce => Handling::AtMostOnce,
                Qos::AtLeastOnce => Handling::AtLeastOnce { pid, dup },
                Qos::ExactlyOnce => Handling::ExactlyOnce { pid, dup },
            };
            Packet::Publish(Publish { topic, payload, handling, retain })
        },
    )
}

fn packets() -> impl Strategy<Value = Packet> {
    use proptest::collection::vec;
    prop_oneof![
        connects(),
        publishes(),
        any::<bool>().prop_map(|session_present| Packet::ConnAck { session_present, answer: Answer::Accepted }),
        Just(Packet::ConnAck { session_present: false, answer: Answer::BadCredentials }),
        pids().prop_map(Packet::PubAck),
        pids().prop_map(Packet::PubRec),
        pids().prop_map(Packet::PubRel),
        pids().prop_map(Packet::PubComp),
        pids().prop_map(Packet::UnsubAck),
        (pids(), vec((filters(), qos()), 1..5)).prop_map(|(pid, filters)| Packet::Subscribe { pid, filters }),
        (pids(), vec(proptest::option::of(qos()), 1..5)).prop_map(|(pid, granted)| Packet::SubAck { pid, granted }),
        (pids(), vec(filters(), 1..5)).prop_map(|(pid, filters)| Packet::Unsubscribe { pid, filters }),
        Just(Packet::PingReq),
        Just(Packet::PingResp),
        Just(Packet::Disconnect),
    ]
}

/// Everything that can be read from bytes that come in these pieces, and how it ends.
fn read_in_pieces(bytes: &[u8], cuts: &[usize]) -> (Vec<Packet>, Option<Malformed>) {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    let (mut buffer, mut packets) = (BytesMut::new(), vec![]);
    for piece in cuts.windows(2) {
        buffer.extend_from_slice(&bytes[piece[0]..piece[1]]);
        loop {
            match decode(&mut buffer, BYTES_MAX) {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(malformed) => return (packets, Some(malformed)),
            }
        }
    }
    (packets, None)
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_wherever_it_is_cut(
        all in proptest::collection::vec(packets(), 0..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut bytes = BytesMut::new();
        all.iter().for_each(|packet| encode(packet, &mut bytes).unwrap());
        prop_assert_eq!(read_in_pieces(&bytes, &cuts), (all, None));
    }

    /// Also half right ones: bytes of packets with a few changed.
    #[test]
    fn no_bytes_make_it_panic_and_pieces_change_nothing(
        all in proptest::collection::vec(packets(), 0..3),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        noise in proptest::collection::vec(any::<u8>(), 0..60),
        cuts in proptest::collection::vec(any::<usize>(), 0..12),
    ) {
        let mut bytes = BytesMut::new();
        all.iter().for_each(|packet| encode(packet, &mut bytes).unwrap());
        bytes.extend_from_slice(&noise);
        for (at, byte) in changes.into_iter().filter(|_| !all.is_empty() || !noise.is_empty()) {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let whole = read_in_pieces(&bytes, &[]);
        prop_assert_eq!(read_in_pieces(&bytes, &cuts), whole.clone());
        // What was read can be written, and is the same when read again.
        for packet in whole.0 {
            prop_assert_eq!(read(&bytes_of(&packet)).unwrap().unwrap(), packet);
        }
    }
}
