//! Changes objects twice within milliseconds, so that the second change coincides with the program's own write, and counts the
//! changes that the program misses.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use cluster::{Cluster, Nodes};
use fastrand::Rng;
use kube::Api;
use manager_testing::{Raced, Races};
use tokio::time::Instant;

use crate::{
    kind::Kind,
    kubelet,
    operator::{BUILT, Operator, kubeconfig},
    world,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to test.
    #[arg(default_value = BUILT)]
    program: PathBuf,
    /// Number of pairs of changes, on all objects together.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Number of Memcacheds; all are changed at the same time and independently.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=99))]
    objects: u32,
    /// Seed of the changes and of the times between them; their timing relative to the program's writes still varies. Default: a
    /// fresh seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Seconds after which a change without an effect counts as missed.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    patience: u64,
    /// Seconds until the program must be ready.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    ready_within: u64,
}

/// The interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "default";
/// The lines of the program's log that a failure prints.
const LAST: usize = 40;
/// Without resync, because it would repair missed changes.
const NO_RESYNC: &str = "--resync-interval=24h";

pub(crate) fn run(args: &Args) -> Result<()> {
    let cluster = Cluster::fresh(Nodes::None)?;
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    let seed = args.seed.unwrap_or_else(|| Rng::new().u64(..1_000_000));
    eprintln!("seed {seed}, {} rounds, {} objects", args.rounds, args.objects);
    let log = tempfile::NamedTempFile::new().context("could not make a file for the log of the program")?;
    let raced = runtime.block_on(race(args, &cluster, seed, log.path()));
    let passed = raced.and_then(|raced| verdict(&raced, seed));
    if passed.is_err() {
        let said = fs::read(log.path()).unwrap_or_default();
        eprintln!("the end of the program's log:\n{}", last_lines(&String::from_utf8_lossy(&said), LAST));
    }
    passed
}

/// Prints the result.
fn verdict(raced: &Raced, seed: u64) -> Result<()> {
    print(raced)?;
    match raced.missed.len() {
        0 => Ok(()),
        missed => bail!("{missed} changes were missed; --seed {seed} makes the same changes again"),
    }
}

/// The last lines of a text, at most so many.
fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

async fn race(args: &Args, cluster: &Cluster, seed: u64, log: &Path) -> Result<Raced> {
    let client = world::install(cluster, &args.program).await?;
    let kubelet = tokio::spawn(kubelet::run(Api::namespaced(client.clone(), NAMESPACE)));
    let (kind, flags) = (Kind::Memcached, [NO_RESYNC.to_owned()]);
    let kubeconfig = kubeconfig(cluster)?;
    let said = Stdio::from(fs::File::create(log).context("could not open the log of the program")?);
    let mut operator = Operator::start_with(&args.program, &kubeconfig, kind.operator(), &flags, said)?;
    operator.until_ready_within(Duration::from_secs(args.ready_within)).await?;
    let races = Races {
        client,
        namespace: NAMESPACE.to_owned(),
        resource: kind.resource(),
        objects: args.objects as usize,
        rounds: args.rounds as usize,
        seed,
        patience: Duration::from_secs(args.patience),
    };
    let (begun, mut next, mut missed) = (Instant::now(), PROGRESS, 0);
    let progress = |raced: &Raced| {
        for missed in raced.missed.iter().skip(missed) {
            eprintln!("missed: {missed}");
        }
        missed = raced.missed.len();
        if begun.elapsed() >= next {
            next = begun.elapsed() + PROGRESS;
            eprintln!("{:3.0} s: {} rounds, {missed} missed", begun.elapsed().as_secs_f64(), raced.rounds);
        }
    };
    let outcome = races.run(progress).await;
    kubelet.abort();
    if let Some(status) = operator.ended()? {
        bail!("the program ended by itself: {status}");
    }
    outcome
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn print(raced: &Raced) -> Result<()> {
    let (rounds, missed) = (f64::from(u32::try_from(raced.rounds)?), f64::from(u32::try_from(raced.missed.len())?));
    print!("{raced}");
    println!("{:.2} % missed", 100.0 * missed / rounds);
    Ok(std::io::Write::flush(&mut std::io::stdout())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_shows_the_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
