//! Waiting for something to become true, with a limit and a message that says what did not.
//!
//! Not a way to wait for "long enough": there is no plain sleep here on purpose.

use std::time::Duration;

use mutirao_core::{Clock, SystemClock};

/// Between two looks. Short, since most of what is waited for takes milliseconds.
const PAUSE: Duration = Duration::from_millis(10);

/// Blocks until `check` holds; panics with `what` once `limit` has passed.
///
/// ```
/// use std::time::Duration;
/// let mut looks = 0;
/// mutirao_testkit::wait::until("the third look", Duration::from_secs(5), || {
///     looks += 1;
///     looks == 3
/// });
/// ```
#[track_caller]
pub fn until(what: &str, limit: Duration, mut check: impl FnMut() -> bool) {
    if !holds_within(limit, &mut check) {
        panic!("waited {limit:?} in vain for: {what}");
    }
}

/// As [`until`], for values: blocks until `check` gives one.
#[track_caller]
pub fn some<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, limit, || {
        found = check();
        found.is_some()
    });
    found.expect("until returned")
}

/// As [`until`], on the async side: the runtime's thread stays free between looks.
pub async fn eventually(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> bool) {
    let give_up_at = SystemClock.monotonic().plus(limit);
    while !check().await {
        assert!(SystemClock.monotonic() < give_up_at, "waited {limit:?} in vain for: {what}");
        SystemClock.sleep(PAUSE).await;
    }
}

/// For callers that can do something else about it. Looks at least once, and a last time at the limit.
pub fn holds_within(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    let give_up_at = SystemClock.monotonic().plus(limit);
    loop {
        let last = SystemClock.monotonic() >= give_up_at;
        if check() {
            return true;
        }
        if last {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "waited 20ms in vain for: pigs to fly")]
    fn giving_up_names_what_was_waited_for() {
        until("pigs to fly", Duration::from_millis(20), || false);
    }

    #[test]
    fn a_late_truth_is_seen() {
        let began = SystemClock.monotonic();
        until("50 ms to pass", Duration::from_secs(10), || {
            SystemClock.monotonic().since(began) >= Duration::from_millis(50)
        });
    }
}
