//! Packets to bytes.

use bytes::{BufMut, BytesMut};

use super::{Connect, Handling, Packet, Pid, Publish, Qos};

/// A text or binary field longer than this cannot be written: its length has two bytes.
const FIELD_BYTES_MAX: usize = u16::MAX as usize;
/// What four bytes of length can say.
const BODY_BYTES_MAX: usize = 268_435_455;

/// The packet does not fit into the protocol's lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a field of more than 65,535 bytes, or a packet of more than 256 MB, cannot be sent by MQTT")]
pub struct Unsendable;

/// Appends the packet's bytes. What is refused leaves `out` as it was.
pub fn encode(packet: &Packet, out: &mut BytesMut) -> Result<(), Unsendable> {
    match packet {
        Packet::Connect(connect) => write_connect(connect, out)?,
        Packet::ConnAck { session_present, answer } => {
            out.put_slice(&[0x20, 2, u8::from(*session_present), *answer as u8]);
        }
        Packet::Publish(publish) => write_publish(publish, out)?,
        Packet::PubAck(pid) => only_pid(0x40, *pid, out),
        Packet::PubRec(pid) => only_pid(0x50, *pid, out),
        Packet::PubRel(pid) => only_pid(0x62, *pid, out),
        Packet::PubComp(pid) => only_pid(0x70, *pid, out),
        Packet::Subscribe { pid, filters } => {
            let len = filters.iter().map(|(filter, _)| 3 + filter.as_str().len()).sum::<usize>();
            header(0x82, 2 + len, filters.iter().map(|(filter, _)| filter.as_str().len()), out)?;
            out.put_u16(pid.get());
            for (filter, qos) in filters {
                field(filter.as_str().as_bytes(), out);
                out.put_u8(*qos as u8);
            }
        }
        Packet::SubAck { pid, granted } => {
            header(0x90, 2 + granted.len(), [], out)?;
            out.put_u16(pid.get());
            out.extend(granted.iter().map(|granted| granted.map_or(0x80, |qos| qos as u8)));
        }
        Packet::Unsubscribe { pid, filters } => {
            let len = filters.iter().map(|filter| 2 + filter.as_str().len()).sum::<usize>();
            header(0xa2, 2 + len, filters.iter().map(|filter| filter.as_str().len()), out)?;
            out.put_u16(pid.get());
            filters.iter().for_each(|filter| field(filter.as_str().as_bytes(), out));
        }
        Packet::UnsubAck(pid) => only_pid(0xb0, *pid, out),
        Packet::PingReq => out.put_slice(&[0xc0, 0]),
        Packet::PingResp => out.put_slice(&[0xd0, 0]),
        Packet::Disconnect => out.put_slice(&[0xe0, 0]),
    }
    Ok(())
}

fn write_connect(connect: &Connect, out: &mut BytesMut) -> Result<(), Unsendable> {
    let mut fields = vec![connect.client_id.as_bytes()];
    let mut flags = u8::from(connect.clean) << 1;
    if let Some(will) = &connect.will {
        fields.extend([will.topic.as_str().as_bytes(), &will.payload]);
        flags |= 1 << 2 | (will.qos as u8) << 3 | u8::from(will.retain) << 5;
    }
    if let Some(user) = &connect.user {
        fields.push(user.as_bytes());
        flags |= 1 << 7;
        // A password without a user cannot be said in 3.1.1.
        if let Some(password) = &connect.password {
            fields.push(password);
            flags |= 1 << 6;
        }
    }
    let len = fields.iter().map(|field| 2 + field.len()).sum::<usize>();
    header(0x10, 10 + len, fields.iter().map(|field| field.len()), out)?;
    field(b"MQTT", out);
    out.put_slice(&[4, flags]);
    out.put_u16(connect.keep_alive_s);
    fields.into_iter().for_each(|one| field(one, out));
    Ok(())
}

fn write_publish(publish: &Publish, out: &mut BytesMut) -> Result<(), Unsendable> {
    let (pid, dup) = match publish.handling {
        Handling::AtMostOnce => (None, false),
        Handling::AtLeastOnce { pid, dup } | Handling::ExactlyOnce { pid, dup } => (Some(pid), dup),
    };
    let qos: Qos = publish.handling.qos();
    let first = 0x30 | u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(publish.retain);
    let topic = publish.topic.as_str();
    let len = 2 + topic.len() + 2 * usize::from(pid.is_some()) + publish.payload.len();
    header(first, len, [topic.len()], out)?;
    field(topic.as_bytes(), out);
    if let Some(pid) = pid {
        out.put_u16(pid.get());
    }
    out.put_slice(&publish.payload);
    Ok(())
}

fn only_pid(first: u8, pid: Pid, out: &mut BytesMut) {
    out.put_slice(&[first, 2]);
    out.put_u16(pid.get());
}

/// The fixed header, once it is known that everything fits.
fn header(
    first: u8,
    body_len: usize,
    fields: impl IntoIterator<Item = usize>,
    out: &mut BytesMut,
) -> Result<(), Unsendable> {
    if body_len > BODY_BYTES_MAX || fields.into_iter().any(|len| len > FIELD_BYTES_MAX) {
        return Err(Unsendable);
    }
    out.reserve(5 + body_len);
    out.put_u8(first);
    let mut left = body_len;
    loop {
        let more = left > 0x7f;
        out.put_u8((left & 0x7f) as u8 | u8::from(more) << 7);
        left >>= 7;
        if !more {
            return Ok(());
        }
    }
}

/// Its length was checked with the header.
fn field(bytes: &[u8], out: &mut BytesMut) {
    out.put_u16(bytes.len() as u16);
    out.put_slice(bytes);
}
