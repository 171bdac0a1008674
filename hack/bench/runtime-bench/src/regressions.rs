//! Measures the requests, the allocations and the times for an object of a kind in a minute, and compares them with the history.
//!
//! Requests and allocations depend on the code alone, nearly. So the comparison fails if one of them rises by [`LIMIT`]. Times depend
//! on the machine, and only cause warnings.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use cluster::{Cluster, Nodes};
use serde::Deserialize;

use crate::{
    history::{self, Record},
    kind::{Kind, due_after_creating},
    operator::{Operator, Requests, USER, audit_length, kubeconfig},
    provider::Provider,
    world::World,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to measure, which counts its allocations: `cargo build --release --package controller-manager --example
    /// count-allocations`.
    #[arg(default_value = "target/release/examples/count-allocations")]
    program: PathBuf,
    /// The kinds of the objects, separated by commas; all of them if the flag is absent. Each is measured on its own, and compared
    /// with its own last measurement.
    #[arg(long = "kind", value_name = "KIND", value_enum, value_delimiter = ',', hide_default_value = true,
          default_values_t = Kind::value_variants().to_vec())]
    kinds: Vec<Kind>,
    /// Number of objects.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(50..=10_000))]
    objects: u32,
    /// Number of measurements; the least of each figure counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// The history, of which the last measurement of each kind counts.
    #[arg(long, value_name = "FILE", default_value = "hack/bench/history/regressions.jsonl")]
    history: PathBuf,
    /// Append the measurements to the history instead of failing because of them.
    #[arg(long)]
    record: bool,
}

/// The rise at which the comparison fails, or warns.
const LIMIT: f64 = 0.05;
/// How long to wait before reading what a program has done.
const SETTLE: Duration = Duration::from_secs(5);

/// The figures for an object, with their units. A rise of those that are counted is a failure.
const FIGURES: [(&str, &str, Basis); 5] = [
    ("requests", "an object", Basis::Counted),
    ("allocations", "an object", Basis::Counted),
    ("allocated", "KiB an object", Basis::Counted),
    ("CPU", "ms an object", Basis::Timed),
    ("herd", "ms an object", Basis::Timed),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Basis {
    Counted,
    Timed,
}

/// What the program prints at its end.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Allocations {
    allocations: u64,
    allocated_bytes: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let known = history::read(&args.history)?;
    let names = args.kinds.iter().map(|kind| kind.operator());
    let lacking: Vec<&str> = names.filter(|name| last(&known, name).is_none()).collect();
    ensure!(
        args.record || lacking.is_empty(),
        "{} has no measurement of {} to compare with: add --record once, and commit the file",
        args.history.display(),
        lacking.join(", ")
    );
    let mut failures = Vec::new();
    for kind in &args.kinds {
        let name = kind.operator();
        let record = least_of_rounds(args, *kind)?;
        if args.record {
            history::append(&args.history, &record)?;
        }
        let Some(before) = last(&known, name) else { continue };
        let comparison = compare(before, &record)?;
        comparison.print(name);
        failures.extend(comparison.failures.into_iter().map(|failure| format!("{name}: {failure}")));
    }
    if !failures.is_empty() && !args.record {
        bail!("{}; if the rise is worth it, add --record and commit {}", failures.join("; "), args.history.display());
    }
    Ok(())
}

/// The last measurement of this operator.
fn last<'a>(known: &'a [Record], name: &str) -> Option<&'a Record> {
    known.iter().rfind(|record| record.subject == name)
}

/// Measures one kind several times, each time on a fresh cluster.
fn least_of_rounds(args: &Args, kind: Kind) -> Result<Record> {
    let name = kind.operator();
    let mut rounds = Vec::new();
    let mut record = None;
    for round in 1..=args.rounds {
        let cluster = Cluster::fresh(Nodes::None)?;
        if record.is_none() {
            record = Some(Record::begin(name, args.objects as usize, cluster.state_dir())?);
        }
        let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
        let figures = runtime.block_on(measure(args, kind, &cluster))?;
        runtime.shutdown_background();
        for ((figure, unit, _), value) in FIGURES.iter().zip(figures) {
            eprintln!("{name}, round {round}: {figure}: {value:.2} {unit}");
        }
        rounds.push(figures);
    }
    let mut record = record.context("there was no round")?;
    for ((figure, unit, _), value) in FIGURES.iter().zip(least(&rounds)) {
        record.add(figure, unit, value);
    }
    record.complete = true;
    Ok(record)
}

