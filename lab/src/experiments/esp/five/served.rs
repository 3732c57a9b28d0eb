//! A server with two WebSockets: the link, and one that writes what it hears to a file and gives it back.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt;
use mutirao_broker::Shared;
use mutirao_broker::link::{Link, Permit, prepare, serve};
use mutirao_core::{Dice, SystemClock};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use super::raw::Synced;

#[derive(Clone)]
struct Parts {
    broker: Shared,
    file: PathBuf,
}

pub struct Served {
    address: SocketAddr,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    pub async fn start(broker: Shared, file: PathBuf) -> anyhow::Result<Self> {
        mutirao_tls::install();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app =
            Router::new().route("/v1/link", get(linked)).route("/echo", get(echoed)).with_state(Parts { broker, file });
        let listener = listener.tap_io(|socket| _ = socket.set_nodelay(true));
        let task = tokio::spawn(async move { axum::serve(listener, app).await }).abort_handle();
        Ok(Self { address, task })
    }

    pub fn echo_url(&self) -> String {
        format!("ws://{}/echo", self.address)
    }

    pub async fn link(&self) -> Arc<Link> {
        let url = format!("ws://{}/v1/link", self.address);
        let link = Link::connect(url, Arc::new(String::new), SystemClock::shared(), Dice::from_os().into());
        link.connected().await;
        link
    }
}

async fn linked(State(parts): State<Parts>, upgrade: WebSocketUpgrade) -> Response {
    prepare(upgrade).on_upgrade(|socket| serve(socket, parts.broker, Permit::everything(), SystemClock::shared()))
}

async fn echoed(State(parts): State<Parts>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(|socket| async move { _ = echo(socket, parts.file).await })
}

async fn echo(mut socket: WebSocket, file: PathBuf) -> anyhow::Result<()> {
    let synced = Synced::make(&file)?;
    while let Some(Ok(Message::Binary(body))) = socket.recv().await {
        synced.append(body.clone()).await?;
        socket.send(Message::Binary(body)).await?;
    }
    Ok(())
}
