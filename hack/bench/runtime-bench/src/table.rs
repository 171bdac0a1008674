//! The table of figures, in Markdown.

use std::io::Write;

use anyhow::Result;

use crate::{operator::Requests, percentile::percentile};

#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<[String; 4]>,
}

impl Table {
    pub(crate) fn add(&mut self, name: &str, unit: &str, value: f64, remark: &str) {
        eprintln!("{name}: {value:.2} {unit}");
        self.rows.push([name.to_owned(), unit.to_owned(), format!("{value:.2}"), remark.to_owned()]);
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

    #[expect(clippy::print_stdout, reason = "the result of the program")]
    pub(crate) fn print(&self) -> Result<()> {
        println!("| measure | unit | value | what it is |\n|---|---|---:|---|");
        for row in &self.rows {
            println!("| {} |", row.join(" | "));
        }
        Ok(std::io::stdout().flush()?)
    }
}
