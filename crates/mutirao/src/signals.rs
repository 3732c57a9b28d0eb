//! Being asked to stop: SIGINT (Ctrl-C), SIGTERM and SIGHUP mean the same, and asking again means it more.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Asked {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Asked {
    /// From here on the signals no longer end the process.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until somebody asks. Cancel-safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
