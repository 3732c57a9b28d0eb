//! How many events a source says in a second, over time.

/// Periods of the same length, each high or low.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub low: f64,
    pub high: f64,
    pub period_s: f64,
    /// How long it takes within a high period to get up, and again to get down.
    pub ramp_s: f64,
    pub periods: Vec<bool>,
}

impl Load {
    pub fn steady(rate: f64) -> Self {
        Self { low: rate, high: rate, period_s: 60.0, ramp_s: 1.0, periods: Vec::new() }
    }

    pub fn rate(&self, at_s: f64) -> f64 {
        let period = (at_s / self.period_s).max(0.0);
        if !self.periods.get(period as usize).copied().unwrap_or(false) {
            return self.low;
        }
        let within = period.fract() * self.period_s;
        let height = (within.min(self.period_s - within) / self.ramp_s).clamp(0.0, 1.0);
        self.low + (self.high - self.low) * height
    }

    /// Events until then.
    pub fn events(&self, until_s: f64) -> f64 {
        let steps = (until_s * 10.0).round() as u32;
        (0..steps).map(|step| self.rate((f64::from(step) + 0.5) / 10.0) / 10.0).sum()
    }
}
