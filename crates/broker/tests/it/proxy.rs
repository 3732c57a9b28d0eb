//! A TCP proxy on loopback that can be cut, and that can fall silent without closing anything.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Connections break; new ones are closed at once.
    Cut,
    /// Connections stay and nothing passes.
    Silent,
}

pub struct Proxy {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    task: tokio::task::AbortHandle,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let mode = watch::Sender::new(Mode::Open);
        let modes = mode.subscribe();
        let task = tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { continue };
                tokio::spawn(carry(near, target, modes.clone()));
            }
        });
        Self { address, mode, task: task.abort_handle() }
    }

    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    pub fn silence(&self) {
        self.mode.send_replace(Mode::Silent);
    }

    pub fn heal(&self) {
        self.mode.send_replace(Mode::Open);
    }
}

async fn carry(mut near: TcpStream, target: SocketAddr, mut modes: watch::Receiver<Mode>) {
    if *modes.borrow_and_update() == Mode::Cut {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    // Cut must end the connection even when it is healed again before this task looks: watch the change, not the value.
    tokio::select! {
        _ = modes.changed() => {
            if *modes.borrow() == Mode::Silent {
                let _ = modes.wait_for(|mode| *mode != Mode::Silent).await;
            }
        }
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
    }
}
