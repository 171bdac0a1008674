//! Decides whether a run has passed.

use std::time::Duration;

use super::trend::{Trend, trend};

/// The operator's process at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// The time since the start of the run, in hours.
    pub(crate) hours: f64,
    /// The resident memory in MiB.
    pub(crate) rss: f64,
    /// The part of it that maps no file, in MiB. Pages of the program's code count as resident once they have been read.
    pub(crate) heap: f64,
    pub(crate) descriptors: f64,
    pub(crate) threads: f64,
}

/// A figure that must not grow.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) of: fn(&Reading) -> f64,
    /// The allowed growth in the whole run after the warm-up.
    allowed: f64,
}

/// All figures. The allowed growth is what a process may still need after the warm-up: the allocator keeps the memory of the
/// worst moment so far, and a worse moment may come later. A leak grows further.
pub(crate) const FIGURES: [Figure; 4] = [
    Figure { name: "RSS", unit: "MiB", of: |it| it.rss, allowed: 2.0 },
    Figure { name: "of which heap", unit: "MiB", of: |it| it.heap, allowed: 2.0 },
    Figure { name: "descriptors", unit: "", of: |it| it.descriptors, allowed: 2.0 },
    Figure { name: "threads", unit: "", of: |it| it.threads, allowed: 1.0 },
];

/// The share of the run that is the warm-up, in which the process fills its caches and pools.
const WARM_UP: f64 = 1.0 / 3.0;

/// How the run ended.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// The reason why the run was aborted.
    pub(crate) given_up: Option<String>,
    /// Whether the process ended by itself. It is not restarted.
    pub(crate) has_exited: bool,
    /// The time from the last fault until convergence; `None` if the objects did not converge.
    pub(crate) converged: Option<Duration>,
    /// The differences that remained at the end.
    pub(crate) differences: Vec<String>,
    /// The time from the last fault until the operator's last write.
    pub(crate) quiet: Option<Duration>,
    /// The time from SIGTERM until the process ended; `None` if it did not end in time.
    pub(crate) terminated: Option<Duration>,
    pub(crate) panics: f64,
    /// How often the process became leader: once at the start, and once after each outage that cost it the lease.
    pub(crate) terms: usize,
}

/// The readings after the warm-up.
pub(crate) fn warm(readings: &[Reading]) -> &[Reading] {
    let end = readings.last().map_or(0.0, |it| it.hours);
    let first = readings.iter().position(|it| it.hours >= end * WARM_UP).unwrap_or(readings.len());
    readings.get(first..).unwrap_or_default()
}

impl Figure {
    /// The trend per hour after the warm-up.
    pub(crate) fn trend(&self, readings: &[Reading]) -> Trend {
        let points: Vec<(f64, f64)> = warm(readings).iter().map(|it| (it.hours, (self.of)(it))).collect();
        trend(&points)
    }

    /// The reason why the figure is not flat: it grew by more than allowed, and by more than the noise. `None` if it is flat.
    fn growth(&self, readings: &[Reading]) -> Option<String> {
        let Trend { slope, noise } = self.trend(readings);
        let hours = warm(readings).iter().map(|it| it.hours);
        let hours = hours.clone().fold(0.0, f64::max) - hours.fold(f64::INFINITY, f64::min);
        let (name, unit, allowed) = (self.name, self.unit, self.allowed);
        if !noise.is_finite() {
            return Some(format!("{name}: there are too few readings for a trend"));
        }
        ((slope - noise) * hours > allowed).then(|| {
            format!(
                "{name} is not flat: it grows by {slope:.2} ± {noise:.2} {unit} an hour, {:.2} in this run",
                slope * hours
            )
        })
    }
}

/// The reasons why the run has failed; empty if it has passed.
pub(crate) fn failures(readings: &[Reading], end: &End) -> Vec<String> {
    if let Some(why) = &end.given_up {
        return vec![format!("given up: {why}")];
    }
    let mut failures: Vec<String> = FIGURES.iter().filter_map(|figure| figure.growth(readings)).collect();
    if end.converged.is_none() {
        let first = end.differences.first().map_or("they were never checked", String::as_str);
        failures.push(format!("not converged, {} differences: {first}", end.differences.len()));
    }
    if end.quiet.is_none() {
        failures.push("it never stops writing".to_owned());
    }
    if end.terminated.is_none() {
        failures.push("it did not end in time after SIGTERM".to_owned());
    }
    if end.panics > 0.0 {
        failures.push(format!("{} panics", end.panics));
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of two hours, of which the first third is the warm-up.
    fn readings(rss: fn(f64) -> f64, descriptors: fn(f64) -> f64) -> Vec<Reading> {
        let hours = (0..2_000).map(|n| f64::from(n) / 1_000.0);
        hours
            .map(|it| Reading { hours: it, rss: rss(it), heap: 5.0, descriptors: descriptors(it), threads: 5.0 })
            .collect()
    }

    fn end() -> End {
        let soon = Some(Duration::from_secs(1));
        End { converged: soon, quiet: soon, terminated: soon, ..End::default() }
    }

    #[test]
    fn stable_process_passes() {
        let wobbles = |hours: f64| 15.0 + (hours * 700.0).sin();
        assert_eq!(failures(&readings(wobbles, |_| 20.0), &end()), [""; 0]);
    }

    #[test]
    fn warm_up_passes_and_steady_growth_fails() {
        let warms_up = |hours: f64| 15.0 + (hours * 20.0).min(10.0);
        assert_eq!(failures(&readings(warms_up, |_| 20.0), &end()), [""; 0]);
        let leaks = |hours: f64| 15.0 + hours * 2.0;
        let found = failures(&readings(leaks, |hours| 20.0 + hours), &end());
        assert_eq!(
            found,
            ["RSS is not flat: it grows by 2.00 ± 0.00 MiB an hour, 2.66 in this run"],
            "descriptors: 1.33 of 2"
        );
        let leaks = |hours: f64| 20.0 + hours * 2.0;
        assert_eq!(failures(&readings(|_| 15.0, leaks), &end()).len(), 1);
    }

    #[test]
    fn shrinking_process_passes() {
        assert_eq!(failures(&readings(|hours| 20.0 - hours * 5.0, |_| 20.0), &end()), [""; 0]);
    }

    #[test]
    fn missing_readings_fail_every_figure() {
        assert_eq!(failures(&[], &end()).len(), FIGURES.len());
    }

    #[test]
    fn every_bad_end_fails() {
        let flat = readings(|_| 15.0, |_| 20.0);
        for (expected, end) in [
            (
                "not converged, 1 differences: web is lost",
                End { converged: None, differences: vec!["web is lost".to_owned()], ..end() },
            ),
            (
                "given up: the program ended by itself",
                End { given_up: Some("the program ended by itself".to_owned()), has_exited: true, ..End::default() },
            ),
            ("it never stops writing", End { quiet: None, ..end() }),
            ("it did not end in time after SIGTERM", End { terminated: None, ..end() }),
            ("1 panics", End { panics: 1.0, ..end() }),
        ] {
            assert_eq!(failures(&flat, &end), [expected]);
        }
    }
}
