//! The report of a run, as Markdown tables.

use std::{cell::RefCell, fmt::Write, time::Duration};

use super::{
    exposition::sum,
    tally::{Counts, Tally, total},
    trend::{Trend, median},
    verdict::{End, FIGURES, Reading},
};

/// The content of the report.
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) objects: usize,
    pub(crate) readings: &'a [Reading],
    pub(crate) tally: &'a Tally,
    /// The operator's metrics page at the end.
    pub(crate) page: &'a str,
    pub(crate) end: &'a End,
    pub(crate) failures: &'a [String],
}

/// The rows that come from the operator's own metrics.
const COUNTED: [(&str, &str); 8] = [
    ("reconciles", "controller_runtime_reconcile_total"),
    ("errors of reconciles", "controller_runtime_reconcile_errors_total"),
    ("terminal errors", "controller_runtime_terminal_reconcile_errors_total"),
    ("timeouts of reconciles", "controller_runtime_reconcile_timeouts_total"),
    ("delays of keys, after errors or by intent", "workqueue_retries_total"),
    ("watches begun anew", "operator_informer_restarts_total"),
    ("depth of queues in the end", "workqueue_depth"),
    ("seconds of CPU", "process_cpu_seconds_total"),
];

impl Report<'_> {
    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "| minutes | RSS (MiB) | heap (MiB) | descriptors | threads |\n|---|---:|---:|---:|---:|")?;
        for tenth in 0..10 {
            let count = self.readings.len();
            let part = self.readings.get(count * tenth / 10..count * (tenth + 1) / 10).unwrap_or_default();
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            write!(out, "| {:.1} to {:.1} |", first.hours * 60.0, last.hours * 60.0)?;
            for (figure, digits) in FIGURES.iter().zip([2, 2, 0, 0]) {
                write!(out, " {:.digits$} |", median(part.iter().map(figure.of)))?;
            }
            writeln!(out)?;
        }

        writeln!(out, "\n| after the first third | an hour | noise |\n|---|---:|---:|")?;
        for figure in &FIGURES {
            let Trend { slope, noise } = figure.trend(self.readings);
            writeln!(out, "| {} | {slope:+.2} {} | ± {noise:.2} |", figure.name, figure.unit)?;
        }

        writeln!(out, "\n| measure | value |\n|---|---:|")?;
        writeln!(out, "| seed | {} |", self.seed)?;
        writeln!(out, "| objects in the end | {} |", self.objects)?;
        all(out, "changes", &self.tally.changes)?;
        all(out, "outages", &self.tally.outages)?;
        let passed = self.tally.passed.borrow();
        writeln!(out, "| requests, events of watches | {}, {} |", passed.requests, passed.events)?;
        all(out, "faults", &self.tally.faults)?;
        for (what, name) in COUNTED {
            writeln!(out, "| {what} | {:.0} |", sum(self.page, name))?;
        }
        writeln!(out, "| times it became leader | {} |", self.end.terms)?;
        writeln!(out, "| panics | {:.0} |", self.end.panics)?;
        let exits = u8::from(self.end.has_exited);
        writeln!(out, "| times the process ended by itself | {exits} |")?;
        writeln!(out, "| converged after the last fault | {} |", time(self.end.converged))?;
        writeln!(out, "| last write after the last fault | {} |", time(self.end.quiet))?;
        writeln!(out, "| ended after SIGTERM | {} |", time(self.end.terminated))?;

        match self.failures {
            [] => writeln!(out, "\nPassed: flat, converged, nothing lost and nothing made twice.")?,
            failures => {
                writeln!(out, "\nFailed:")?;
                failures.iter().try_for_each(|failure| writeln!(out, "- {failure}"))?;
                self.end.differences.iter().take(20).try_for_each(|it| writeln!(out, "  - {it}"))?;
            }
        }
        Ok(())
    }
}

fn all(out: &mut String, what: &str, counts: &RefCell<Counts>) -> std::fmt::Result {
    writeln!(out, "| {what} | {} |", total(counts))?;
    counts.borrow().iter().try_for_each(|(kind, count)| writeln!(out, "| · {kind} | {count} |"))
}

fn time(time: Option<Duration>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_ten_parts_and_lists_failures() {
        let readings: Vec<Reading> = (0..600)
            .map(|n| Reading { hours: f64::from(n) / 3_600.0, rss: 15.0, heap: 6.0, descriptors: 20.0, threads: 5.0 })
            .collect();
        let (end, tally) = (End { differences: vec!["web is lost".to_owned()], ..End::default() }, Tally::default());
        tally.outage("restart of etcd".to_owned());
        let page = "controller_runtime_reconcile_total{result=\"success\"} 12\n";
        let failures = ["not converged".to_owned()];
        let report =
            Report { seed: 3, objects: 2, readings: &readings, tally: &tally, page, end: &end, failures: &failures };
        let text = report.render();
        for line in [
            "| 0.0 to 1.0 | 15.00 | 6.00 | 20 | 5 |",
            "| 9.0 to 10.0 | 15.00 | 6.00 | 20 | 5 |",
            "| RSS | +0.00 MiB | ± 0.00 |",
            "| outages | 1 |",
            "| · restart of etcd | 1 |",
            "| reconciles | 12 |",
            "| converged after the last fault | never |",
            "- not converged",
            "  - web is lost",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        let passed = Report { failures: &[], ..report }.render();
        assert!(passed.ends_with("Passed: flat, converged, nothing lost and nothing made twice.\n"), "{passed}");
    }
}