/// The figures of one round, in the order of [`FIGURES`].
async fn measure(args: &Args, kind: Kind, cluster: &Cluster) -> Result<[f64; FIGURES.len()]> {
    let world = World::prepare(kind, cluster, &args.program).await?;
    let provider = match kind {
        Kind::Flightticket => Some(Provider::start().await?),
        _ => None,
    };
    let flags: Vec<String> = provider.iter().map(|provider| format!("--booking-url={}", provider.url)).collect();
    let start = |log: &Path| -> Result<Operator> {
        let log = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
        Operator::start_with(&args.program, &kubeconfig(cluster)?, kind.operator(), &flags, log.into())
    };
    let folder = tempfile::tempdir()?;
    let (idle, busy) = (folder.path().join("idle.log"), folder.path().join("busy.log"));
    let mut operator = start(&idle)?;
    operator.until_ready().await?;
    world.until_leader(&operator).await?;
    tokio::time::sleep(SETTLE).await;
    operator.terminate().await?;

    let objects = args.objects as usize;
    if kind == Kind::Crontab {
        // One run of each is due when the program starts. There is no Job controller, so the run does not end.
        let (due, schedule) = due_after_creating(objects)?;
        world.create(0..objects, &schedule, |_| {}).await?;
        let wait = due.duration_since(SystemTime::now()).context("the objects were created too slowly")?;
        tokio::time::sleep(wait).await;
    } else {
        world.create(0..objects, "", |_| {}).await?;
    }
    let offset = audit_length(cluster)?;
    let mut operator = start(&busy)?;
    let seconds = world.until_all_ready(objects, &operator).await?;
    if kind == Kind::Crontab {
        world.until_jobs(objects).await?;
    }
    let cpu = operator.cpu()?;
    tokio::time::sleep(SETTLE).await;
    let requests = Requests::after(USER, cluster, offset)?;
    operator.terminate().await?;

    let [before, after] = [allocations(&idle)?, allocations(&busy)?];
    let each = |value: f64| value / f64::from(args.objects);
    let more =
        |after: u64, before: u64| Ok::<_, anyhow::Error>(each(f64::from(u32::try_from(after.saturating_sub(before))?)));
    Ok([
        each(f64::from(u32::try_from(requests.total())?)),
        more(after.allocations, before.allocations)?,
        more(after.allocated_bytes / 1_024, before.allocated_bytes / 1_024)?,
        each(cpu * 1_000.0),
        each(seconds * 1_000.0),
    ])
}

fn allocations(log: &Path) -> Result<Allocations> {
    let text = std::fs::read_to_string(log)?;
    last_counts(&text).context("the program does not count its allocations: build the example count-allocations")
}

/// The counts are the last line, after those of the log.
fn last_counts(log: &str) -> Option<Allocations> {
    serde_json::from_str(log.lines().next_back()?).ok()
}

/// The least of each figure: whatever disturbs a measurement makes more work.
fn least<const N: usize>(rounds: &[[f64; N]]) -> [f64; N] {
    let least = |one: [f64; N], other: &[f64; N]| -> [f64; N] { std::array::from_fn(|n| one[n].min(other[n])) };
    rounds.iter().fold([f64::INFINITY; N], least)
}

/// A measurement beside an earlier one.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    failures: Vec<String>,
    warnings: Vec<String>,
    others: Vec<String>,
}

/// Compares a measurement with an earlier one.
fn compare(before: &Record, now: &Record) -> Result<Comparison> {
    ensure!(
        before.objects == now.objects,
        "the last measurement has {} objects: measure with --objects {}",
        before.objects,
        before.objects
    );
    let mut comparison = Comparison::default();
    for (name, unit, basis) in FIGURES {
        let old = before.value(name).with_context(|| format!("the last measurement lacks {name}"))?;
        let new = now.value(name).with_context(|| format!("the measurement lacks {name}"))?;
        let rise = (new - old) / old.max(f64::MIN_POSITIVE);
        let line = format!("{name}: {old:.2} -> {new:.2} {unit}, {:+.1} %", rise * 100.0);
        // A figure has three decimals, so a rise of exactly the limit may seem a little less.
        match basis {
            _ if rise < LIMIT - 1e-6 => comparison.others.push(line),
            Basis::Counted => comparison.failures.push(line),
            Basis::Timed => comparison.warnings.push(line),
        }
    }
    Ok(comparison)
}

