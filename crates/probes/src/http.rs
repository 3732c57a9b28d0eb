//! HTTP and HTTPS, each request on a connection of its own unless a check says otherwise: a reused one would hide what a new
//! visitor meets. Those that are to be reused are [kept](crate::idle) once an answer was read to its end.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mutirao_core::clock::ClockExt;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::check::{Http, Version, target};
use crate::idle::{Idle, Place};
use crate::observation::{Certificate, Phase, Watch};
use crate::reach::{Fault, Reach, words};

const AGENT: &str = concat!("mutirao/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long a connection whose answer was read may take to be ready for the next request.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_millis(20);

/// Connections for checks to come.
pub type Kept = Arc<Mutex<Idle<Connection>>>;

pub async fn probe(check: &Http, reach: &Reach, kept: &Kept, watch: &mut Watch) -> Result<(), Fault> {
    let mut uri = target(&check.url).map_err(Fault::Http)?;
    loop {
        let place = place_of(check, &uri);
        let (answer, connection) = ask(check, &uri, &place, reach, kept, watch).await?;
        let next = redirect(&uri, &answer).filter(|_| watch.seen.redirects < check.redirects);
        let Some(next) = next else {
            note(&answer, watch);
            if read(answer, check.body_max.0 as usize, watch).await? == Read::Whole && check.reuse {
                keep(place, connection, kept, watch).await;
            }
            return Ok(());
        };
        watch.seen.redirects += 1;
        uri = next?;
    }
}

/// For the next one, if the other side keeps it open: that is known in a moment.
async fn keep(place: Place, mut connection: Connection, kept: &Kept, watch: &Watch) {
    let ready = match &mut connection.sender {
        Sender::One(sender) => watch.clock().timeout(READY_WITHIN, sender.ready()).await,
        Sender::Two(sender) => watch.clock().timeout(READY_WITHIN, sender.ready()).await,
    };
    if matches!(ready, Ok(Ok(()))) {
        kept.lock().keep(place, connection, watch.clock().monotonic());
    }
}

fn place_of(check: &Http, uri: &Uri) -> Place {
    let encrypted = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    Place { host: uri.host().unwrap_or_default().to_owned(), port, encrypted, version: check.version }
}

/// Ends the task that drives a connection when the probe is done with it, also when it is dropped at its deadline.
struct Driven(AbortHandle);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

/// One that requests can be sent over, and what was seen of the other side when it was made.
pub struct Connection {
    sender: Sender,
    address: Option<std::net::SocketAddr>,
    certificate: Option<Certificate>,
    _driven: Driven,
}

impl Connection {
    fn is_ready(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_ready(),
            Sender::Two(sender) => sender.is_ready(),
        }
    }

    async fn send(&mut self, check: &Http, uri: &Uri) -> Result<Result<Response<Incoming>, hyper::Error>, Fault> {
        match &mut self.sender {
            Sender::One(sender) => {
                let path = uri.path_and_query().map_or("/", |path| path.as_str());
                let path = path.parse().map_err(|_| Fault::Http("the path cannot be asked for".into()))?;
                let request = request(check, path, uri.authority().map(|authority| authority.as_str()))?;
                Ok(sender.send_request(request).await)
            }
            Sender::Two(sender) => Ok(sender.send_request(request(check, uri.clone(), None)?).await),
        }
    }
}

async fn ask(
    check: &Http,
    uri: &Uri,
    place: &Place,
    reach: &Reach,
    kept: &Kept,
    watch: &mut Watch,
) -> Result<(Response<Incoming>, Connection), Fault> {
    watch.seen.reused = false;
    let now = watch.clock().monotonic();
    let known = if check.reuse { kept.lock().take(place, now, Connection::is_ready) } else { None };
    if let Some(mut connection) = known {
        watch.enter(Phase::FirstByte);
        match connection.send(check, uri).await? {
            Ok(answer) => {
                (watch.seen.reused, watch.seen.address) = (true, connection.address);
                let wall = watch.clock().now();
                watch.seen.certificate = connection
                    .certificate
                    .clone()
                    .map(|seen| Certificate { days_left: mutirao_tls::days_left(seen.until, wall), ..seen });
                return Ok((answer, connection));
            }
            // The other side may close an idle one at any moment, which is no fault of the service. What may have arrived
            // and must not be said twice is not.
            Err(error) if error.is_canceled() || matches!(check.method.as_str(), "GET" | "HEAD" | "OPTIONS") => {}
            Err(error) => return Err(Fault::Http(words(&error))),
        }
    }
    let mut connection = connect(check, place, reach, watch).await?;
    let answer = connection.send(check, uri).await?.map_err(|error| Fault::Http(words(&error)))?;
    Ok((answer, connection))
}

