//! A TCP proxy that can be cut: connections break, connections hang, and new ones are refused, at the test's word.
//! Put it between two real processes to see what each makes of the other's absence.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How the way through stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Nothing moves, nothing breaks: a cable pulled out. New connections are accepted, and hang too.
    Hanging,
    /// Connections break as soon as they are made: a process that died.
    Cut,
}

#[derive(Debug)]
struct Shared {
    way: Mutex<Way>,
    changed: Condvar,
    streams: Mutex<Vec<TcpStream>>,
    closed: AtomicBool,
}

/// Forwards connections to one address. Ends them all on drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> std::io::Result<Proxy> {
        Self::listening(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, target)
    }

    /// Takes connections from a listener that the caller made, wherever that is.
    pub fn listening(listener: TcpListener, target: SocketAddr) -> std::io::Result<Proxy> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            way: Mutex::new(Way::Open),
            changed: Condvar::new(),
            streams: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let for_thread = shared.clone();
        std::thread::Builder::new().name("proxy".into()).spawn(move || {
            for stream in listener.incoming() {
                if for_thread.closed.load(Ordering::SeqCst) {
                    return;
                }
                // A connection that fails is simply none: that is what the proxied client sees as well.
                let _ = stream.and_then(|stream| join(stream, target, &for_thread));
            }
        })?;
        Ok(Proxy { address, shared })
    }

    /// Where to connect instead of the target.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection, and each new one at once, until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.shared.turn(Way::Cut);
        self.shared.break_all();
    }

    /// Breaks every connection now; new ones get through.
    pub fn break_connections(&self) {
        self.shared.break_all();
    }

    /// Lets nothing through, without breaking anything, until [`heal`](Self::heal).
    pub fn hang(&self) {
        self.shared.turn(Way::Hanging);
    }

    pub fn heal(&self) {
        self.shared.turn(Way::Open);
    }

    /// Connections that went through and have not been broken by us.
    pub fn connections(&self) -> usize {
        lock(&self.shared.streams).len() / 2
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn turn(&self, way: Way) {
        *lock(&self.way) = way;
        self.changed.notify_all();
    }

    fn break_all(&self) {
        for stream in lock(&self.streams).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits while nothing may move; false when the connection is to break.
    fn may_pass(&self) -> bool {
        let way = lock(&self.way);
        let way = self.changed.wait_while(way, |way| *way == Way::Hanging).unwrap_or_else(PoisonError::into_inner);
        *way == Way::Open
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn join(near: TcpStream, target: SocketAddr, shared: &Arc<Shared>) -> std::io::Result<()> {
    if *lock(&shared.way) == Way::Cut {
        return near.shutdown(Shutdown::Both);
    }
    let far = TcpStream::connect(target)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    lock(&shared.streams).extend([near.try_clone()?, far.try_clone()?]);
    pump(near.try_clone()?, far.try_clone()?, shared.clone())?;
    pump(far, near, shared.clone())
}

/// Copies one direction on a thread of its own until either side ends.
fn pump(mut from: TcpStream, mut to: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let copy = move || {
        let mut buffer = [0u8; 16 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(n) if n > 0 && shared.may_pass() && to.write_all(&buffer[..n]).is_ok() => {}
                _ => break,
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().name("proxy-pump".into()).spawn(copy).map(drop)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// A server that sends back what it is sent.
    pub(crate) fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
            }
        });
        address
    }

    fn client(proxy: &Proxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream
    }

    pub(crate) fn echoes(mut stream: &TcpStream) -> bool {
        let mut back = [0; 4];
        stream.write_all(b"ping").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"ping"
    }

    #[test]
    fn what_is_cut_breaks_and_what_is_healed_passes() {
        let proxy = Proxy::to(echo()).unwrap();
        let before = client(&proxy);
        assert!(echoes(&before));
        proxy.cut();
        assert!(!echoes(&before));
        assert!(!echoes(&client(&proxy)));
        proxy.heal();
        assert!(!echoes(&before), "a broken connection stays broken");
        assert!(echoes(&client(&proxy)));
    }

    #[test]
    fn what_hangs_arrives_after_all() {
        let proxy = Proxy::to(echo()).unwrap();
        let mut stream = client(&proxy);
        assert!(echoes(&stream));
        proxy.hang();
        stream.write_all(b"late").unwrap();
        let mut back = [0; 4];
        assert!(stream.read_exact(&mut back).is_err());
        proxy.heal();
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"late");
    }
}
