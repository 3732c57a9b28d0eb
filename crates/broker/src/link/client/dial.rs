//! The socket of a link's client: connecting, for ever, and moving messages while it is connected.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use mutirao_core::Problem;
use mutirao_core::clock::{Clock, ClockExt};
use mutirao_core::dice::Dice;
use mutirao_tls::Fault;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::http::{HeaderValue, Response, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, connect_async_tls_with_config};

use super::state::Parting;
use super::telling::{Telling, Word};
use super::{Authorize, Core, LinkState, Server};
use crate::link::frame::{SUBPROTOCOL, WS_BYTES_MAX, pack, unpack};
use crate::link::{PING_EVERY, Silence, WRITE_MAX};

/// The wait after the first failure; it doubles up to the longest.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_LONGEST: Duration = Duration::from_secs(5);
/// How long one attempt may take.
const DIAL_MAX: Duration = Duration::from_secs(10);
/// Characters of a server's refusal that are passed on.
const REASON_CHARS_MAX: usize = 300;
const BUFFER_BYTES: usize = 64 << 10;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

enum NoSocket {
    Away(String),
    Refused(String),
    Unsafe(String),
}

/// Connects, and connects again, until it is aborted.
pub(super) async fn keep_up(
    core: Arc<Core>,
    server: Server,
    authorize: Authorize,
    clock: Arc<dyn Clock>,
    dice: Arc<Dice>,
) {
    let mut failures = 0;
    let mut telling = Telling::default();
    let url = &server.url;
    loop {
        let wait = match dial(&server, &authorize, &*clock).await {
            Ok(socket) => {
                let since = clock.monotonic();
                core.state.lock().went_up();
                core.status.send_replace(LinkState::Up);
                match telling.up(since) {
                    Word::Back(after) => tracing::info!(url, after_s = after.as_secs(), "the link is up again"),
                    _ => tracing::debug!(url, "the link is up"),
                }
                let why = converse(&core, socket, &*clock).await;
                // A server that accepts only to hang up is not to be asked ten times a second.
                failures = if clock.monotonic().since(since) > WAIT_LONGEST { 0 } else { failures };
                core.state.lock().went_down(&why);
                telling.away(clock.monotonic());
                tracing::info!(url, why, "the link went down; it is tried again, and told here when it is up");
                core.status.send_replace(LinkState::Down(why));
                backoff(failures)
            }
            Err(NoSocket::Away(why)) => {
                match telling.away(clock.monotonic()) {
                    Word::Away => tracing::warn!(
                        url,
                        why,
                        "the manager cannot be reached; is it running there, and is the address right? it is tried again, \
                         and told here when it answers"
                    ),
                    Word::StillAway(away) => {
                        tracing::warn!(url, why, away_s = away.as_secs(), "the manager still cannot be reached");
                    }
                    _ => tracing::debug!(url, why, "the link cannot be made"),
                }
                core.status.send_replace(LinkState::Down(why));
                backoff(failures)
            }
            Err(NoSocket::Refused(why)) => {
                // Said once, and not every few seconds.
                if !matches!(&*core.status.borrow(), LinkState::Refused(_)) {
                    tracing::warn!(url, why, "the link is refused");
                }
                core.status.send_replace(LinkState::Refused(why));
                WAIT_LONGEST
            }
            Err(NoSocket::Unsafe(why)) => {
                tracing::warn!(url, why, "the link would not be safe");
                core.status.send_replace(LinkState::Unsafe(why));
                WAIT_LONGEST
            }
        };
        failures += 1;
        clock.sleep(dice.jitter(wait)).await;
    }
}

fn backoff(failures: u32) -> Duration {
    WAIT_FIRST.saturating_mul(1 << failures.min(16)).min(WAIT_LONGEST)
}

