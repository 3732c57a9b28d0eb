//! Randomness, injected. A [`Dice`] is seeded once, from the operating system in production and from a number in a
//! test, so that any run can be replayed.

use std::cell::RefCell;
use std::sync::Mutex;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A shareable seeded generator. Not for keys or tokens: those come from the operating system.
#[derive(Debug)]
pub struct Dice(Mutex<Pcg64Mcg>);

impl Dice {
    pub fn seeded(seed: u64) -> Self {
        Self(Mutex::new(Pcg64Mcg::seed_from_u64(seed)))
    }

    pub fn from_os() -> Self {
        Self(Mutex::new(from_os()))
    }

    pub fn u64(&self) -> u64 {
        self.lock().random()
    }

    /// Uniform in [0, 1).
    pub fn unit(&self) -> f64 {
        self.lock().random()
    }

    /// Uniform in [0, `n`); zero when `n` is zero.
    pub fn below(&self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.lock().random_range(0..n) }
    }

    /// `base` spread over [50 %, 100 %], so that many who failed together do not return together.
    pub fn jitter(&self, base: Duration) -> Duration {
        base.mul_f64(0.5 + 0.5 * self.unit())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pcg64Mcg> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A number that names something and guards nothing, such as a trace: no two are the same, and who has seen one may guess
/// the next. Costs no call of the operating system, unlike [`os_random`].
pub fn name() -> u128 {
    thread_local! {
        static NAMES: RefCell<Pcg64Mcg> = RefCell::new(from_os());
    }
    NAMES.with_borrow_mut(|names| names.random())
}

fn from_os() -> Pcg64Mcg {
    let mut seed = [0u8; 16];
    os_random(&mut seed);
    Pcg64Mcg::from_seed(seed)
}

/// Bytes for keys, tokens and nonces, straight from the operating system.
pub fn os_random(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_are_the_same_in_any_thread() {
        let some = || std::thread::spawn(|| (0..1_000).map(|_| name()).collect::<Vec<_>>());
        let threads = [some(), some(), some()];
        let mut names: Vec<u128> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 3_000);
    }
}
