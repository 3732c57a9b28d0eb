use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mutirao_probes::{Ended, Phase};
use mutirao_tls::Believe;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::server::{SOON, Then, answering, probes_believing, run};

/// A server that speaks HTTP/2 to those who can, and a file with its certificate.
async fn encrypted(name: &str) -> (SocketAddr, tempfile::NamedTempFile) {
    mutirao_tls::install();
    let made = rcgen::generate_simple_self_signed([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), made.cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let answer = service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let said = format!("{:?} {}", request.version(), request.uri().path());
                    Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(said))))
                });
                let io = TokioIo::new(stream);
                if two {
                    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                        .serve_connection(io, answer)
                        .await;
                } else {
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, answer).await;
                }
            });
        }
    });
    (address, file)
}

fn believing(file: &tempfile::NamedTempFile) -> Believe {
    Believe { ca: Some(file.path().into()), pin: None }
}

#[tokio::test]
async fn the_best_version_is_spoken_or_the_one_that_was_asked_for() {
    let (server, file) = encrypted("127.0.0.1").await;
    let probes = probes_believing(&believing(&file));
    for (version, spoken) in [("auto", "HTTP/2.0 /x"), ("1.1", "HTTP/1.1 /x"), ("2", "HTTP/2.0 /x")] {
        let check = format!(r#"{{"http": {{"url": "https://{server}/x", "version": "{version}"}}}}"#);
        let found = probes.run(&serde_json::from_str(&check).unwrap(), SOON).await;
        assert_eq!(found.ended, Ended::Answered, "{version}");
        assert_eq!(String::from_utf8(found.seen.body).unwrap(), spoken);
        assert!(found.timings.of(Phase::Tls).is_some());
        let certificate = found.seen.certificate.unwrap();
        assert!(certificate.chain == 1 && certificate.days_left > 1_000, "{certificate:?}");
    }
}

#[tokio::test]
async fn a_certificate_is_looked_at_and_its_faults_are_told() {
    let (server, file) = encrypted("shop.example.org").await;
    let probes = probes_believing(&believing(&file));
    let look = async |name: &str| {
        let check = format!(r#"{{"tls": {{"address": "{server}", "name": "{name}"}}}}"#);
        probes.run(&serde_json::from_str(&check).unwrap(), SOON).await
    };
    let found = look("shop.example.org").await;
    assert!(found.ended == Ended::Answered && found.seen.certificate.is_some(), "{found:?}");
    let Ended::Failed { phase: Phase::Tls, why } = look("other.example.org").await.ended else { panic!("believed") };
    assert!(why.contains("not for other.example.org"), "{why}");
    let stranger = run(&format!(r#"{{"tls": {{"address": "{server}"}}}}"#), SOON).await;
    let Ended::Failed { phase: Phase::Tls, why } = stranger.ended else { panic!("believed") };
    assert!(why.contains("no authority that we trust"), "{why}");
    let rubbish = answering("\u{1}rubbish that is no TLS at all", Then::Close).await;
    let found = run(&format!(r#"{{"tls": {{"address": "{rubbish}"}}}}"#), SOON).await;
    assert!(matches!(found.ended, Ended::Failed { phase: Phase::Tls, .. }), "{found:?}");
}
