//! The history of measurements: a file with a line of JSON for each.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The subject of measurements of this repository's program.
pub(crate) const OURS: &str = "operators";

/// One measurement of one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The time of its begin, in UTC.
    pub(crate) date: String,
    /// The commit of the checkout, with `-changed` if files differ from it.
    pub(crate) commit: String,
    /// The version of the kernel.
    pub(crate) kernel: String,
    /// The number of processors that the programs share.
    pub(crate) cores: usize,
    /// The file system of etcd's data, such as `tmpfs`.
    pub(crate) store: String,
    /// What was measured, such as `controller-runtime`, or the operator `memcached` alone.
    pub(crate) subject: String,
    /// The number of objects that were wanted.
    pub(crate) objects: usize,
    /// Whether the measurement came to its end.
    pub(crate) complete: bool,
    /// The figures at each number of objects, in ascending order.
    pub(crate) steps: Vec<Step>,
    /// The other figures.
    pub(crate) figures: Vec<Figure>,
}

/// The program with this number of converged objects, each with its children.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) objects: usize,
    pub(crate) rss_mib: f64,
    pub(crate) heap_mib: f64,
    /// The cost of each object since the step before; none before the first object.
    pub(crate) each: Option<Each>,
}

/// The cost of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Each {
    pub(crate) heap_kib: f64,
    pub(crate) cpu_ms: f64,
    /// The part of the CPU time that the kernel took.
    pub(crate) system_ms: f64,
    /// Page faults that needed no disk.
    pub(crate) page_faults: f64,
    pub(crate) requests: f64,
    /// The time from the first create to the last ready object, divided by their number.
    pub(crate) wall_ms: f64,
}

/// A figure with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) value: f64,
}

/// A figure of a measurement has three decimals, which are more than its noise allows.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

impl Record {
    /// An empty record of this moment, commit and machine.
    pub(crate) fn begin(subject: &str, objects: usize, store: &Path) -> Result<Self> {
        let changes = ["status", "--porcelain", "--", ".", ":!hack/bench/history"];
        let is_changed = !output(Command::new("git").args(changes))?.is_empty();
        let commit = output(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]))?;
        Ok(Self {
            date: output(Command::new("date").args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]))?,
            commit: if is_changed { format!("{commit}-changed") } else { commit },
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            store: output(Command::new("stat").args(["--file-system", "--format=%T"]).arg(store))?,
            subject: subject.to_owned(),
            objects,
            complete: false,
            steps: Vec::new(),
            figures: Vec::new(),
        })
    }

    /// Adds a figure.
    pub(crate) fn add(&mut self, name: &str, unit: &str, value: f64) {
        self.figures.push(Figure { name: name.to_owned(), unit: unit.to_owned(), value: rounded(value) });
    }

    /// Adds a step.
    pub(crate) fn add_step(&mut self, step: &Step) {
        let each = step.each.as_ref().map(|each| Each {
            heap_kib: rounded(each.heap_kib),
            cpu_ms: rounded(each.cpu_ms),
            system_ms: rounded(each.system_ms),
            page_faults: rounded(each.page_faults),
            requests: rounded(each.requests),
            wall_ms: rounded(each.wall_ms),
        });
        let (rss_mib, heap_mib) = (rounded(step.rss_mib), rounded(step.heap_mib));
        self.steps.push(Step { objects: step.objects, rss_mib, heap_mib, each });
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// The CPU time for an object at the last step, divided by that at the first one: 1 if it does not depend on the number.
    pub(crate) fn growth_of_cpu(&self) -> Option<f64> {
        let mut each = self.steps.iter().filter_map(|step| step.each.as_ref());
        let first = each.next()?;
        Some(each.next_back()?.cpu_ms / first.cpu_ms).filter(|ratio| ratio.is_finite())
    }
}

/// What the command prints, without the last line break.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("could not run {program}"))?;
    anyhow::ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// All measurements, the oldest first; none if there is no file.
