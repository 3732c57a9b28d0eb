//! What a stage had to do at most, lately. A load that rises was often as high before, and seldom goes much beyond that.

use std::collections::BTreeMap;

use crate::scene::{Scene, Stage, stage};
use crate::trend::Trend;

/// A trend is believed when chance seldom makes one as sure.
const SURE: f64 = 2.3;
/// After so long half of a peak is forgotten.
const HALF_LIFE_MS: f64 = 600_000.0;
/// Up to this many times the peak, what there is is what there was.
const AS_BEFORE: f64 = 1.15;
/// Of a rise to where it never was, as much is foreseen as if it went on for this share of the time.
const UNHEARD_OF: f64 = 0.5;

#[derive(Clone, Debug, Default)]
pub struct Peaks {
    stages: BTreeMap<Stage, (f64, u64)>,
}

impl Peaks {
    /// Events a second in `ahead_s` seconds; remembers what there is now.
    pub fn ahead(&mut self, stage: &Stage, trend: &Trend, now_ms: u64, ahead_s: f64) -> f64 {
        let before = self.stages.get(stage).map_or(0.0, |(peak, at_ms)| {
            let age = now_ms.saturating_sub(*at_ms) as f64 / HALF_LIFE_MS;
            peak * 0.5_f64.powf(age)
        });
        self.stages.insert(stage.clone(), (before.max(trend.level), now_ms));
        let slope = if trend.sureness >= SURE { trend.slope } else { 0.0 };
        match slope {
            ..=0.0 => (trend.level + slope * ahead_s).max(0.0),
            _ if trend.level <= before * AS_BEFORE => (trend.level + slope * ahead_s).min(before).max(trend.level),
            _ => trend.level + slope * ahead_s * UNHEARD_OF,
        }
    }

    pub fn tidy(&mut self, scene: &Scene) {
        let there: std::collections::BTreeSet<Stage> = scene.parts.iter().map(|seated| stage(&seated.part)).collect();
        self.stages.retain(|stage, _| there.contains(stage));
    }
}

#[cfg(test)]
mod tests {
    use mutirao_streams::wire::{StreamId, What};

    use super::*;

    #[test]
    fn a_rise_goes_as_far_as_it_went_before_and_beyond_only_half_as_fast() {
        let stage = (StreamId("s".into()), What::Stage(0));
        let mut peaks = Peaks::default();
        let rising = |level| Trend { slope: 25.0, level, sureness: 3.0 };
        assert_eq!(peaks.ahead(&stage, &rising(100.0), 0, 10.0), 225.0);
        peaks.ahead(&stage, &Trend { slope: 0.0, level: 600.0, sureness: 0.0 }, 1, 10.0);
        assert!((peaks.ahead(&stage, &rising(300.0), 2, 10.0) - 550.0).abs() < 1.0);
        assert!((peaks.ahead(&stage, &rising(590.0), 3, 10.0) - 600.0).abs() < 1.0);
        assert!((peaks.ahead(&stage, &rising(800.0), 3, 10.0) - 925.0).abs() < 1.0);
        let unsure = Trend { slope: 25.0, level: 300.0, sureness: 1.0 };
        assert_eq!(peaks.ahead(&stage, &unsure, 4, 10.0), 300.0);
    }
}
