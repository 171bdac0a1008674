//! Percentiles of measured values.

/// The smallest value that at least `percent` of the values do not exceed; `None` if there are no values.
pub(crate) fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(values: &[f64], percent: usize, expected: f64) -> bool {
        percentile(values, percent).is_some_and(|value| (value - expected).abs() < f64::EPSILON)
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        for (percent, expected) in [(50, 50.0), (95, 95.0), (99, 99.0), (100, 100.0)] {
            assert!(is(&hundred, percent, expected), "{percent}: {:?}", percentile(&hundred, percent));
        }
        assert!(is(&[3.0, 1.0, 2.0], 50, 2.0));
        assert!(is(&[3.0, 1.0, 2.0], 99, 3.0)); // of few values, the greatest
        assert!(is(&[7.0], 0, 7.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
