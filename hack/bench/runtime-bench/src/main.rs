//! Measures the built `controller-manager` on a cluster of its own: memory, CPU, requests, latencies, hand-over.
//!
//! What is measured is said beside each figure. Control plane, load and operator share the machine, so times are those
//! of the whole; compare two programs in turn on one quiet machine. Memory and requests depend on that least.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use cluster::{Cluster, Nodes};

use crate::{
    operator::{Operator, Requests, USER},
    table::Table,
    world::World,
};

mod operator;
mod table;
mod world;

/// Measure the controller-manager on a cluster of its own.
#[derive(Parser)]
struct Args {
    /// The program to measure.
    #[arg(default_value = "target/image/x86_64-unknown-linux-gnu/release/controller-manager")]
    program: PathBuf,
    /// How many Memcacheds wait when the program starts.
    #[arg(long, default_value_t = 1_000)]
    objects: usize,
    /// How many of them are changed, one every 30 ms.
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Seconds of watching while nothing happens.
    #[arg(long, default_value_t = 60)]
    window: u64,
    /// Also kill a leader, which takes a lease time of 15 s.
    #[arg(long)]
    kill: bool,
}

/// Before memory is read.
const SETTLE: Duration = Duration::from_secs(5);
const SIZE: i64 = 3;

fn main() -> Result<()> {
    let args = Args::parse();
    let cluster = Arc::new(Cluster::fresh(Nodes::None)?);
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    let mut table = Table::default();
    let measured = runtime.block_on(measure(&args, &cluster, &mut table));
    table.print()?; // also what was measured before something failed
    measured
}

#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
async fn measure(args: &Args, cluster: &Arc<Cluster>, table: &mut Table) -> Result<()> {
    let start = || Operator::start(&args.program, cluster);
    let requests = || Requests::of(USER, cluster);
    let world = World::prepare(cluster, &args.program).await?;
    table.add("program", "MiB", std::fs::metadata(&args.program)?.len() as f64 / 1_048_576.0, "size of the file");

    // Nothing to do.
    let mut operator = start()?;
    table.add("exec to ready", "s", operator.until_ready().await?, "/readyz answers 200");
    table.add("exec to lease", "s", world.until_leader(&operator).await?, "it leads");
    tokio::time::sleep(SETTLE).await;
    let (cpu, before) = (operator.cpu()?, requests()?);
    tokio::time::sleep(Duration::from_secs(args.window)).await;
    let minutes = args.window as f64 / 60.0;
    table.add("idle CPU", "s/min", (operator.cpu()? - cpu) / minutes, "without objects");
    table.add("idle requests", "/min", requests()?.since(&before).total() as f64 / minutes, "the lease's included");
    let idle = operator.memory()?;
    table.add("idle RSS", "MiB", idle.rss(), "without objects");
    table.add("of which heap", "MiB", idle.anonymous, "");
    operator.terminate().await?;

    // A herd that waits.
    world.create(args.objects, SIZE).await?;
    let before = requests()?;
    let mut operator = start()?;
    let seconds = world.until_all_ready(args.objects, &operator).await?;
    table.add("herd", "s", seconds, "exec until all that waited are ready");
    table.add("herd CPU", "ms", operator.cpu()? * 1_000.0 / args.objects as f64, "an object");
    tokio::time::sleep(SETTLE).await;
    let full = operator.memory()?;
    table.add("RSS with objects", "MiB", full.rss(), "");
    table.add("of which heap", "MiB", full.anonymous, "");
    table.add(
        "memory",
        "KiB",
        (full.rss() - idle.rss()) * 1_024.0 / args.objects as f64,
        "an object with its children",
    );
    table.add_requests("herd", &requests()?.since(&before), args.objects);

    // Changes.
    for (name, what) in
        [("delete", world::Change::Delete), ("edit", world::Change::Edit), ("scale", world::Change::Scale)]
    {
        let before = requests()?;
        let latencies = world.change(what, args.changes.min(args.objects)).await?;
        table.add_latencies(name, &latencies);
        tokio::time::sleep(Duration::from_secs(2)).await;
        table.add_requests(name, &requests()?.since(&before), args.changes.min(args.objects));
    }
    let (cpu, before) = (operator.cpu()?, requests()?);
    tokio::time::sleep(Duration::from_secs(args.window)).await;
    table.add("steady CPU", "s/min", (operator.cpu()? - cpu) / minutes, "with all objects, nothing changes");
    table.add("steady requests", "/min", requests()?.since(&before).total() as f64 / minutes, "the lease's included");

    // Hand-over.
    let mut standby = start()?;
    standby.until_ready().await?;
    tokio::time::sleep(SETTLE).await;
    table.add("standby RSS", "MiB", standby.memory()?.rss(), "while the other one leads");
    let seconds = world.hand_over(0, async || operator.terminate().await).await?;
    table.add("hand-over", "s", seconds, "SIGTERM to the leader until the standby's first write");
    if args.kill {
        let mut next = start()?;
        next.until_ready().await?;
        let seconds = world.hand_over(1, async || standby.kill().await).await?;
        table.add("take-over", "s", seconds, "SIGKILL of the leader until the standby's first write");
        next.terminate().await?;
    } else {
        standby.terminate().await?;
    }
    Ok(())
}
