//! One echo, and its answer. Over a socket for echoes, which needs no privilege where the kernel allows it
//! (`net.ipv4.ping_group_range`); else over a raw one, which needs `CAP_NET_RAW`.

use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::UdpSocket;

use crate::check::Icmp;
use crate::observation::{Phase, Watch};
use crate::reach::{Fault, Reach};

const BODY: &[u8; 32] = b"mutirao mutirao mutirao mutirao ";
const REQUEST_V4: u8 = 8;
const REPLY_V4: u8 = 0;
const REQUEST_V6: u8 = 128;
const REPLY_V6: u8 = 129;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// The kernel fills in the identity and the sum, and hands over only what is ours.
    Echo,
    /// All of that is up to us.
    Raw,
}

pub async fn ping(check: &Icmp, reach: &Reach, watch: &mut Watch) -> Result<(), Fault> {
    watch.enter(Phase::Dns);
    let ip = reach.first_address(&check.host).await?;
    let address = SocketAddr::new(ip, 0);
    watch.seen.address = Some(address);
    watch.enter(Phase::FirstByte);
    let refused = |error: std::io::Error| Fault::Refused { address, why: error.to_string() };
    let (socket, sort) = open(ip).map_err(|error| {
        let why = format!(
            "echoes may not be sent ({error}): allow this group in net.ipv4.ping_group_range, or give CAP_NET_RAW"
        );
        Fault::Refused { address, why }
    })?;
    // Told apart from the echoes of others on a raw socket by who we are and by the moment.
    let (identity, sequence) = (std::process::id() as u16, watch.clock().now().0 as u16);
    let request = echo(ip, identity, sequence);
    socket.send_to(&request, address).await.map_err(refused)?;
    let mut answer = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut answer).await.map_err(refused)?;
        if from.ip() == ip && is_reply(&answer[..length], ip, sort, identity, sequence) {
            return Ok(());
        }
    }
}

fn open(ip: IpAddr) -> std::io::Result<(UdpSocket, Sort)> {
    let (family, protocol) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let open = |kind: SocketType| socket_with(family, kind, flags, Some(protocol));
    let (socket, sort) = match open(SocketType::DGRAM) {
        Ok(socket) => (socket, Sort::Echo),
        Err(_) => (open(SocketType::RAW)?, Sort::Raw),
    };
    Ok((UdpSocket::from_std(StdUdpSocket::from(socket))?, sort))
}

fn echo(ip: IpAddr, identity: u16, sequence: u16) -> Vec<u8> {
    let kind = if ip.is_ipv4() { REQUEST_V4 } else { REQUEST_V6 };
    let mut packet = vec![kind, 0, 0, 0];
    packet.extend(identity.to_be_bytes());
    packet.extend(sequence.to_be_bytes());
    packet.extend(BODY);
    if ip.is_ipv4() {
        // Of version 6 the kernel makes the sum, for it covers addresses that only it knows.
        let sum = checksum(&packet).to_be_bytes();
        packet[2..4].copy_from_slice(&sum);
    }
    packet
}

fn is_reply(packet: &[u8], ip: IpAddr, sort: Sort, identity: u16, sequence: u16) -> bool {
    let (kind, head) = match (ip, sort) {
        // A raw socket of version 4 hands over the header of the packet too; its first byte tells how long that is.
        (IpAddr::V4(_), Sort::Raw) => (REPLY_V4, usize::from(packet.first().map_or(0, |byte| byte & 0x0f)) * 4),
        (IpAddr::V4(_), Sort::Echo) => (REPLY_V4, 0),
        (IpAddr::V6(_), _) => (REPLY_V6, 0),
    };
    let Some([found, code, _, _, id_high, id_low, sequence_high, sequence_low]) = packet.get(head..head + 8) else {
        return false;
    };
    let ours = sort == Sort::Echo || u16::from_be_bytes([*id_high, *id_low]) == identity;
    (*found, *code) == (kind, 0) && ours && u16::from_be_bytes([*sequence_high, *sequence_low]) == sequence
}

/// The Internet's: the complement of the sum of all pairs of bytes, carries added back.
fn checksum(packet: &[u8]) -> u16 {
    let pair = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    let mut sum: u32 = packet.chunks(2).map(pair).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_sum_adds_up_to_nothing() {
        let packet = echo("127.0.0.1".parse().unwrap(), 7, 9);
        assert_eq!(checksum(&packet), 0);
    }

    #[test]
    fn only_the_reply_to_this_very_echo_counts() {
        let ip = "127.0.0.1".parse().unwrap();
        let mut reply = echo(ip, 7, 9);
        assert!(!is_reply(&reply, ip, Sort::Echo, 7, 9), "our own request is no reply");
        reply[0] = REPLY_V4;
        assert!(is_reply(&reply, ip, Sort::Echo, 1, 9) && !is_reply(&reply, ip, Sort::Echo, 7, 8));
        let mut raw = vec![0x45; 20];
        raw.extend(&reply);
        assert!(is_reply(&raw, ip, Sort::Raw, 7, 9) && !is_reply(&raw, ip, Sort::Raw, 8, 9));
        assert!(!is_reply(&raw[..25], ip, Sort::Raw, 7, 9) && !is_reply(&[], ip, Sort::Raw, 7, 9));
    }
}