async fn dial(server: &Server, authorize: &Authorize, clock: &dyn Clock) -> Result<Socket, NoSocket> {
    let url = &server.url;
    let mut request = url.into_client_request().map_err(|error| NoSocket::Away(format!("{url}: {error}")))?;
    let authorization = HeaderValue::from_str(&authorize())
        .map_err(|_| NoSocket::Away("the authorization cannot be put in a header".into()))?;
    request.headers_mut().insert(AUTHORIZATION, authorization);
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default()
        .max_message_size(Some(WS_BYTES_MAX))
        .max_frame_size(Some(WS_BYTES_MAX))
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES);
    let connector = server.trust.as_ref().map(|trust| Connector::Rustls(trust.config().clone()));
    match clock.timeout(DIAL_MAX, connect_async_tls_with_config(request, Some(config), true, connector)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => Err(answered(&response)),
        Ok(Err(error)) => Err(match Fault::find(&error) {
            Some(fault) => NoSocket::Unsafe(fault.to_string()),
            None => NoSocket::Away(error.to_string()),
        }),
        Err(_) => Err(NoSocket::Away(format!("no answer within {} s", DIAL_MAX.as_secs()))),
    }
}

fn answered(response: &Response<Option<Vec<u8>>>) -> NoSocket {
    let body = String::from_utf8_lossy(response.body().as_deref().unwrap_or_default());
    let why = match serde_json::from_str::<Problem>(&body) {
        Ok(problem) => problem.line(),
        Err(_) => {
            let body: String = body.chars().take(REASON_CHARS_MAX).collect();
            format!("{} {}", response.status(), body.trim()).trim_end().to_owned()
        }
    };
    match response.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => NoSocket::Refused(why),
        // How a server that speaks TLS answers those who do not.
        StatusCode::UPGRADE_REQUIRED => NoSocket::Unsafe(why),
        _ => NoSocket::Away(why),
    }
}

/// Reads and writes side by side until one of them fails; says why.
async fn converse(core: &Core, socket: Socket, clock: &dyn Clock) -> String {
    let (sink, stream) = socket.split();
    tokio::select! {
        why = write(core, sink, clock) => why,
        why = read(core, stream, clock) => why,
    }
}

async fn write(core: &Core, mut sink: SplitSink<Socket, Message>, clock: &dyn Clock) -> String {
    loop {
        let parting = core.state.lock().next_parting();
        let message = match parting {
            Some(Parting::Frames(frames)) => {
                let packed = frames.iter().fold(Vec::new(), |packed, frame| pack(&**frame, packed));
                Message::Binary(packed.into())
            }
            Some(Parting::Ping) => Message::Ping(Bytes::new()),
            None => {
                core.work.notified().await;
                continue;
            }
        };
        match clock.timeout(WRITE_MAX, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "the server takes nothing".into(),
        }
    }
}

/// Never waits for anything but the socket: see the page of [`crate::link`] for why that matters.
async fn read(core: &Core, mut stream: SplitStream<Socket>, clock: &dyn Clock) -> String {
    let mut tick = clock.sleep(PING_EVERY);
    let mut silence = Silence::default();
    loop {
        tokio::select! {
            () = &mut tick => {
                tick = clock.sleep(PING_EVERY);
                if let Err(why) = silence.tick() {
                    return why;
                }
                core.state.lock().want_ping();
                core.work.notify_one();
            }
            message = stream.next() => {
                silence.broken();
                let mut bytes = match message {
                    Some(Ok(Message::Binary(bytes))) => bytes,
                    Some(Ok(Message::Close(Some(close)))) => return format!("closed by the server: {}", close.reason),
                    Some(Ok(Message::Close(None))) | None => return "closed by the server".into(),
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => return error.to_string(),
                };
                while !bytes.is_empty() {
                    let heard = unpack(&mut bytes).and_then(|frame| core.state.lock().heard(frame));
                    if let Err(rubbish) = heard {
                        return rubbish.to_string();
                    }
                }
            }
        }
    }
}
