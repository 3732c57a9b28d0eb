//! The first words of an AMQP server, heard on a connection of their own and then hung up: is it there, does it speak
//! AMQP, is it a RabbitMQ that is new enough. The client library tells neither product nor version, and a connection
//! that it gives up on keeps a thread for ever; so nothing is asked of it before a server has greeted.

use std::io;

use lapin::types::parsing::parse_field_table;
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use mutirao_tls::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::trouble::Place;
use super::wire::Plug;
use crate::BrokerError;

/// Stream queues with retention by size, and dead-lettering that loses nothing, are there from here on.
const OLDEST: (u32, u32) = (3, 10);
const HELLO: &[u8] = b"AMQP\x00\x00\x09\x01";
/// How the answer of a server begins that expected TLS.
const TLS_ALERT: [u8; 2] = [21, 3];
/// Frame type, channel, size.
const HEAD_BYTES: usize = 7;
/// A greeting is some 500 bytes.
const GREETING_BYTES_MAX: usize = 64 << 10;
/// Class 10, method 10 (`connection.start`), protocol 0.9.
const START: &[u8] = &[0, 10, 0, 10, 0, 9];

/// Which version it is.
pub(super) async fn greet(uri: &AMQPUri, plug: &Plug, place: &Place) -> Result<String, BrokerError> {
    let properties = listen(uri, plug).await.map_err(|error| match Fault::find(&error) {
        Some(Fault::Distrusted(why)) => {
            place.refused(format!("its certificate is not trusted: {why}; set tls.ca to the authority that signed it"))
        }
        Some(Fault::NotTls) => place.refused("it does not speak TLS there; write amqp:// instead of amqps://".into()),
        None => place.unreachable(error),
    })?;
    check(&properties).map_err(|why| place.refused(why))
}

async fn listen(uri: &AMQPUri, plug: &Plug) -> io::Result<FieldTable> {
    let mut stream = plug.wire(uri).await?;
    stream.write_all(HELLO).await?;
    stream.flush().await?;
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    if head[..2] == TLS_ALERT {
        return Err(io::Error::other("it speaks TLS there; write amqps:// instead of amqp://"));
    }
    if head[..3] != [1, 0, 0] || size > GREETING_BYTES_MAX {
        return Err(io::Error::other("what answers there is no AMQP server"));
    }
    let mut payload = vec![0; size];
    stream.read_exact(&mut payload).await?;
    properties(&payload).ok_or_else(|| io::Error::other("what answers there does not speak AMQP 0.9.1"))
}

fn properties(payload: &[u8]) -> Option<FieldTable> {
    parse_field_table(payload.strip_prefix(START)?).ok().map(|(_, properties)| properties)
}

fn check(properties: &FieldTable) -> Result<String, String> {
    let word = |key: &str| match properties.inner().get(key) {
        Some(AMQPValue::LongString(text)) => text.to_string(),
        _ => "unknown".into(),
    };
    let (product, version) = (word("product"), word("version"));
    if product != "RabbitMQ" {
        return Err(format!("it is {product} and not RabbitMQ, whose quorum queues and streams are needed"));
    }
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok(version),
        _ => Err(format!("RabbitMQ {version} is too old; upgrade it to {}.{} or later", OLDEST.0, OLDEST.1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(product: &str, version: &str) -> FieldTable {
        let mut properties = FieldTable::default();
        properties.insert("product".into(), AMQPValue::LongString(product.into()));
        properties.insert("version".into(), AMQPValue::LongString(version.into()));
        properties
    }

    #[test]
    fn old_servers_and_other_products_are_refused_with_the_remedy() {
        for good in ["3.10.0", "3.10.8", "3.13.7", "4.0.5", "4.2.0-rc.1"] {
            assert_eq!(check(&server("RabbitMQ", good)).as_deref(), Ok(good), "{good}");
        }
        for old in ["3.9.29", "2.8", "3", "", "x.y"] {
            assert!(check(&server("RabbitMQ", old)).unwrap_err().contains("upgrade it to 3.10"), "{old}");
        }
        assert!(check(&server("Qpid", "9.0")).unwrap_err().contains("Qpid and not RabbitMQ"));
    }

    #[test]
    fn rubbish_is_no_greeting() {
        for rubbish in [&b""[..], b"HTTP/1.1 400", &[0, 10, 0, 10, 0, 9], &[0, 10, 0, 10, 0, 9, 255, 255, 255, 255]] {
            assert!(properties(rubbish).is_none(), "{rubbish:?}");
        }
    }
}
