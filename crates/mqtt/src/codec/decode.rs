//! Bytes to packets.

use bytes::{Buf, BytesMut};

use super::field::Fields;
use super::{Answer, Connect, Handling, Malformed, Packet, Publish, Qos, Will};
use crate::topics::{TopicFilter, TopicName};

/// The next packet of what has come so far, taken out of `buffer`; nothing when it has not come whole. A packet that
/// would be longer than `bytes_max` is refused by its header, so that the buffer never needs to hold more.
pub fn decode(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Packet>, Malformed> {
    let Some(header) = Header::of(buffer, bytes_max)? else { return Ok(None) };
    if buffer.len() < header.len + header.body_len {
        return Ok(None);
    }
    let body = &buffer[header.len..header.len + header.body_len];
    let packet = packet(header.first, Fields(body))?;
    buffer.advance(header.len + header.body_len);
    Ok(Some(packet))
}

struct Header {
    first: u8,
    len: usize,
    body_len: usize,
}

impl Header {
    fn of(bytes: &[u8], bytes_max: usize) -> Result<Option<Self>, Malformed> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        // Before the length: whoever speaks another protocol is told at the first byte, not after 256 MB of it.
        check_flags(first)?;
        let mut body_len = 0;
        for at in 0..4 {
            let Some(&byte) = bytes.get(1 + at) else { return Ok(None) };
            body_len |= usize::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                if body_len > bytes_max {
                    return Err(Malformed::TooLong { bytes: body_len, bytes_max });
                }
                return Ok(Some(Self { first, len: 2 + at, body_len }));
            }
        }
        Err(Malformed::Length)
    }
}

fn check_flags(first: u8) -> Result<(), Malformed> {
    let (kind, flags) = (first >> 4, first & 0x0f);
    let right = match kind {
        3 => flags & 0b0110 != 0b0110 && (flags & 0b0110 != 0 || flags & 0b1000 == 0),
        6 | 8 | 10 => flags == 0b0010,
        1 | 2 | 4 | 5 | 7 | 9 | 11..=14 => flags == 0,
        _ => return Err(Malformed::Type),
    };
    if right { Ok(()) } else { Err(Malformed::Flags) }
}

fn packet(first: u8, mut body: Fields<'_>) -> Result<Packet, Malformed> {
    let packet = match first >> 4 {
        1 => Packet::Connect(connect(&mut body)?),
        2 => conn_ack(&mut body)?,
        3 => Packet::Publish(publish(first, &mut body)?),
        4 => Packet::PubAck(body.pid()?),
        5 => Packet::PubRec(body.pid()?),
        6 => Packet::PubRel(body.pid()?),
        7 => Packet::PubComp(body.pid()?),
        8 => {
            let pid = body.pid()?;
            let filters = several(&mut body, |body| Ok((filter(body)?, Qos::from_bits(body.u8()?)?)))?;
            Packet::Subscribe { pid, filters }
        }
        9 => Packet::SubAck { pid: body.pid()?, granted: several(&mut body, granted)? },
        10 => Packet::Unsubscribe { pid: body.pid()?, filters: several(&mut body, filter)? },
        11 => Packet::UnsubAck(body.pid()?),
        12 => Packet::PingReq,
        13 => Packet::PingResp,
        14 => Packet::Disconnect,
        _ => return Err(Malformed::Type),
    };
    body.end()?;
    Ok(packet)
}

fn connect(body: &mut Fields<'_>) -> Result<Connect, Malformed> {
    // Version 3.1 called itself otherwise; whoever speaks it should be told the level, not that this is not MQTT.
    let name = body.text()?;
    let level = body.u8()?;
    match (name, level) {
        ("MQTT", 4) => {}
        ("MQTT" | "MQIsdp", level) => return Err(Malformed::Level(level)),
        _ => return Err(Malformed::Protocol),
    }
    let flags = body.u8()?;
    let has = |bit: u8| flags & (1 << bit) != 0;
    let will_qos = Qos::from_bits((flags >> 3) & 0b11)?;
    let will_without = !has(2) && (will_qos != Qos::AtMostOnce || has(5));
    if has(0) || will_without || (has(6) && !has(7)) {
        return Err(Malformed::Flags);
    }
    let keep_alive_s = body.u16()?;
    let client_id = body.text()?.to_owned();
    let will = match has(2) {
        false => None,
        true => {
            Some(Will { topic: TopicName::new(body.text()?)?, payload: body.binary()?, qos: will_qos, retain: has(5) })
        }
    };
    let user = if has(7) { Some(body.text()?.to_owned()) } else { None };
    let password = if has(6) { Some(body.binary()?) } else { None };
    Ok(Connect { client_id, clean: has(1), keep_alive_s, will, user, password })
}

fn conn_ack(body: &mut Fields<'_>) -> Result<Packet, Malformed> {
    let flags = body.u8()?;
    let answer = match body.u8()? {
        0 => Answer::Accepted,
        1 => Answer::WrongProtocol,
        2 => Answer::ClientIdRejected,
        3 => Answer::Unavailable,
        4 => Answer::BadCredentials,
        5 => Answer::NotAuthorized,
        _ => return Err(Malformed::Code),
    };
    let session_present = flags == 1;
    if flags > 1 || (session_present && answer != Answer::Accepted) {
        return Err(Malformed::Flags);
    }
    Ok(Packet::ConnAck { session_present, answer })
}

fn publish(first: u8, body: &mut Fields<'_>) -> Result<Publish, Malformed> {
    let dup = first & 0b1000 != 0;
    let topic = TopicName::new(body.text()?)?;
    let handling = match Qos::from_bits((first >> 1) & 0b11)? {
        Qos::AtMostOnce => Handling::AtMostOnce,
        Qos::AtLeastOnce => Handling::AtLeastOnce { pid: body.pid()?, dup },
        Qos::ExactlyOnce => Handling::ExactlyOnce { pid: body.pid()?, dup },
    };
    Ok(Publish { topic, handling, retain: first & 1 != 0, payload: body.rest() })
}

fn filter(body: &mut Fields<'_>) -> Result<TopicFilter, Malformed> {
    Ok(TopicFilter::new(body.text()?)?)
}

fn granted(body: &mut Fields<'_>) -> Result<Option<Qos>, Malformed> {
    match body.u8()? {
        0x80 => Ok(None),
        code => Qos::from_bits(code).map(Some).map_err(|_| Malformed::Code),
    }
}

/// One or more, to the end of the packet.
fn several<'a, T>(
    body: &mut Fields<'a>,
    one: impl Fn(&mut Fields<'a>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut all = vec![];
    while !body.is_empty() {
        all.push(one(body)?);
    }
    if all.is_empty() { Err(Malformed::NoFilters) } else { Ok(all) }
}
