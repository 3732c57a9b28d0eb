//! The way to a Redis: in the clear (`redis://`), or encrypted, with the server's certificate and name checked (`rediss://`).

use std::io;

use mutirao_tls::{Fault, Trust};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::failed;
use crate::cache::CacheError;

pub(super) struct Way {
    host: String,
    port: u16,
    settings: RedisConnectionInfo,
    tls: Option<TlsConnector>,
}

impl Way {
    /// None when the address is not one of a Redis.
    pub fn read(url: &str, trust: &Trust) -> Option<Self> {
        let encrypted = url.strip_prefix("rediss://");
        let rest = encrypted.or_else(|| url.strip_prefix("redis://"))?;
        let info = format!("redis://{rest}").into_connection_info().ok()?;
        let ConnectionAddr::Tcp(host, port) = info.addr().clone() else { return None };
        let tls = encrypted.map(|_| TlsConnector::from(trust.config_for(None)));
        Some(Self { host, port, settings: info.redis_settings().clone(), tls })
    }

    pub async fn connect(&self) -> Result<MultiplexedConnection, CacheError> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(said)?;
        // What is asked is small, and waited for.
        let _ = socket.set_nodelay(true);
        let Some(tls) = &self.tls else { return self.greet(socket).await };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| said(io::Error::other(error)))?;
        self.greet(tls.connect(name, socket).await.map_err(said)?).await
    }

    async fn greet<S>(&self, stream: S) -> Result<MultiplexedConnection, CacheError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Whoever asks has a limit of its own, and a second timer for each question would cost as much as the first.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connecting = MultiplexedConnection::new_with_config(&self.settings, stream, config);
        let (connection, driving) = connecting.await.map_err(failed)?;
        // Ends when nobody holds the connection any more.
        tokio::spawn(driving);
        Ok(connection)
    }
}

fn said(error: io::Error) -> CacheError {
    let said = match Fault::find(&error) {
        Some(Fault::NotTls) => "it does not speak TLS; write redis:// instead of rediss://".into(),
        Some(fault @ Fault::Distrusted(_)) => fault.to_string(),
        None => error.to_string(),
    };
    CacheError::Unreachable(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_is_told_by_how_the_address_begins() {
        let read = |url: &str| Way::read(url, &Trust::nobody()).map(|way| (way.host, way.port, way.tls.is_some()));
        assert_eq!(read("redis://ana:s3cret@cache/1"), Some(("cache".into(), 6379, false)));
        assert_eq!(read("rediss://cache:7000"), Some(("cache".into(), 7000, true)));
        assert_eq!(read("rediss://[::1]:7000"), Some(("::1".into(), 7000, true)));
        for none in ["http://cache", "cache:6379", "redis+unix:///run/redis", "rediss:cache"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
