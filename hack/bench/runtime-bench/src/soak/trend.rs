//! Decides whether a figure grows: a linear trend with its noise.

/// The trend of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// The slope, in units of the figure per unit of time.
    pub(crate) slope: f64,
    /// The uncertainty of the slope: two standard errors.
    pub(crate) noise: f64,
}

/// The number of intervals for the fit. The line goes through the median of each interval, because these are nearly independent.
/// Adjacent readings are not, and a burst is not a trend.
const STRETCHES: usize = 20;

/// Fits a line by least squares through points of time and figure, which must be ordered by time.
#[expect(clippy::cast_precision_loss, reason = "there are few readings")]
pub(crate) fn trend(points: &[(f64, f64)]) -> Trend {
    let stretches = STRETCHES.min(points.len());
    let medians: Vec<(f64, f64)> = (0..stretches)
        .filter_map(|n| points.get(n * points.len() / stretches..(n + 1) * points.len() / stretches))
        .map(|stretch| (median(stretch.iter().map(|it| it.0)), median(stretch.iter().map(|it| it.1))))
        .collect();
    let count = medians.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| medians.iter().map(of).sum::<f64>() / count;
    let (time, figure) = (mean(|it| it.0), mean(|it| it.1));
    let spread: f64 = medians.iter().map(|it| (it.0 - time).powi(2)).sum();
    if medians.len() < 3 || spread <= 0.0 {
        return Trend { slope: 0.0, noise: f64::INFINITY }; // too few points
    }
    let slope = medians.iter().map(|it| (it.0 - time) * (it.1 - figure)).sum::<f64>() / spread;
    let rest: f64 = medians.iter().map(|it| (it.1 - figure - slope * (it.0 - time)).powi(2)).sum();
    Trend { slope, noise: 2.0 * (rest / (count - 2.0) / spread).sqrt() }
}

/// The mean; zero if there are no values.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let lower = sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    f64::midpoint(lower, upper)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    fn points(count: u32, figure: impl Fn(f64, f64) -> f64) -> Vec<(f64, f64)> {
        let mut rng = Rng::with_seed(9);
        (0..count).map(|n| f64::from(n) / f64::from(count)).map(|time| (time, figure(time, rng.f64() - 0.5))).collect()
    }

    #[test]
    fn slope_is_found_in_noise() {
        let Trend { slope, noise } = trend(&points(300, |time, random| 20.0 + 3.0 * time + random));
        assert!((slope - 3.0).abs() < noise && noise < 0.6, "{slope} ± {noise}");
    }

    #[test]
    fn flat_series_has_zero_slope_within_noise() {
        let Trend { slope, noise } = trend(&points(300, |_, random| 20.0 + random));
        assert!(slope.abs() < noise && noise < 0.6, "{slope} ± {noise}");
        assert_eq!(trend(&points(300, |_, _| 12.0)), Trend { slope: 0.0, noise: 0.0 });
    }

    #[test]
    fn a_burst_is_no_trend() {
        let burst = |time: f64, _| if (0.90..0.92).contains(&time) { 60.0 } else { 12.0 };
        assert_eq!(trend(&points(300, burst)), Trend { slope: 0.0, noise: 0.0 });
    }

    #[test]
    fn too_few_points_give_infinite_noise() {
        for count in 0..3 {
            assert!(trend(&points(count, |time, _| time)).noise.is_infinite());
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median([3.0, 1.0, 9.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median([4.0, 1.0, 2.0, 9.0]) - 3.0).abs() < f64::EPSILON);
        assert!(median([]).abs() < f64::EPSILON);
    }
}
