//! How long things last. The safety of ownership rests on `lease` and `margin`; the rest is pace.

use std::time::Duration;

use crate::ShardsError;

/// A beat that is on its way, one that is lost and one that comes in time must all fit into a tenure.
const BEATS_IN_A_TENURE_MIN: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a lease that is not renewed keeps others away. Written into the lease, so that members with other terms
    /// wait just as long.
    pub lease: Duration,
    /// How much earlier its owner stops believing in it: for clocks of different rates, and for the time between asking
    /// whether it holds and having acted.
    pub margin: Duration,
    /// Between two renewals, at most.
    pub beat: Duration,
    /// Between two looks while a shard that should be here is still with another.
    pub look: Duration,
    /// Between two looks otherwise, at most: within it the others notice that somebody leaves.
    pub glance: Duration,
    /// How long one call to the store may take.
    pub call_max: Duration,
    /// How long an owner that was asked to leave may go on settling.
    pub settle_max: Duration,
    pub company: Company,
}

/// Whether there may be other members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    Others,
    /// Nobody waits for the leases of a process that has the store to itself. So it need not stop believing in them while
    /// it is frozen or its disk is full, and renewing them would only keep an idle disk awake.
    Alone,
}

/// Longer than any process lives.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Default for Terms {
    fn default() -> Self {
        Self::of(Duration::from_secs(10))
    }
}

impl Terms {
    /// All else in proportion to the lease.
    pub fn of(lease: Duration) -> Self {
        Self {
            lease,
            margin: lease / 5,
            beat: lease / 5,
            look: lease / 100,
            glance: lease / 30,
            call_max: lease / 5,
            settle_max: lease * 3,
            company: Company::Others,
        }
    }

    /// For the one process that has the store to itself.
    pub fn alone() -> Self {
        Self { beat: CENTURY / 5, glance: CENTURY / 5, company: Company::Alone, ..Self::default() }
    }

    /// How long after its goodbye a member goes on: by then the others have seen it and stand ready.
    pub fn notice(&self) -> Duration {
        self.glance + self.look
    }

    /// How long an owner believes in its lease, from before the renewal left.
    pub fn tenure(&self) -> Duration {
        match self.company {
            Company::Others => self.lease.saturating_sub(self.margin),
            Company::Alone => CENTURY,
        }
    }

    pub fn check(&self) -> Result<(), ShardsError> {
        let bad = |why: &str| Err(ShardsError::BadTerms { why: why.into() });
        if self.lease.as_millis() == 0 || self.lease.as_millis() > i64::MAX as u128 {
            return bad("the lease must last at least a millisecond");
        }
        if self.margin.is_zero() || self.margin >= self.lease {
            return bad("the margin must be more than nothing and less than the lease");
        }
        if [self.beat, self.look, self.glance, self.call_max].iter().any(Duration::is_zero) {
            return bad("beats, looks and calls must take some time");
        }
        if self.beat * BEATS_IN_A_TENURE_MIN > self.tenure() {
            return bad("three beats must fit into the lease less its margin");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportional_terms_work_and_broken_ones_are_named() {
        for lease_ms in [100, 1_000, 10_000, 3_600_000] {
            Terms::of(Duration::from_millis(lease_ms)).check().unwrap();
        }
        Terms::alone().check().unwrap();
        let good = Terms::default();
        for bad in [
            Terms { margin: Duration::ZERO, ..good },
            Terms { margin: good.lease, ..good },
            Terms { beat: good.lease / 2, ..good },
            Terms { beat: Duration::ZERO, ..good },
            Terms { lease: Duration::ZERO, ..good },
        ] {
            assert!(matches!(bad.check(), Err(ShardsError::BadTerms { .. })), "{bad:?}");
        }
    }
}
