//! A client that says exactly what it is told to, byte by byte if need be.

use std::net::SocketAddr;

use bytes::BytesMut;
use mutirao_core::SystemClock;
use mutirao_core::clock::ClockExt;
use mutirao_mqtt::Qos;
use mutirao_mqtt::codec::{self, Answer, Connect, Handling, Packet, Pid, Publish};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::house::{LONG, filter, name};

/// What must come, comes in time.
pub async fn within<F>(what: &str, future: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    SystemClock.timeout(LONG, future).await.unwrap_or_else(|_| panic!("waited {LONG:?} in vain for {what}"))
}

pub fn pid(number: u16) -> Pid {
    Pid::new(number).unwrap()
}

/// A connect of somebody who shows nothing and wants its session kept.
pub fn hello(client_id: &str) -> Connect {
    Connect { client_id: client_id.into(), clean: false, keep_alive_s: 0, will: None, user: None, password: None }
}

pub fn publish(topic: &str, payload: impl AsRef<[u8]>, handling: Handling) -> Packet {
    let payload = bytes::Bytes::copy_from_slice(payload.as_ref());
    Packet::Publish(Publish { topic: name(topic), payload, handling, retain: false })
}

pub fn once(number: u16) -> Handling {
    Handling::AtLeastOnce { pid: pid(number), dup: false }
}

pub struct Raw {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Raw {
    /// A socket, and nothing said yet.
    pub async fn dial(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), buffer: BytesMut::new() }
    }

    /// The server's answer to this connect, and the connection.
    pub async fn knock(address: SocketAddr, connect: Connect) -> (Self, bool, Answer) {
        let mut raw = Self::dial(address).await;
        raw.say(Packet::Connect(connect)).await;
        match raw.next().await {
            Some(Packet::ConnAck { session_present, answer }) => (raw, session_present, answer),
            other => panic!("{other:?} instead of an answer"),
        }
    }

    /// A connection that was let in.
    pub async fn enter(address: SocketAddr, connect: Connect) -> Self {
        let (raw, _, answer) = Self::knock(address, connect).await;
        assert_eq!(answer, Answer::Accepted);
        raw
    }

    pub async fn say(&mut self, packet: Packet) {
        let mut out = BytesMut::new();
        codec::encode(&packet, &mut out).unwrap();
        self.bytes(&out).await;
    }

    pub async fn bytes(&mut self, bytes: &[u8]) {
        within("a write", self.stream.write_all(bytes)).await.unwrap();
    }

    /// The next packet; nothing when the server has closed.
    pub async fn next(&mut self) -> Option<Packet> {
        within("a packet", async {
            loop {
                if let Some(packet) = codec::decode(&mut self.buffer, 1 << 20).unwrap() {
                    return Some(packet);
                }
                match self.stream.read_buf(&mut self.buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
        .await
    }

    pub async fn next_publish(&mut self) -> Publish {
        match self.next().await {
            Some(Packet::Publish(publish)) => publish,
            other => panic!("{other:?} instead of a publish"),
        }
    }

    pub async fn subscribe(&mut self, wanted: &str, qos: Qos) {
        self.say(Packet::Subscribe { pid: pid(999), filters: vec![(filter(wanted), qos)] }).await;
        match self.next().await {
            Some(Packet::SubAck { granted, .. }) => assert!(granted[0].is_some(), "{wanted} was refused"),
            other => panic!("{other:?} instead of a suback"),
        }
    }

    /// Everything said before has been dealt with when this returns, and nothing but the answer came.
    pub async fn nothing_but_a_ping(&mut self) {
        self.say(Packet::PingReq).await;
        assert_eq!(self.next().await, Some(Packet::PingResp));
    }

    pub async fn must_be_cut_off(mut self) {
        assert_eq!(self.next().await, None, "the connection should have ended");
    }
}
