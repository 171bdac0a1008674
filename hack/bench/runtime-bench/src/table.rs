//! The table of figures, in Markdown.

use std::io::Write;

use anyhow::Result;

use crate::{operator::Requests, percentile::percentile};

/// The figures of one program.
pub(crate) struct Table {
    /// What was measured; the title of the first column.
    subject: String,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    unit: String,
    value: f64,
    remark: String,
}

impl Table {
    pub(crate) fn of(subject: &str) -> Self {
        Self { subject: subject.to_owned(), rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, unit: &str, value: f64, remark: &str) {
        eprintln!("{name}: {value:.2} {unit}");
        self.rows.push(Row { name: name.to_owned(), unit: unit.to_owned(), value, remark: remark.to_owned() });
    }

    pub(crate) fn add_latencies(&mut self, name: &str, seconds: &[f64]) {
        for percent in [50, 95] {
            if let Some(value) = percentile(seconds, percent) {
                let name = format!("{name} p{percent}");
                self.add(&name, "ms", value * 1_000.0, "request sent until its effect is observed");
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
    pub(crate) fn add_requests(&mut self, name: &str, requests: &Requests, per: usize) {
        for (what, count) in requests.iter() {
            self.add(&format!("{name}: {what}"), "", count as f64 / per as f64, "requests an object");
        }
    }

    /// Prints the figures and, with a baseline, their ratios to those of the same name.
    #[expect(clippy::print_stdout, reason = "the result of the program")]
    pub(crate) fn print(&self, baseline: Option<&Self>) -> Result<()> {
        println!("{}", self.markdown(baseline));
        Ok(std::io::stdout().flush()?)
    }

    fn markdown(&self, baseline: Option<&Self>) -> String {
        let (titles, rule) = match baseline {
            None => ("unit | value | what it is", "|---|---|---:|---|"),
            Some(_) => ("unit | value | baseline | ratio | what it is", "|---|---|---:|---:|---:|---|"),
        };
        let mut lines = vec![format!("| {} | {titles} |", self.subject), rule.to_owned()];
        lines.extend(self.rows.iter().map(|Row { name, unit, value, remark }| {
            let ratio = baseline.map(|baseline| format!("{} | ", baseline.compare(name, *value))).unwrap_or_default();
            format!("| {name} | {unit} | {value:.2} | {ratio}{remark} |")
        }));
        lines.join("\n")
    }

    /// The figure of this name, and the ratio of `value` to it. A dash replaces what does not exist.
    fn compare(&self, name: &str, value: f64) -> String {
        match self.rows.iter().find(|row| row.name == name) {
            None => "– | –".to_owned(),
            Some(Row { value: before, .. }) if before.abs() < f64::EPSILON => format!("{before:.2} | –"),
            Some(Row { value: before, .. }) => format!("{before:.2} | {:.2}", value / before),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(figures: &[(&str, f64)]) -> Table {
        let mut table = Table::of("toy");
        for (name, value) in figures {
            table.add(name, "MiB", *value, "remark");
        }
        table
    }

    #[test]
    fn figure_is_divided_by_that_of_the_baseline() {
        let baseline = table(&[("CPU", 0.0), ("RSS", 10.0), ("old", 1.0)]);
        let lines = [
            "| toy | unit | value | baseline | ratio | what it is |",
            "|---|---|---:|---:|---:|---|",
            "| RSS | MiB | 12.50 | 10.00 | 1.25 | remark |",
            "| CPU | MiB | 1.00 | 0.00 | – | remark |",
            "| new | MiB | 1.00 | – | – | remark |",
        ];
        let now = table(&[("RSS", 12.5), ("CPU", 1.0), ("new", 1.0)]);
        assert_eq!(now.markdown(Some(&baseline)), lines.join("\n"));
    }

    #[test]
    fn table_without_a_baseline_has_no_ratio() {
        let lines = ["| toy | unit | value | what it is |", "|---|---|---:|---|", "| RSS | MiB | 10.00 | remark |"];
        assert_eq!(table(&[("RSS", 10.0)]).markdown(None), lines.join("\n"));
    }
}
