//! Reads figures from a metrics page for Prometheus.

/// The sum over all labels; zero if the metric is missing.
pub(crate) fn sum(page: &str, name: &str) -> f64 {
    let values = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' ']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    values.fold(0.0, |sum, value| sum + value) // `sum` of an empty iterator is -0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_summed_over_its_labels() {
        let page = "# HELP a_total A\n# TYPE a_total counter\na_total{x=\"a b\"} 3\na_total{x=\"c\"} 4\na_total_more 9\nb 2.5\n";
        let sums = ["a_total", "b", "c"].map(|name| sum(page, name));
        assert!(sums.iter().all(|sum| sum.is_sign_positive()), "{sums:?}");
        assert!(
            sums.iter().zip([7.0, 2.5, 0.0]).all(|(sum, expected)| (sum - expected).abs() < f64::EPSILON),
            "{sums:?}"
        );
    }
}
