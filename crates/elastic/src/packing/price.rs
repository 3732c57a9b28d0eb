//! What an hour of a node is expected to cost, by the work that comes of it: the price, and for nodes that are taken back at
//! any time what is begun again because of it.
//!
//! Not here: what is billed; nodes that are there cost what they cost.

use std::time::Duration;

use super::{Kind, Market};

/// How long a spot node of which nobody says how often it is taken back is there, in the mean.
pub const SPOT_LASTS: Duration = Duration::from_secs(3_600);
/// What a task takes while nothing is known of those of its queue.
pub const TAKES: Duration = Duration::from_secs(600);
/// Tasks this many times as long as the node is there hardly ever end on it.
const HOPELESS: f64 = 30.0;

impl Kind {
    /// For workers whose tasks take so long in the mean, in the same money as the price.
    ///
    /// A task that takes S, on nodes that are taken back by chance each M, with b until there is another, is done after
    /// (M + b)(e^(S/M) − 1) in the mean, when it begins again each time. All of that is paid for.
    pub fn expected_micros_per_hour(&self, takes: Duration) -> u64 {
        let price = self.price_micros_per_hour as f64;
        let times = match self.market {
            // Paid for already.
            Market::Reserved => return 0,
            Market::OnDemand => return self.price_micros_per_hour,
            Market::Spot => {
                let lasts_s = self.interrupted_every.map_or(SPOT_LASTS, |span| span.0).as_secs_f64().max(1.0);
                again(takes.as_secs_f64(), lasts_s, self.boot.0.as_secs_f64())
            }
        };
        // Beyond what can be counted it is dear beyond any other.
        (price * times).min(u64::MAX as f64) as u64
    }
}

/// How often the time of a task is paid for.
fn again(takes_s: f64, lasts_s: f64, boot_s: f64) -> f64 {
    let part = (takes_s / lasts_s).min(HOPELESS);
    let tries = if part < 1e-6 { 1.0 } else { part.exp_m1() / part };
    tries * (1.0 + boot_s / lasts_s)
}

#[cfg(test)]
mod tests {
    use mutirao_core::Dice;
    use mutirao_core::quantity::Span;
    use proptest::prelude::*;

    use super::super::{Amounts, Labels, Layer};
    use super::*;

    fn kind(market: Market, price: u64, lasts_s: u64, boot_s: u64) -> Kind {
        Kind {
            name: "k".into(),
            capacity: Amounts::default(),
            labels: Labels::new(),
            layer: Layer::Cloud,
            price_micros_per_hour: price,
            market,
            boot: Span::secs(boot_s),
            interrupted_every: Some(Span::secs(lasts_s)),
            available: 1,
        }
    }

    #[test]
    fn a_spot_node_is_the_dearer_the_longer_tasks_are_and_a_reserved_one_costs_nothing_more() {
        let spot = kind(Market::Spot, 300_000, 3_600, 0);
        let of = |minutes: u64| spot.expected_micros_per_hour(Duration::from_secs(minutes * 60));
        assert_eq!(of(0), 300_000);
        assert_eq!(of(6), 315_512, "a tenth of an hour: (e^0.1 − 1) / 0.1");
        assert!(of(60) > 500_000 && of(60) < 520_000, "{}", of(60));
        assert!(of(180) > 1_000_000, "three hours hardly ever end: {}", of(180));
        let takes = Duration::from_secs(360);
        assert_eq!(kind(Market::OnDemand, 1_000_000, 60, 60).expected_micros_per_hour(takes), 1_000_000);
        assert_eq!(kind(Market::Reserved, 1_000_000, 60, 60).expected_micros_per_hour(takes), 0);
    }

    #[test]
    fn the_formula_is_what_comes_out_by_trying() {
        let (takes_s, lasts_s, boot_s, dice) = (1_200.0, 3_600.0, 120.0, Dice::seeded(5));
        let (mut paid, tasks) = (0.0, 20_000);
        for _ in 0..tasks {
            loop {
                let lasts = -lasts_s * (1.0 - dice.unit()).ln();
                if lasts >= takes_s {
                    paid += takes_s;
                    break;
                }
                paid += lasts + boot_s;
            }
        }
        let tried = paid / f64::from(tasks) / takes_s;
        let said = again(takes_s, lasts_s, boot_s);
        assert!((tried / said - 1.0).abs() < 0.03, "{tried} by trying, {said} by the formula");
    }

    proptest! {
        #[test]
        fn it_never_is_less_than_the_price(price in 0u64..u64::MAX / 2, lasts in 0u64..1_000_000, boot in 0u64..10_000, takes in 0u64..10_000_000) {
            let spot = kind(Market::Spot, price, lasts, boot);
            let takes = Duration::from_secs(takes);
            // To a part in a billion: floating.
            prop_assert!(spot.expected_micros_per_hour(takes) as f64 >= price as f64 * (1.0 - 1e-9));
        }
    }
}
