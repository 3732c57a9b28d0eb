//! The socket: accepts within a bound, gives each connection a time to say what it wants, and ends in order.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mutirao_core::Clock;
use mutirao_core::clock::ClockExt;
use mutirao_tls::Serving;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::ApiError;
use crate::swift::ShortWay;
use crate::tls::{self, Greeting};

/// How long a client may take to send a request's head; also how long an idle connection is kept. Longer than clients
/// keep theirs (90 s is common), so that it is mostly they who close, and no request meets a closing connection.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// After a failed accept (no more file descriptors, mostly), so as not to spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How to serve.
#[derive(Clone)]
pub struct Serve {
    pub clock: Arc<dyn Clock>,
    pub shutdown: CancellationToken,
    /// Connections that became links.
    pub links: TaskTracker,
    /// How long open requests may take to end after the shutdown.
    pub drain: Duration,
    pub connections_max: usize,
    /// The certificate to show; without one, plain HTTP is spoken.
    pub tls: Option<Serving>,
}

/// What answers requests.
#[derive(Clone)]
pub struct Answering {
    pub router: Router,
    /// For those that need not take the long one.
    pub short_way: Option<Arc<ShortWay>>,
}

impl Answering {
    async fn answer(self, mut request: Request<Body>, peer: SocketAddr) -> Response {
        if let Some(way) = &self.short_way
            && let Some(found) = way.find(&request)
        {
            return way.answer(found, request, peer).await;
        }
        request.extensions_mut().insert(ConnectInfo(peer));
        // Seldom, and far larger than the other: apart, so that each connection need not have room for it.
        Box::pin(self.router.oneshot(request)).await.unwrap_or_else(|never| match never {})
    }
}

/// Serves until the shutdown; then stops accepting, lets what is open end, and after the drain time cuts what has not.
pub async fn serve(listener: TcpListener, answering: Answering, how: Serve) -> Result<(), ApiError> {
    let places = Arc::new(Semaphore::new(how.connections_max));
    let connections = TaskTracker::new();
    // Cuts what has not ended: a child of no shutdown, since it comes after.
    let cut = CancellationToken::new();
    let _cut_in_any_case = cut.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            biased;
            () = how.shutdown.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((socket, peer, place)) => {
                // Tokens of its own: at each step of its work a connection looks at them, which takes a lock.
                let how = Serve { shutdown: how.shutdown.child_token(), ..how.clone() };
                let (answering, cut) = (answering.clone(), cut.child_token());
                connections.spawn(async move {
                    let _place = place;
                    tokio::select! {
                        biased;
                        () = welcome(socket, peer, answering, how, Stay::UntilShutdown) => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                how.clock.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // At an address that others listen at too, the system has already given us those that wait: nobody else will answer them.
    while let Some(Ok((socket, peer, place))) = accept(&listener, &places).now_or_never() {
        let (answering, how, cut) = (answering.clone(), how.clone(), cut.child_token());
        connections.spawn(async move {
            let _place = place;
            tokio::select! {
                biased;
                () = welcome(socket, peer, answering, how, Stay::OneRequest) => {}
                () = cut.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    how.links.close();
    let ended = async { tokio::join!(connections.wait(), how.links.wait()) };
    if how.clock.timeout(how.drain, ended).await.is_err() {
        tracing::warn!(open = connections.len() + how.links.len(), "connections did not end in time and are cut");
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    // The place comes first: what finds none waits in the kernel's backlog, which is bounded too.
    let place = places.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (socket, peer) = listener.accept().await?;
    Ok((socket, peer, place))
}

/// How long a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    UntilShutdown,
    /// Of one that is only taken up while the server goes down.
    OneRequest,
}

async fn welcome(socket: TcpStream, peer: SocketAddr, answering: Answering, how: Serve, stay: Stay) {
    // Answers are written whole, so waiting for more to send only delays them.
    let _ = socket.set_nodelay(true);
    // It has begun already, and ends nothing of this.
    let how = if stay == Stay::OneRequest { Serve { shutdown: CancellationToken::new(), ..how } } else { how };
    let Some(serving) = &how.tls else { return connection(socket, peer, answering, how.shutdown, stay).await };
    let greeting = tokio::select! {
        greeting = tls::greet(socket, serving, &*how.clock) => greeting,
        // Nothing was asked yet, so there is nothing to end in order.
        () = how.shutdown.cancelled() => return,
    };
    match greeting {
        Ok(Greeting::Tls(stream)) => connection(*stream, peer, answering, how.shutdown, stay).await,
        Ok(Greeting::Plain(socket)) => {
            let answering = Answering { router: tls::only_tls(), short_way: None };
            connection(socket, peer, answering, how.shutdown, stay).await;
        }
        Err(error) => tracing::debug!(%peer, %error, "no TLS came about"),
    }
}

async fn connection<S>(socket: S, peer: SocketAddr, answering: Answering, shutdown: CancellationToken, stay: Stay)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let answer = answering.clone().answer(request.map(Body::new), peer);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(stay == Stay::UntilShutdown)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use mutirao_core::SystemClock;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn who_waits_at_the_door_when_it_is_closed_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for _ in 0..5 {
            let mut socket = TcpStream::connect(address).await.unwrap();
            socket.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
            waiting.push(socket);
        }
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let how = Serve {
            clock: SystemClock::shared(),
            shutdown,
            links: TaskTracker::new(),
            drain: Duration::from_secs(5),
            connections_max: 100,
            tls: None,
        };
        let answering = Answering { router: Router::new().route("/", get(|| async { "hi" })), short_way: None };
        serve(listener, answering, how).await.unwrap();
        for mut socket in waiting {
            let mut said = String::new();
            socket.read_to_string(&mut said).await.unwrap();
            assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("hi"), "{said}");
        }
    }
}
