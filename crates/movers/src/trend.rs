//! A line through figures of which some are wrong: the median of the slopes between every two (Theil and Sen), and whether there
//! is one at all (Mann and Kendall). A third of the figures may be anything without moving it far.

/// Of seconds and a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trend {
    pub slope: f64,
    /// On the line, at the last of the points.
    pub level: f64,
    /// How many times its own spread under chance the agreement of the slopes' signs is; above 2 chance is rare.
    pub sureness: f64,
}

/// As far as anything can be said, of the newest 64 points.
pub fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let points = &points[points.len().saturating_sub(64)..];
    let last = points.last()?.0;
    let (mut slopes, mut agreement) = (Vec::new(), 0.0_f64);
    for (i, (at, figure)) in points.iter().enumerate() {
        for (later, then) in &points[i + 1..] {
            if later > at {
                slopes.push((then - figure) / (later - at));
                agreement += if then > figure { 1.0 } else { 0.0 } - if then < figure { 1.0 } else { 0.0 };
            }
        }
    }
    let slope = median(&mut slopes).unwrap_or(0.0);
    let mut levels: Vec<f64> = points.iter().map(|(at, figure)| figure + slope * (last - at)).collect();
    let n = points.len() as f64;
    let spread = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    let sureness = if spread > 0.0 { agreement.abs() / spread } else { 0.0 };
    Some(Trend { slope, level: median(&mut levels)?, sureness })
}

pub fn median(figures: &mut [f64]) -> Option<f64> {
    quantile(figures, 0.5)
}

/// The figure below which this share of them is; of an even number the mean of the middle two is the median.
pub fn quantile(figures: &mut [f64], share: f64) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let place = share * (figures.len().checked_sub(1)? as f64);
    let (below, above) = (figures[place.floor() as usize], figures[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_though_a_quarter_of_the_figures_is_wrong() {
        let points: Vec<(f64, f64)> =
            (0..10).map(|i| (f64::from(i), if i % 4 == 1 { 9_000.0 } else { 100.0 + 25.0 * f64::from(i) })).collect();
        let found = trend(&points).unwrap();
        assert!((found.slope - 25.0).abs() < 6.0, "{found:?}");
        assert!((found.level - 325.0).abs() < 40.0, "{found:?}");
    }

    #[test]
    fn of_what_rises_steadily_the_trend_is_sure_and_of_what_swings_it_is_not() {
        let rising: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), f64::from(i))).collect();
        assert!(trend(&rising).unwrap().sureness > 3.0);
        let swinging: Vec<(f64, f64)> = (0..10).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        assert!(trend(&swinging).unwrap().sureness < 1.0);
    }

    #[test]
    fn little_is_said_of_little() {
        assert_eq!(trend(&[]), None);
        let one = trend(&[(3.0, 7.0)]).unwrap();
        assert_eq!((one.slope, one.level, one.sureness), (0.0, 7.0, 0.0));
        assert_eq!(median(&mut []), None);
        assert_eq!(quantile(&mut [1.0, 2.0, 3.0, 4.0], 0.5), Some(2.5));
    }
}
