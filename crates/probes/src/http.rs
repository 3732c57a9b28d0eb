//! HTTP and HTTPS, each request on a connection of its own: a reused one would hide what a new visitor meets.

use bytes::Bytes;
use http::{Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use crate::check::{Http, Version, target};
use crate::observation::{Phase, Watch};
use crate::reach::{Fault, Reach, words};

const AGENT: &str = concat!("mutirao/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;

pub async fn probe(check: &Http, reach: &Reach, watch: &mut Watch) -> Result<(), Fault> {
    let mut uri = target(&check.url).map_err(Fault::Http)?;
    loop {
        let (answer, connection) = ask(check, &uri, reach, watch).await?;
        let next = redirect(&uri, &answer).filter(|_| watch.seen.redirects < check.redirects);
        let Some(next) = next else {
            note(&answer, watch);
            return read(answer, check.body_max.0 as usize, watch, connection).await;
        };
        watch.seen.redirects += 1;
        uri = next?;
    }
}

/// Ends the task that drives a connection when the probe is done with it, also when it is dropped at its deadline.
struct Driven(AbortHandle);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn ask(check: &Http, uri: &Uri, reach: &Reach, watch: &mut Watch) -> Result<(Response<Incoming>, Driven), Fault> {
    let host = uri.host().unwrap_or_default();
    let encrypted = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    let stream = reach.connect(host, port, watch).await?;
    if !encrypted {
        return send(check, uri, stream, check.version == Version::Two, watch).await;
    }
    let protocols: &[&[u8]] = match check.version {
        Version::Auto => &[b"h2", b"http/1.1"],
        Version::One => &[b"http/1.1"],
        Version::Two => &[b"h2"],
    };
    let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let stream = reach.encrypt(stream, name, protocols, watch).await?;
    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    send(check, uri, stream, two, watch).await
}

async fn send(
    check: &Http,
    uri: &Uri,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    two: bool,
    watch: &mut Watch,
) -> Result<(Response<Incoming>, Driven), Fault> {
    watch.enter(Phase::FirstByte);
    let io = TokioIo::new(stream);
    let fault = |error: hyper::Error| Fault::Http(words(&error));
    if two {
        let (mut sender, connection) = http2::Builder::new(TokioExecutor::new()).handshake(io).await.map_err(fault)?;
        let driven = Driven(tokio::spawn(connection).abort_handle());
        let request = request(check, uri.clone(), None)?;
        return Ok((sender.send_request(request).await.map_err(fault)?, driven));
    }
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(io).await.map_err(fault)?;
    let driven = Driven(tokio::spawn(connection).abort_handle());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| Fault::Http("the path cannot be asked for".into()))?;
    let request = request(check, path, uri.authority().map(|authority| authority.as_str()))?;
    Ok((sender.send_request(request).await.map_err(fault)?, driven))
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

/// Reads up to `most` bytes; the rest, if it ever ends, is not waited for.
async fn read(answer: Response<Incoming>, most: usize, watch: &mut Watch, _connection: Driven) -> Result<(), Fault> {
    watch.enter(Phase::Body);
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Fault::Http(words(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        let room = most - watch.seen.body.len();
        watch.seen.body.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            watch.seen.body_cut = true;
            return Ok(());
        }
    }
    Ok(())
}
