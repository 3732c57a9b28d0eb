//! Servers that say exactly what they are told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_probes::{Check, Observation, Probes, Reach, Strangers};
use mutirao_tls::Believe;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

pub const SOON: Duration = Duration::from_secs(20);

pub fn probes() -> Probes {
    probes_believing(&Believe::default())
}

pub fn probes_believing(believe: &Believe) -> Probes {
    mutirao_tls::install();
    Probes::new(Reach::new(believe, Strangers::Refused).unwrap(), SystemClock::shared())
}

pub async fn run(json: &str, within: Duration) -> Observation {
    let check: Check = serde_json::from_str(json).unwrap();
    check.check().unwrap();
    probes().run(&check, within).await
}

/// What follows the answer.
#[derive(Clone, Copy)]
pub enum Then {
    Close,
    /// The connection stays open and silent.
    Hang,
    /// The last byte is sent again and again.
    ForEver,
}

/// Answers every connection with these bytes, once a request has come.
pub async fn answering(bytes: &str, then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bytes = bytes.to_owned();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(bytes.as_bytes()).await;
                match then {
                    Then::Close => {}
                    Then::Hang => std::future::pending().await,
                    Then::ForEver => while stream.write_all(&[b'x'; 8192]).await.is_ok() {},
                }
            });
        }
    });
    address
}

/// Answers so many requests on each connection and then closes it; the number counts connections.
pub async fn keeping(each: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, connections) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = connections.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                for _ in 0..each {
                    if stream.read(&mut request).await.unwrap_or(0) == 0 {
                        return;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
                }
            });
        }
    });
    (address, connections)
}
