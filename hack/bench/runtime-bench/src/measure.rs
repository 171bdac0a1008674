//! Measures the program: memory, CPU, requests, latencies, hand-over.
//!
//! A remark beside each figure describes it. Control plane, load and operator share the machine, so times depend on all of them.
//! Compare two programs in turn on one quiet machine. Memory and requests depend least on the machine.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use cluster::{Cluster, Nodes};

use crate::{
    kind::{Kind, due_after_creating},
    machine::Machine,
    operator::{BUILT, Memory, Operator, Requests, USER, audit_length},
    provider::Provider,
    table::Table,
    world::{Change, World},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to measure.
    #[arg(default_value = BUILT)]
    program: PathBuf,
    /// Another program, such as that of an earlier commit. It is measured first, in the same way; the second table of each kind has
    /// the ratios.
    #[arg(long, value_name = "PROGRAM")]
    baseline: Option<PathBuf>,
    /// The program whose definitions to install (`PROGRAM crds`), if the measured program has none.
    #[arg(long, value_name = "PROGRAM")]
    definitions_of: Option<PathBuf>,
    /// The kinds of the objects, separated by commas. Each is measured on its own.
    #[arg(long = "kind", value_name = "KIND", value_enum, value_delimiter = ',', default_value = "memcached")]
    kinds: Vec<Kind>,
    /// Number of objects.
    #[arg(long, default_value_t = 1_000)]
    objects: usize,
    /// Number of objects to change, one every 30 ms; only for kinds with a Deployment.
    #[arg(long, default_value_t = 100)]
    changes: usize,
    /// Seconds to measure while nothing changes.
    #[arg(long, default_value_t = 60)]
    window: u64,
    /// The number of reconciles at a time, for each kind (`--max-concurrent-reconciles`); the program's default if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// Also kill a leader. This takes a lease duration of 15 s.
    #[arg(long)]
    kill: bool,
}

/// How long to wait before reading the memory.
const SETTLE: Duration = Duration::from_secs(5);

impl Args {
    /// The flags of the program, for any kind.
    fn flags(&self) -> Vec<String> {
        self.workers.iter().map(|workers| format!("--max-concurrent-reconciles={workers}")).collect()
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    for kind in &args.kinds {
        let name = kind.operator();
        let Some(program) = &args.baseline else {
            measure(args, *kind, &args.program, name, None)?;
            continue;
        };
        let baseline = measure(args, *kind, program, &format!("{name}, baseline"), None)?;
        measure(args, *kind, &args.program, &format!("{name}, program"), Some(&baseline))?;
    }
    Ok(())
}

/// Measures a program with objects of one kind, on a fresh cluster, and prints the figures under this title.
fn measure(args: &Args, kind: Kind, program: &Path, title: &str, baseline: Option<&Table>) -> Result<Table> {
    let nodes = if kind == Kind::Crontab { Nodes::Simulated } else { Nodes::None };
    let cluster = Arc::new(Cluster::fresh(nodes)?);
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    let flags = args.flags();
    let mut bench = Bench { args, kind, program, cluster, table: Table::of(title), flags, start_cpu: 0.0 };
    let measured = runtime.block_on(bench.measure());
    bench.table.print(baseline)?; // also after a failure, with the figures until then
    measured?;
    Ok(bench.table)
}

struct Bench<'a> {
    args: &'a Args,
    kind: Kind,
    program: &'a Path,
    cluster: Arc<Cluster>,
    table: Table,
    flags: Vec<String>,
    /// Seconds of CPU of a start without objects.
    start_cpu: f64,
}