async fn connect(check: &Http, place: &Place, reach: &Reach, watch: &mut Watch) -> Result<Connection, Fault> {
    let stream = reach.connect(&place.host, place.port, watch).await?;
    if !place.encrypted {
        return greet(stream, check.version == Version::Two, watch).await;
    }
    let protocols: &[&[u8]] = match check.version {
        Version::Auto => &[b"h2", b"http/1.1"],
        Version::One => &[b"http/1.1"],
        Version::Two => &[b"h2"],
    };
    let host = place.host.as_str();
    let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let stream = reach.encrypt(stream, name, protocols, watch).await?;
    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    greet(stream, two, watch).await
}

async fn greet(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    two: bool,
    watch: &mut Watch,
) -> Result<Connection, Fault> {
    watch.enter(Phase::FirstByte);
    let io = TokioIo::new(stream);
    let fault = |error: hyper::Error| Fault::Http(words(&error));
    let (sender, driven) = if two {
        let (sender, driving) = http2::Builder::new(TokioExecutor::new()).handshake(io).await.map_err(fault)?;
        (Sender::Two(sender), tokio::spawn(driving).abort_handle())
    } else {
        let builder = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(io).await;
        let (sender, driving) = builder.map_err(fault)?;
        (Sender::One(sender), tokio::spawn(driving).abort_handle())
    };
    let (address, certificate) = (watch.seen.address, watch.seen.certificate.clone());
    Ok(Connection { sender, address, certificate, _driven: Driven(driven) })
}

/// `host` is said where the URL does not say it.
fn request(check: &Http, uri: Uri, host: Option<&str>) -> Result<Request<Full<Bytes>>, Fault> {
    let mut builder = Request::builder().method(check.method.as_str()).uri(uri);
    let given = |name: &header::HeaderName| check.headers.keys().any(|key| key.eq_ignore_ascii_case(name.as_str()));
    if let Some(host) = host.filter(|_| !given(&header::HOST)) {
        builder = builder.header(header::HOST, host);
    }
    if !given(&header::USER_AGENT) {
        builder = builder.header(header::USER_AGENT, AGENT);
    }
    if !given(&header::ACCEPT) {
        builder = builder.header(header::ACCEPT, "*/*");
    }
    for (name, value) in &check.headers {
        builder = builder.header(name, value);
    }
    builder.body(Full::from(check.body.clone())).map_err(|error| Fault::Http(error.to_string()))
}

/// Where an answer sends us, if it does.
fn redirect(from: &Uri, answer: &Response<Incoming>) -> Option<Result<Uri, Fault>> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let to = answer.headers().get(header::LOCATION)?.to_str().ok()?;
    let scheme = from.scheme_str().unwrap_or("http");
    let whole = match to {
        _ if to.contains("://") => to.to_owned(),
        _ if to.starts_with("//") => format!("{scheme}:{to}"),
        _ => {
            let authority = from.authority().map_or("", |authority| authority.as_str());
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            let path = if to.starts_with('/') { to.to_owned() } else { format!("{folder}/{to}") };
            format!("{scheme}://{authority}{path}")
        }
    };
    Some(target(&whole).map_err(|why| Fault::Http(format!("it redirects to where nobody can go: {why}"))))
}

fn note(answer: &Response<Incoming>, watch: &mut Watch) {
    watch.seen.status = Some(answer.status().as_u16());
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    watch.seen.headers = answer.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
}

#[derive(Debug, PartialEq, Eq)]
enum Read {
    Whole,
    Cut,
}

/// Reads up to `most` bytes; the rest, if it ever ends, is not waited for.
async fn read(answer: Response<Incoming>, most: usize, watch: &mut Watch) -> Result<Read, Fault> {
    watch.enter(Phase::Body);
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::Http(words(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = most - watch.seen.body.len();
        watch.seen.body.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            watch.seen.body_cut = true;
            return Ok(Read::Cut);
        }
    }
    Ok(Read::Whole)
}
