//! What a run says.

use std::time::Duration;

use super::trend::{Trend, trend};

/// The operator's process at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// Since the run began.
    pub(crate) hours: f64,
    /// In MiB.
    pub(crate) rss: f64,
    /// What of it is no file: a program's code is read page by page, and counts from then on.
    pub(crate) heap: f64,
    pub(crate) descriptors: f64,
    pub(crate) threads: f64,
}

/// A figure that must stay where it is.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) of: fn(&Reading) -> f64,
    /// It may grow by so much, all in all, once warm.
    allowed: f64,
}

/// All of them. What is allowed is what a process may still fill up after it is warm: an allocator keeps what the worst
/// moment so far has needed, and worse ones come later. A leak grows on.
pub(crate) const FIGURES: [Figure; 4] = [
    Figure { name: "RSS", unit: "MiB", of: |it| it.rss, allowed: 2.0 },
    Figure { name: "of which heap", unit: "MiB", of: |it| it.heap, allowed: 2.0 },
    Figure { name: "descriptors", unit: "", of: |it| it.descriptors, allowed: 2.0 },
    Figure { name: "threads", unit: "", of: |it| it.threads, allowed: 1.0 },
];

/// Until then the process fills its caches and pools.
const WARM_UP: f64 = 1.0 / 3.0;

/// How the run ended.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Why the run could not be brought to its end.
    pub(crate) given_up: Option<String>,
    /// Whether the process ended by itself; it is not started again.
    pub(crate) has_exited: bool,
    /// How long it took after the last fault until everything was as it should be; `None` when it never was.
    pub(crate) converged: Option<Duration>,
    /// What was not, in the end.
    pub(crate) differences: Vec<String>,
    /// How long it took until nothing was written any more.
    pub(crate) quiet: Option<Duration>,
    /// How long the process took to end when it was told to.
    pub(crate) terminated: Option<Duration>,
    pub(crate) panics: f64,
    /// How often it became leader: once at first, and after each outage that cost it the lease.
    pub(crate) terms: usize,
}

/// The readings of a process that is warm.
pub(crate) fn warm(readings: &[Reading]) -> &[Reading] {
    let end = readings.last().map_or(0.0, |it| it.hours);
    let first = readings.iter().position(|it| it.hours >= end * WARM_UP).unwrap_or(readings.len());
    readings.get(first..).unwrap_or_default()
}

impl Figure {
    /// How it changes in an hour once the process is warm.
    pub(crate) fn trend(&self, readings: &[Reading]) -> Trend {
        let points: Vec<(f64, f64)> = warm(readings).iter().map(|it| (it.hours, (self.of)(it))).collect();
        trend(&points)
    }

    /// Why it is not flat, or nothing: it grew by more than is allowed, and that is no noise.
    fn growth(&self, readings: &[Reading]) -> Option<String> {
        let Trend { slope, noise } = self.trend(readings);
        let hours = warm(readings).iter().map(|it| it.hours);
        let hours = hours.clone().fold(0.0, f64::max) - hours.fold(f64::INFINITY, f64::min);
        let (name, unit, allowed) = (self.name, self.unit, self.allowed);
        if !noise.is_finite() {
            return Some(format!("{name}: there are too few readings to say anything"));
        }
        ((slope - noise) * hours > allowed).then(|| {
            format!(
                "{name} is not flat: it grows by {slope:.2} ± {noise:.2} {unit} an hour, {:.2} in this run",
                slope * hours
            )
        })
    }
}

/// Why the run has failed; empty when it has not.
pub(crate) fn failures(readings: &[Reading], end: &End) -> Vec<String> {
    if let Some(why) = &end.given_up {
        return vec![format!("given up: {why}")];
    }
    let mut failures: Vec<String> = FIGURES.iter().filter_map(|figure| figure.growth(readings)).collect();
    if end.converged.is_none() {
        let first = end.differences.first().map_or("it was never looked", String::as_str);
        failures.push(format!("not converged, {} differences: {first}", end.differences.len()));
    }
    if end.quiet.is_none() {
        failures.push("it never stops writing".to_owned());
    }
    if end.terminated.is_none() {
        failures.push("it did not end in order when it was told to".to_owned());
    }
    if end.panics > 0.0 {
        failures.push(format!("{} panics", end.panics));
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hours, of which the first third is not looked at.
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
    fn a_process_that_stays_as_it_is_passes() {
        let wobbles = |hours: f64| 15.0 + (hours * 700.0).sin();
        assert_eq!(failures(&readings(wobbles, |_| 20.0), &end()), [""; 0]);
    }

    #[test]
    fn what_warms_up_passes_and_what_grows_on_fails() {
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
    fn what_shrinks_passes() {
        assert_eq!(failures(&readings(|hours| 20.0 - hours * 5.0, |_| 20.0), &end()), [""; 0]);
    }

    #[test]
    fn of_no_readings_nothing_is_claimed() {
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
            ("it did not end in order when it was told to", End { terminated: None, ..end() }),
            ("1 panics", End { panics: 1.0, ..end() }),
        ] {
            assert_eq!(failures(&flat, &end), [expected]);
        }
    }
}