impl Comparison {
    fn print(&self, name: &str) {
        for (what, lines) in [("worse", &self.failures), ("warning", &self.warnings), ("ok", &self.others)] {
            for line in lines {
                eprintln!("{what}: {name}: {line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::history::sample;

    #[derive(Parser)]
    struct Regressions {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn all_kinds_are_measured_unless_some_are_named() {
        let kinds = |flags: &[&str]| Regressions::parse_from([&["regressions"][..], flags].concat()).args.kinds;
        assert_eq!(kinds(&[]), Kind::value_variants());
        assert_eq!(kinds(&["--kind", "crontab,foo"]), [Kind::Crontab, Kind::Foo]);
    }

    /// A measurement in which each figure is 200, but for one.
    fn record(changed: &str, value: f64) -> Record {
        let mut record = sample("memcached", &[]);
        for (name, unit, _) in FIGURES {
            record.add(name, unit, if name == changed { value } else { 200.0 });
        }
        record
    }

    #[test]
    fn rise_of_a_count_by_the_limit_fails_and_of_a_time_warns() {
        for (name, _, basis) in FIGURES {
            let comparison = |value| compare(&record("", 0.0), &record(name, value)).unwrap();
            for below in [209.9, 200.0, 100.0, 0.0] {
                let Comparison { failures, warnings, others } = comparison(below);
                assert_eq!((failures.len(), warnings.len(), others.len()), (0, 0, FIGURES.len()), "{name} {below}");
            }
            for above in [210.0, 300.0] {
                let Comparison { failures, warnings, others } = comparison(above);
                let expected = if basis == Basis::Counted { (1, 0) } else { (0, 1) };
                assert_eq!((failures.len(), warnings.len()), expected, "{name} {above}");
                assert!(failures.iter().chain(&warnings).all(|line| line.starts_with(name)), "{failures:?}");
                assert_eq!(others.len(), FIGURES.len() - 1);
            }
        }
        let line = &compare(&record("", 0.0), &record("requests", 210.0)).unwrap().failures[0];
        assert_eq!(line, "requests: 200.00 -> 210.00 an object, +5.0 %");
    }

    #[test]
    fn only_measurements_with_the_same_figures_and_objects_are_compared() {
        let error = |before: &Record, now: &Record| compare(before, now).unwrap_err().to_string();
        let (mut other, empty) = (record("", 0.0), sample("memcached", &[]));
        other.objects = 9;
        assert!(error(&other, &empty).contains("--objects 9"));
        assert_eq!(error(&empty, &record("", 0.0)), "the last measurement lacks requests");
        assert_eq!(error(&record("", 0.0), &empty), "the measurement lacks requests");
    }

    #[test]
    fn each_kind_is_compared_with_its_own_last_measurement() {
        let [mut first, other, second] = ["memcached", "foo", "memcached"].map(|name| sample(name, &[]));
        first.add("requests", "an object", 1.0);
        let known = [first, other, second];
        assert_eq!(last(&known, "memcached"), Some(&known[2]));
        assert_eq!(last(&known, "foo"), Some(&known[1]));
        assert_eq!(last(&known, "crontab"), None);
    }

    #[test]
    fn least_figure_of_all_rounds_counts() {
        assert!(least(&[[3.0, 1.0], [2.0, 5.0]]).iter().zip([2.0, 1.0]).all(|(one, other)| (one - other).abs() < 1e-9));
    }

    #[test]
    fn counts_are_the_last_line_of_the_log() {
        let log = "{\"level\":\"INFO\"}\n{\"allocations\":7,\"allocatedBytes\":4096}\n";
        assert_eq!(last_counts(log), Some(Allocations { allocations: 7, allocated_bytes: 4_096 }));
        assert_eq!(last_counts("{\"level\":\"INFO\"}\n"), None);
        assert_eq!(last_counts(""), None);
    }
}