#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
impl Bench<'_> {
    fn start(&self) -> Result<Operator> {
        Operator::start(self.program, &self.cluster, self.kind.operator(), &self.flags)
    }

    /// The present length of the audit log, for [`requests_after`](Self::requests_after).
    fn audited(&self) -> Result<u64> {
        audit_length(&self.cluster)
    }

    /// The program's requests since the audit log had this length. With many objects the log has gigabytes, so only the rest is read.
    fn requests_after(&self, offset: u64) -> Result<Requests> {
        Requests::after(USER, &self.cluster, offset)
    }

    async fn measure(&mut self) -> Result<()> {
        let kind = self.kind;
        let provider = match kind {
            Kind::Flightticket => Some(Provider::start().await?),
            _ => None,
        };
        self.flags.extend(provider.iter().map(|provider| format!("--booking-url={}", provider.url)));
        let definitions_of = self.args.definitions_of.as_deref().unwrap_or(self.program);
        let world = World::prepare(kind, &self.cluster, definitions_of).await?;
        let size = std::fs::metadata(self.program)?.len() as f64 / 1_048_576.0;
        self.table.add("program", "MiB", size, "size of the file");
        let idle = self.idle(&world).await?;
        let mut operator = match kind {
            Kind::Crontab => self.all_due_at_once(&world).await?,
            _ => self.herd(&world).await?,
        };
        tokio::time::sleep(SETTLE).await;
        let full = operator.memory()?;
        self.table.add("RSS with objects", "MiB", full.rss(), "");
        self.table.add("heap with objects", "MiB", full.anonymous, "");
        let each = (full.anonymous - idle.anonymous) * 1_024.0 / self.args.objects as f64;
        self.table.add("memory", "KiB", each, "heap of an object with its children");
        // After the memory, which the page of metrics changes. A program with --metrics-secure refuses the page.
        if let Ok(reconciles) = operator.reconciles().await
            && reconciles > 0.0
        {
            let each = reconciles / self.args.objects as f64;
            self.table.add("reconciles", "", each, "an object, since the start");
        }
        if kind.has_deployment() {
            self.changes(&world).await?;
        }
        self.steady(&operator, provider.as_ref()).await?;
        if kind.has_deployment() {
            self.hand_over(&world, &mut operator).await?;
        }
        Ok(())
    }

    /// Measures the idle program, without objects. Returns its memory.
    async fn idle(&mut self, world: &World) -> Result<Memory> {
        let mut operator = self.start()?;
        self.table.add("exec to ready", "s", operator.until_ready().await?, "/readyz answers 200");
        self.table.add("exec to lease", "s", world.until_leader(&operator).await?, "it leads");
        self.start_cpu = operator.cpu()?;
        self.table.add("start CPU", "ms", self.start_cpu * 1_000.0, "until it leads");
        tokio::time::sleep(SETTLE).await;
        let (cpu, offset) = (operator.cpu()?, self.audited()?);
        tokio::time::sleep(Duration::from_secs(self.args.window)).await;
        let minutes = self.args.window as f64 / 60.0;
        self.table.add("idle CPU", "s/min", (operator.cpu()? - cpu) / minutes, "without objects");
        let requests = self.requests_after(offset)?.total() as f64;
        self.table.add("idle requests", "/min", requests / minutes, "the lease's included");
        let idle = operator.memory()?;
        self.table.add("idle RSS", "MiB", idle.rss(), "without objects");
        self.table.add("idle heap", "MiB", idle.anonymous, "");
        operator.terminate().await?;
        Ok(idle)
    }

    /// Measures the start with many objects that wait for the program.
    async fn herd(&mut self, world: &World) -> Result<Operator> {
        let objects = self.args.objects;
        world.create(0..objects, "", |_| {}).await?;
        let (offset, machine) = (self.audited()?, Machine::of(&self.cluster)?);
        let before = machine.now();
        let operator = self.start()?;
        let seconds = world.until_all_ready(objects, &operator).await?;
        let (usage, after) = (operator.usage()?, machine.now());
        let each = |value: f64| value / objects as f64;
        let without_start = each((usage.cpu - self.start_cpu) * 1_000.0);
        self.table.add("herd", "s", seconds, "exec until all waiting objects are ready");
        self.table.add("herd rate", "/s", objects as f64 / seconds, "objects");
        self.table.add("herd CPU", "ms", each(usage.cpu * 1_000.0), "an object, with its part of start and list");
        self.table.add("herd CPU without start", "ms", without_start, "the same without `start CPU`");
        self.table.add("herd system CPU", "ms", each(usage.system * 1_000.0), "the kernel's part of `herd CPU`");
        self.table.add("herd page faults", "", each(usage.faults), "an object");
        for line in after.since(&before, objects) {
            self.table.add(&format!("herd: {}", line.what), line.unit, line.value, line.remark);
        }
        tokio::time::sleep(SETTLE).await;
        self.table.add_requests("herd", &self.requests_after(offset)?, objects);
        Ok(operator)
    }

    /// Measures `CronTab`s whose first runs are all in the same minute.
    async fn all_due_at_once(&mut self, world: &World) -> Result<Operator> {
        let objects = self.args.objects;
        let mut operator = self.start()?;
        operator.until_ready().await?;
        let (due, schedule) = due_after_creating(objects)?;
        let (cpu, offset) = (operator.cpu()?, self.audited()?);
        world.create(0..objects, &schedule, |_| {}).await?;
        world.until_ready(objects).await?;
        let wait = due.duration_since(SystemTime::now()).context("the objects were created too slowly")?;
        self.table.add("created CPU", "ms", (operator.cpu()? - cpu) * 1_000.0 / objects as f64, "an object, scheduled");
        self.table.add_requests("created", &self.requests_after(offset)?, objects);
        self.table.add("RSS before", "MiB", operator.memory()?.rss(), "all scheduled, none has run");
        tokio::time::sleep(wait).await;

        let (cpu, offset) = (operator.cpu()?, self.audited()?);
        world.until_jobs(objects).await?;
        let seconds = due.elapsed()?.as_secs_f64();
        self.table.add("all started", "s", seconds, "from the minute until the last Job is there");
        world.until_ended(objects).await?;
        self.table.add("all ended", "s", due.elapsed()?.as_secs_f64(), "until the last object reports it");
        tokio::time::sleep(SETTLE).await;
        self.table.add("run CPU", "ms", (operator.cpu()? - cpu) * 1_000.0 / objects as f64, "an object, start and end");
        self.table.add_requests("run", &self.requests_after(offset)?, objects);
        Ok(operator)
    }

    async fn changes(&mut self, world: &World) -> Result<()> {
        let count = self.args.changes.min(self.args.objects);
        for (name, what) in [("delete", Change::Delete), ("edit", Change::Edit), ("scale", Change::Scale)] {
            let offset = self.audited()?;
            let latencies = world.change(what, 0..count).await?;
            self.table.add_latencies(name, &latencies);
            tokio::time::sleep(Duration::from_secs(2)).await;
            self.table.add_requests(name, &self.requests_after(offset)?, count);
        }
        Ok(())
    }

    async fn steady(&mut self, operator: &Operator, provider: Option<&Provider>) -> Result<()> {
        let provider_requests = async || match provider {
            Some(provider) => provider.requests().await,
            None => Ok(0.0),
        };
        let (cpu, offset, questions) = (operator.cpu()?, self.audited()?, provider_requests().await?);
        tokio::time::sleep(Duration::from_secs(self.args.window)).await;
        let minutes = self.args.window as f64 / 60.0;
        let cpu = (operator.cpu()? - cpu) / minutes;
        self.table.add("steady CPU", "s/min", cpu, "with all objects, nothing changes");
        let requests = self.requests_after(offset)?.total() as f64;
        self.table.add("steady requests", "/min", requests / minutes, "the lease's included");
        if provider.is_some() {
            let questions = provider_requests().await? - questions;
            self.table.add("steady questions", "/min", questions / minutes, "to the provider");
        }
        Ok(())
    }

    async fn hand_over(&mut self, world: &World, operator: &mut Operator) -> Result<()> {
        let mut standby = self.start()?;
        standby.until_ready().await?;
        tokio::time::sleep(SETTLE).await;
        let memory = standby.memory()?;
        self.table.add("standby RSS", "MiB", memory.rss(), "while the other one leads");
        self.table.add("standby heap", "MiB", memory.anonymous, "");
        let seconds = world.hand_over(0, async || operator.terminate().await).await?;
        self.table.add("hand-over", "s", seconds, "SIGTERM to the leader until the standby's first write");
        if self.args.kill {
            let mut next = self.start()?;
            next.until_ready().await?;
            let seconds = world.hand_over(1, async || standby.kill().await).await?;
            self.table.add("take-over", "s", seconds, "SIGKILL of the leader until the standby's first write");
            next.terminate().await?;
        } else {
            standby.terminate().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Measure {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn kinds_are_separated_by_commas() {
        let kinds = |flags: &[&str]| Measure::parse_from([&["measure"][..], flags].concat()).args.kinds;
        assert_eq!(kinds(&[]), [Kind::Memcached]);
        assert_eq!(kinds(&["--kind", "crontab,foo"]), [Kind::Crontab, Kind::Foo]);
    }

    #[test]
    fn workers_are_a_flag_of_the_program() {
        let parse = |flags: &[&str]| Measure::try_parse_from([&["measure"][..], flags].concat());
        assert!(parse(&[]).unwrap().args.flags().is_empty(), "its own default");
        assert_eq!(parse(&["--workers", "8"]).unwrap().args.flags(), ["--max-concurrent-reconciles=8"]);
        assert!(parse(&["--workers", "0"]).is_err());
    }
}
