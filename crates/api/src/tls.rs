//! What comes before HTTP on a port with a certificate: the handshake, or a word to those who came without one.

use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use mutirao_core::clock::ClockExt;
use mutirao_core::{Clock, Problem};
use mutirao_surface::Rejection;
use mutirao_tls::Serving;
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// From the connection to the end of the handshake.
const GREETING_WITHIN: Duration = Duration::from_secs(10);
/// The first byte of a handshake. No HTTP method begins with it.
const HANDSHAKE: u8 = 0x16;

pub enum Greeting {
    Tls(Box<TlsStream<TcpStream>>),
    /// It speaks something else, most likely HTTP.
    Plain(TcpStream),
}

/// Within a bound of time: a caller that says nothing must not keep its place.
pub async fn greet(socket: TcpStream, serving: &Serving, clock: &dyn Clock) -> io::Result<Greeting> {
    let greeting = async {
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            return Ok(Greeting::Plain(socket));
        }
        let stream = serving.acceptor().accept(socket).await?;
        Ok(Greeting::Tls(Box::new(stream)))
    };
    clock.timeout(GREETING_WITHIN, greeting).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

/// All that a plain request is told.
pub fn only_tls() -> Router {
    Router::new().fallback(refuse)
}

async fn refuse() -> Response {
    let problem = Problem::new(426, "tls-needed", "this port speaks TLS")
        .detail("this port speaks https only, and the request came without it")
        .remedy("write https:// instead of http://");
    let mut response = Rejection(problem).into_response();
    // The status asks for this header.
    response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static("TLS/1.2, HTTP/1.1"));
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade, close"));
    response
}
