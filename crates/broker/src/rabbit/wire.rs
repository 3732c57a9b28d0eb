//! The socket under a connection: plain, or TLS as the `tls` crate does it for everybody. The client library can do TLS
//! too, but brings a second way to say whom to believe, and formats of key files that nobody here uses and that would be
//! a tenth of the whole build.
//!
//! What is *not* here: whether what answers is a RabbitMQ ([`super::greeting`]).

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use async_rs::traits::Reactor;
use async_rs::util::RuntimeParts;
use async_rs::{Runtime, Tokio};
use futures_util::{AsyncRead, AsyncWrite, Stream};
use lapin::tcp::AsyncTcpStream;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties};
use mutirao_tls::Trust;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

/// Bytes to and from the server.
pub(super) trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

pub(super) type Wire = Box<dyn Io>;

/// Makes wires.
#[derive(Clone)]
pub(super) struct Plug {
    tls: TlsConnector,
}

impl Plug {
    pub fn new(trust: &Trust) -> Self {
        // AMQP has no name among the protocols of TLS.
        Self { tls: trust.config_for(None).into() }
    }

    pub async fn wire(&self, uri: &AMQPUri) -> io::Result<Wire> {
        let host = uri.authority.host.as_str();
        let socket = TcpStream::connect((host, uri.authority.port)).await?;
        // Frames are small and somebody waits for most of them.
        socket.set_nodelay(true)?;
        match uri.scheme {
            AMQPScheme::AMQP => Ok(Box::new(socket)),
            AMQPScheme::AMQPS => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                Ok(Box::new(self.tls.connect(name, socket).await?))
            }
        }
    }

    /// A connection of the client library over a wire of ours. Must be called within a tokio runtime.
    pub async fn connect(&self, uri: AMQPUri, properties: ConnectionProperties) -> lapin::Result<Connection> {
        let kit = RuntimeParts::new(Tokio::current(), Wires(Tokio::current()));
        let plug = Arc::new(self.clone());
        let connect = async move |uri: AMQPUri, _: Runtime<_>| {
            let wire = plug.wire(&uri).await?;
            Ok(AsyncTcpStream::Plain(wire.compat()))
        };
        Connection::connector(uri, Runtime::new(kit), connect, properties).await
    }
}

/// Tokio, with wires for sockets.
#[derive(Clone, Debug)]
struct Wires(Tokio);

impl Reactor for Wires {
    type TcpStream = Compat<Wire>;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: Read + Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    #[allow(clippy::disallowed_types, reason = "the trait's word for when its timer rang; nobody here looks at it")]
    fn interval(&self, period: Duration) -> impl Stream<Item = std::time::Instant> + Send + 'static {
        self.0.interval(period)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        Box::pin(async move { Ok((Box::new(TcpStream::connect(address).await?) as Wire).compat()) })
    }
}