pub(crate) fn read(file: &Path) -> Result<Vec<Record>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("could not read {}", file.display()))?,
    };
    let records = (1..).zip(text.lines()).map(|(line, text)| {
        serde_json::from_str(text).with_context(|| format!("{}:{line} is not a measurement", file.display()))
    });
    records.collect()
}

/// Appends a measurement in one write, so that a run that ends early leaves no half line.
pub(crate) fn append(file: &Path, record: &Record) -> Result<()> {
    let failed = || format!("could not write {}", file.display());
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(failed)?;
    }
    let line = serde_json::to_string(record)? + "\n";
    let mut file = OpenOptions::new().append(true).create(true).open(file).with_context(failed)?;
    file.write_all(line.as_bytes()).with_context(failed)
}

/// The last measurement of each subject, in the order in which the subjects first appear.
pub(crate) fn latest(records: &[Record]) -> Vec<&Record> {
    let mut latest: Vec<&Record> = Vec::new();
    for record in records {
        match latest.iter_mut().find(|known| known.subject == record.subject) {
            Some(known) => *known = record,
            None => latest.push(record),
        }
    }
    latest
}

/// A measurement for tests, with these steps: objects, RSS in MiB, CPU for an object in ms.
#[cfg(test)]
pub(crate) fn sample(subject: &str, steps: &[(usize, f64, f64)]) -> Record {
    let mut record = Record {
        date: "2026-01-02T03:04:05Z".to_owned(),
        commit: "0123456789ab".to_owned(),
        kernel: "6.1.0".to_owned(),
        cores: 2,
        store: "tmpfs".to_owned(),
        subject: subject.to_owned(),
        objects: steps.last().map_or(0, |step| step.0),
        complete: true,
        steps: Vec::new(),
        figures: Vec::new(),
    };
    for (objects, rss_mib, cpu_ms) in steps.iter().copied() {
        let (system_ms, page_faults, requests) = (cpu_ms / 3.0, 0.25, 5.0);
        let each = Each { heap_kib: 5.25, cpu_ms, system_ms, page_faults, requests, wall_ms: 17.5 };
        record.add_step(&Step { objects, rss_mib, heap_mib: rss_mib / 2.0, each: (objects > 0).then_some(each) });
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_read_as_they_were_appended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new").join("scale.jsonl");
        assert!(read(&file).unwrap().is_empty());
        let mut first = sample("operators", &[(0, 13.812_34, 0.0), (1_000, 19.123_456, 3.3), (5_000, 40.0, 1.0 / 3.0)]);
        first.add("edit p50", "ms", 29.543_21);
        let mut second = sample("controller-runtime", &[(0, 32.8, 0.0)]);
        second.complete = false;
        for record in [&first, &second] {
            append(&file, record).unwrap();
        }
        assert_eq!(read(&file).unwrap(), [first.clone(), second]);
        assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2);
        assert!((first.value("edit p50").unwrap() - 29.543).abs() < f64::EPSILON, "{first:?}");

        fs::write(&file, "{}\n").unwrap();
        assert!(format!("{:#}", read(&file).unwrap_err()).contains("scale.jsonl:1 is not a measurement"));
    }

    #[test]
    fn last_measurement_of_each_subject_counts() {
        let records = [
            sample("a", &[(1, 1.0, 1.0)]),
            sample("b", &[(1, 2.0, 1.0)]),
            sample("a", &[(1, 3.0, 1.0), (9, 4.0, 1.0)]),
        ];
        assert_eq!(latest(&records), [&records[2], &records[1]]);
    }

    #[test]
    fn growth_compares_the_last_step_with_the_first_one() {
        let growth = |steps: &[(usize, f64, f64)]| sample("a", steps).growth_of_cpu();
        let ratio = growth(&[(0, 9.0, 0.0), (1_000, 9.0, 4.0), (5_000, 9.0, 4.5), (6_000, 9.0, 5.0)]).unwrap();
        assert!((ratio - 1.25).abs() < f64::EPSILON, "{ratio}");
        assert_eq!(growth(&[(0, 9.0, 0.0), (1_000, 9.0, 4.0)]), None);
        assert_eq!(growth(&[]), None);
    }
}
