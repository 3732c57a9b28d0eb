//! A TCP proxy on loopback that can be cut, and that can fall silent without closing anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mutirao_core::SystemClock;
use mutirao_core::clock::Clock;
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
    /// Held by each connection.
    carried: Arc<()>,
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
        let carried = Arc::new(());
        let carrying = Arc::downgrade(&carried);
        let task = tokio::spawn(async move {
            loop {
                let Ok((near, _)) = listener.accept().await else { continue };
                let Some(carrying) = carrying.upgrade() else { return };
                let modes = modes.clone();
                tokio::spawn(async move {
                    carry(near, target, modes).await;
                    drop(carrying);
                });
            }
        });
        Self { address, mode, carried, task: task.abort_handle() }
    }

    pub fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Waits until what was cut has really ended: what is sent from then on does not arrive.
    pub async fn ended(&self) {
        while Arc::strong_count(&self.carried) > 1 {
            SystemClock.sleep(Duration::from_millis(1)).await;
        }
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
