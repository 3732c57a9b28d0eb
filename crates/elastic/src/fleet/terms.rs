//! How long things may take in the life of a worker.

use std::time::Duration;

use mutirao_core::Problem;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From the provider's yes to the worker's first word; then it is given up.
    pub report_in: Duration,
    /// How long the provider must not have listed a worker before it is believed to be gone. Longer than a call to the
    /// provider may take: a call whose caller died may still land.
    pub missing_for: Duration,
    /// How long a worker that reported, or is to drain, may be without a session before it is ended.
    pub silent_for: Duration,
    /// How long one may drain; none: as long as its tasks take, for a long task near its end must not be thrown away.
    pub drain_max: Option<Duration>,
    /// How long until the provider is told again to end what it still has: machines take a while to go.
    pub end_again: Duration,
    /// The pause after the provider's first failure; doubled with each further one.
    pub pause_first: Duration,
    /// Steps of one pass: the rest waits for the next.
    pub actions_max: usize,
}

impl Terms {
    /// The longest pause after a failure. Short enough that a provider that is well again is noticed within a minute.
    pub const PAUSE_MAX: Duration = Duration::from_secs(30);

    /// `call_max`: the longest a call to the provider may take.
    pub fn check(&self, call_max: Duration) -> Result<(), Problem> {
        if self.missing_for <= call_max {
            let detail =
                format!("{:?} is not longer than a call to the provider may take, {call_max:?}", self.missing_for);
            return Err(Problem::invalid("missing_for", detail)
                .remedy("raise it: a call that lands late would be taken for a leak"));
        }
        for (field, value) in
            [("report_in", self.report_in), ("silent_for", self.silent_for), ("pause_first", self.pause_first)]
        {
            if value.is_zero() {
                return Err(Problem::invalid(field, "no time at all").remedy("write a time like 60s"));
            }
        }
        if self.actions_max == 0 {
            return Err(Problem::invalid("actions_max", "nothing could ever be done").remedy("set it to 1 or more"));
        }
        Ok(())
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            report_in: Duration::from_secs(120),
            missing_for: Duration::from_secs(15),
            silent_for: Duration::from_secs(30),
            drain_max: None,
            end_again: Duration::from_secs(5),
            pause_first: Duration::from_secs(1),
            actions_max: 100,
        }
    }
}
