//! A small pool of threads that are kept for a while when they have nothing to do: starting one costs about as much as
//! the rest of the worker's share in a short task. Stacks are small, as each only waits on a process.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::nook::Nook;

const STACK_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;
const IDLE_MAX: Duration = Duration::from_secs(10);

/// What a thread keeps from run to run.
pub(crate) struct Bench {
    pub bell: Arc<OwnedFd>,
    pub buffer: Vec<u8>,
    /// A folder that the last task left as it was.
    pub nook: Option<Nook>,
}

impl Bench {
    pub fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { bell: Arc::new(bell), buffer: vec![0; READ_BYTES], nook: None })
    }
}

type Work = Box<dyn FnOnce(&mut Bench) + Send>;

#[derive(Default)]
struct State {
    /// Never longer than the number of running tasks, which is bounded.
    queue: VecDeque<Work>,
    threads: usize,
    idle: usize,
    closed: bool,
}

pub(crate) struct Threads {
    state: Mutex<State>,
    bell: Condvar,
}

impl Threads {
    /// Starts with one thread, which stays, so that work that was handed over is always done.
    pub fn new() -> std::io::Result<Arc<Self>> {
        let threads = Arc::new(Self { state: Mutex::default(), bell: Condvar::new() });
        threads.lock().threads = 1;
        threads.add()?;
        Ok(threads)
    }

    /// Hands work to an idle thread, or to a new one.
    pub fn start(self: &Arc<Self>, work: Work) {
        let mut state = self.lock();
        state.queue.push_back(work);
        if state.idle >= state.queue.len() {
            drop(state);
            self.bell.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        if let Err(error) = self.add() {
            // One of the threads there are will come to it.
            tracing::warn!(%error, "cannot start a thread");
            self.lock().threads -= 1;
        }
    }

    /// Threads go as soon as they have nothing to do.
    pub fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_all();
    }

    fn add(self: &Arc<Self>) -> std::io::Result<()> {
        let threads = self.clone();
        let mut bench = Bench::new()?;
        std::thread::Builder::new().name("exec".into()).stack_size(STACK_BYTES).spawn(move || {
            while let Some(work) = threads.next() {
                work(&mut bench);
            }
        })?;
        Ok(())
    }

    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                return Some(work);
            }
            if state.closed {
                state.threads -= 1;
                return None;
            }
            state.idle += 1;
            let (woken, waited) = self.bell.wait_timeout(state, IDLE_MAX).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() && state.threads > 1 {
                state.threads -= 1;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
