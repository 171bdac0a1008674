//! Measures how memory and CPU grow with the number of objects, and what a start, a hand-over, a change and a new list cost among
//! all of them.
//!
//! `steps` has the numbers of objects, `resync` measures resyncs, which are off in all other steps, and `plot` draws the history. The
//! cluster has no pods: this program simulates the Deployment controller and the kubelet, as for the other measurements. Of Kubernetes'
//! own controllers, it has garbage collection and those for namespaces, service accounts and roles.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cluster::{Cluster, Nodes};
use tokio::signal::unix::{SignalKind, signal};

use self::steps::{progress, steps};
use crate::{
    history::{self, Each, OURS, Record, Step},
    kind::Kind,
    machine::Machine,
    operator::{BUILT, Operator, Requests, USER, audit_length},
    percentile::percentile,
    table::Table,
    world::{Change, World},
};

mod plot;
mod resync;
mod steps;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to measure.
    #[arg(default_value = BUILT)]
    program: PathBuf,
    /// Afterwards, measure this program at the same steps, on a cluster of its own: a peer, such as that on controller-runtime.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// The name of the peer in the history and in the plot.
    #[arg(long, value_name = "NAME", default_value = "controller-runtime")]
    peer_name: String,
    /// Number of Memcacheds.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    objects: u32,
    /// Number of objects to change one after another, for the latencies.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    changes: u32,
    /// Seconds to measure while nothing changes.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    window: u64,
    /// Minutes after which the measurement of a program ends, whatever it still lacks.
    #[arg(long, value_name = "MINUTES", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    deadline: u64,
    /// The history, to which each measurement appends a line. The plot is beside it, with the extension svg.
    #[arg(long, value_name = "FILE", default_value = "hack/bench/history/scale.jsonl")]
    history: PathBuf,
    /// Only draw the plot again.
    #[arg(long)]
    plot: bool,
}

/// How long a program may take to be ready with all objects.
const START: Duration = Duration::from_mins(10);
/// A program that uses less than [`IDLE`] in this time has nothing left to do.
const QUIET: Duration = Duration::from_secs(3);
/// Seconds of CPU that the lease and the runtime of a language may take in that time.
const IDLE: f64 = 0.06;
/// How long to wait for that.
const RESTLESS: Duration = Duration::from_mins(5);
/// How often to look at its CPU time.
const LOOK: Duration = Duration::from_millis(250);
/// Without resync: the burst of reconciles would be in the figures of whatever is measured at that time. The peer on controller-runtime
/// has none within its first nine hours.
const NO_RESYNC: &str = "--resync-interval=24h";

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.plot {
        return draw(&args.history);
    }
    let peer = args.peer.iter().map(|program| (args.peer_name.as_str(), program));
    let programs = [(OURS, &args.program)].into_iter().chain(peer);
    for (subject, program) in programs {
        eprintln!("{subject}: {}", program.display());
        let cluster = Arc::new(Cluster::fresh(Nodes::None)?);
        let record = Record::begin(subject, args.objects as usize, cluster.state_dir())?;
        eprintln!("etcd's data are on {}", record.store);
        let is_ours = subject == OURS;
        let table = Table::of(Kind::Memcached.operator());
        let mut bench = Bench { args, program: program.as_path(), cluster, record, table, is_ours };
        let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
        let measured = runtime.block_on(bench.measure_until(Duration::from_secs(args.deadline * 60)));
        runtime.shutdown_background();
        bench.table.print(None)?; // also after a failure, with the figures until then
        bench.record.complete = measured.is_ok();
        if !bench.record.steps.is_empty() {
            history::append(&args.history, &bench.record)?;
            draw(&args.history)?;
        }
        measured?;
    }
    Ok(())
}

fn draw(history: &Path) -> Result<()> {
    let file = history.with_extension("svg");
    fs::write(&file, plot::draw(&history::read(history)?))
        .with_context(|| format!("could not write {}", file.display()))?;
    eprintln!("drew {}", file.display());
    Ok(())
}

/// Waits for SIGINT or SIGTERM. Then the program under test and the cluster end with their owners.
async fn stopped() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed?,
        _ = terminate.recv() => {}
    }
    bail!("stopped by a signal")
}

struct Bench<'a> {
    args: &'a Args,
    program: &'a Path,
    cluster: Arc<Cluster>,
    record: Record,
    table: Table,
    /// Whether the program is of this repository, and so must send no requests at idle but for the lease.
    is_ours: bool,
}

#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
impl Bench<'_> {
    async fn measure_until(&mut self, deadline: Duration) -> Result<()> {
        tokio::select! {
            measured = self.measure() => measured,
            stop = stopped() => stop,
            () = tokio::time::sleep(deadline) => bail!("the measurement did not end within {deadline:?}"),
        }
    }

    async fn measure(&mut self) -> Result<()> {
        let world = World::prepare(Kind::Memcached, &self.cluster, &self.args.program).await?;
        let mut operator = self.start()?;
        operator.until_ready().await?;
        world.until_leader(&operator).await?;
        until_quiet(&operator).await?;
        self.step(&operator, 0, None)?;
        for objects in steps(self.args.objects as usize) {
            self.grow(&world, &operator, objects).await?;
        }
        if let Some(ratio) = self.record.growth_of_cpu() {
            self.figure("growth of CPU", "ratio", ratio, "CPU for an object at the last step, divided by the first");
        }
        self.scrape(&operator).await?;
        let others = self.steady(&operator).await?;
        self.changes(&world).await?;
        self.relist(&world, &mut operator).await?;
        operator.terminate().await?;
        let mut operator = self.restart().await?;
        self.hand_over(&world, &mut operator).await?;
        if self.is_ours {
            self.resync().await?;
        }
        ensure!(others.is_empty() || !self.is_ours, "requests at idle, beside the lease's: {}", others.join(", "));
        Ok(())
    }

    /// Starts the program without resync.
    fn start(&self) -> Result<Operator> {
        let flags: &[&str] = if self.is_ours { &[NO_RESYNC] } else { &[] };
        self.start_with(flags)
    }

    fn start_with(&self, flags: &[&str]) -> Result<Operator> {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Operator::start(self.program, &self.cluster, Kind::Memcached.operator(), &flags)
    }

    fn figure(&mut self, name: &str, unit: &str, value: f64, remark: &str) {
        self.table.add(name, unit, value, remark);
        self.record.add(name, unit, value);
    }

    fn objects(&self) -> usize {
        self.args.objects as usize
    }

    /// Records the present memory, with so many objects, and what each of them has cost since the last step.
    fn step(&mut self, operator: &Operator, objects: usize, each: Option<Each>) -> Result<()> {
        let memory = operator.memory()?;
        self.table.add(&format!("RSS with {objects}"), "MiB", memory.rss(), "objects with children");
        if let Some(each) = &each {
            for (what, unit, value, remark) in [
                ("memory", "KiB", each.heap_kib, "heap of an object since the last step"),
                ("CPU", "ms", each.cpu_ms, "to converge an object since the last step"),
                ("system CPU", "ms", each.system_ms, "the kernel's part of it"),
                ("page faults", "", each.page_faults, "to converge an object"),
                ("requests", "", each.requests, "to converge an object"),
                ("time", "ms", each.wall_ms, "to converge an object, from the first create to the last ready object"),
            ] {
                self.table.add(&format!("{what} at {objects}"), unit, value, remark);
            }
        }
        self.record.add_step(&Step { objects, rss_mib: memory.rss(), heap_mib: memory.anonymous, each });
        Ok(())
    }

    /// Creates more objects, until there are so many, and waits until they are ready.
    async fn grow(&mut self, world: &World, operator: &Operator, objects: usize) -> Result<()> {
        let (done, heap) = self.record.steps.last().map_or((0, 0.0), |step| (step.objects, step.heap_mib));
        let machine = Machine::of(&self.cluster)?;
        let others = machine.now();
        let (before, offset, begun) = (operator.usage()?, audit_length(&self.cluster)?, Instant::now());
        let report = |what: &str, count: usize| eprintln!("{}", progress(what, count, objects - done, begun.elapsed()));
        tokio::try_join!(
            world.create(done..objects, "", |created| report("created", created)),
            world.follow_ready(objects, |ready| report("ready", ready - done.min(ready))),
        )?;
        let seconds = begun.elapsed().as_secs_f64();
        let lines = machine.now().since(&others, objects - done);
        until_quiet(operator).await?;
        let more = (objects - done) as f64;
        let (after, heap_after) = (operator.usage()?, operator.memory()?.anonymous);
        let requests = Requests::after(USER, &self.cluster, offset)?.total() as f64;
        let each = Each {
            heap_kib: (heap_after - heap) * 1_024.0 / more,
            cpu_ms: (after.cpu - before.cpu) * 1_000.0 / more,
            system_ms: (after.system - before.system) * 1_000.0 / more,
            page_faults: (after.faults - before.faults) / more,
            requests: requests / more,
            wall_ms: seconds * 1_000.0 / more,
        };
        self.step(operator, objects, Some(each))?;
        for line in lines {
            self.figure(&format!("{} at {objects}", line.what), line.unit, line.value, line.remark);
        }
        Ok(())
    }

    /// Measures the page of metrics, and reads from it how often each object was reconciled. Only after the last step: the page leaves
    /// something of each object in the program's memory.
    async fn scrape(&mut self, operator: &Operator) -> Result<()> {
        let (cpu, begun) = (operator.cpu()?, Instant::now());
        let reconciles = operator.reconciles().await?;
        self.figure("scrape", "s", begun.elapsed().as_secs_f64(), "the page for Prometheus, with all objects");
        self.figure("scrape CPU", "s", operator.cpu()? - cpu, "");
        self.figure("RSS after a scrape", "MiB", operator.memory()?.rss(), "with all objects");
        let each = reconciles / self.objects() as f64;
        self.figure("reconciles", "", each, "to converge an object, over all steps");
        Ok(())
    }

    /// Measures while nothing changes. Returns the requests that are neither the lease's nor a watch that begins again.
    async fn steady(&mut self, operator: &Operator) -> Result<Vec<String>> {
        let (cpu, offset) = (operator.cpu()?, audit_length(&self.cluster)?);
        tokio::time::sleep(Duration::from_secs(self.args.window)).await;
        let minutes = self.args.window as f64 / 60.0;
        self.figure("steady CPU", "s/min", (operator.cpu()? - cpu) / minutes, "with all objects, nothing changes");
        let requests = Requests::after(USER, &self.cluster, offset)?;
        for (what, count) in requests.iter() {
            self.figure(&format!("steady: {what}"), "/min", count as f64 / minutes, "requests at idle");
        }
        Ok(requests.iter().map(|(what, _)| what).filter(|what| !is_expected_at_idle(what)).map(str::to_owned).collect())
    }

    async fn changes(&mut self, world: &World) -> Result<()> {
        let (objects, changes) = (self.objects(), (self.args.changes as usize).min(self.objects()));
        for (name, change) in [("edit", Change::Edit), ("scale", Change::Scale)] {
            // Spread over all objects.
            let latencies = world.change(change, (0..changes).map(|n| n * objects / changes)).await?;
            for percent in [50, 99] {
                let value = percentile(&latencies, percent).context("nothing was changed")?;
                let name = format!("{name} p{percent}");
                self.figure(&name, "ms", value * 1_000.0, "request sent until its effect is observed");
            }
        }
        Ok(())
    }

    /// Compacts the history of the store, so that the program lists all objects again.
    async fn relist(&mut self, world: &World, operator: &mut Operator) -> Result<()> {
        operator.reset_peak()?;
        let (cpu, rss, offset) = (operator.cpu()?, operator.memory()?.rss(), audit_length(&self.cluster)?);
        let (cluster, begun) = (self.cluster.clone(), Instant::now());
        tokio::task::spawn_blocking(move || cluster.compact()).await??;
        self.figure("API server restart", "s", begun.elapsed().as_secs_f64(), "until it is ready again");
        if let Some(status) = operator.ended()? {
            // A peer ends if it cannot renew its lease, and the kubelet starts it again.
            ensure!(!self.is_ours, "the program ended: {status}");
            eprintln!("the program ended while the API server restarted ({status}), so there is no relist to measure");
            *operator = self.start()?;
            operator.until_ready_within(START).await?;
            return world.until_it_acts(self.objects() / 2).await;
        }
        world.until_it_acts(self.objects() / 2).await?;
        self.figure("relist", "s", begun.elapsed().as_secs_f64(), "compaction until a change has its effect");
        until_quiet(operator).await?;
        if let Some(status) = operator.ended()? {
            bail!("the program ended: {status}");
        }
        let requests = Requests::after(USER, &self.cluster, offset)?;
        let lists: usize = requests.iter().filter(|(what, _)| what.starts_with("list ")).map(|(_, count)| count).sum();
        ensure!(lists > 0, "the program listed nothing, so the compaction had no effect");
        self.figure("relist lists", "requests", lists as f64, "pages of lists");
        let each = (operator.cpu()? - cpu) * 1_000.0 / self.objects() as f64;
        self.figure("relist CPU", "ms", each, "an object, with its children");
        let peak = operator.peak()?;
        self.figure("relist peak RSS", "MiB", peak, "");
        self.figure("relist peak over steady", "ratio", peak / rss, "RSS");
        Ok(())
    }

    /// Measures the start with all objects present and converged.
    async fn restart(&mut self) -> Result<Operator> {
        let offset = audit_length(&self.cluster)?;
        let mut operator = self.start()?;
        let ready = operator.until_ready_within(START).await?;
        self.figure("start to ready", "s", ready, "with all objects: /readyz answers 200");
        let quiet = until_quiet(&operator).await?;
        let seconds = (quiet - operator.started).as_secs_f64();
        self.figure("start to reconciled", "s", seconds, "all objects are reconciled, and nothing is left to do");
        let each = operator.cpu()? * 1_000.0 / self.objects() as f64;
        self.figure("start CPU", "ms", each, "an object, with its children");
        let requests = Requests::after(USER, &self.cluster, offset)?.total() as f64;
        self.figure("start requests", "requests", requests, "pages of lists, watches and the lease");
        let (peak, rss) = (operator.peak()?, operator.memory()?.rss());
        self.figure("start peak RSS", "MiB", peak, "");
        self.figure("start RSS", "MiB", rss, "afterwards");
        self.figure("start peak over steady", "ratio", peak / rss, "RSS");
        let reconciles = operator.reconciles().await?; // after the memory
        ensure!(reconciles >= self.objects() as f64, "the program was quiet after only {reconciles} reconciles");
        Ok(operator)
    }

    async fn hand_over(&mut self, world: &World, operator: &mut Operator) -> Result<()> {
        let mut standby = self.start()?;
        standby.until_ready_within(START).await?;
        until_quiet(&standby).await?;
        self.figure("standby RSS", "MiB", standby.memory()?.rss(), "while the other one leads");
        let seconds = world.hand_over(0, async || operator.terminate().await).await?;
        self.figure("hand-over", "s", seconds, "SIGTERM to the leader until the standby's first write");
        standby.terminate().await
    }
}

/// Whether a program without work sends this request: renewals of the lease, and watches, which the API server ends every few
/// minutes.
fn is_expected_at_idle(request: &str) -> bool {
    request.ends_with(" leases") || request.starts_with("watch ")
}

/// Waits until the program uses next to no CPU. Returns since when. If it never does, the measurement goes on with a warning.
async fn until_quiet(operator: &Operator) -> Result<Instant> {
    let begun = Instant::now();
    let (mut since, mut before) = (begun, operator.cpu()?);
    while begun.elapsed() < RESTLESS {
        tokio::time::sleep(LOOK).await;
        let now = operator.cpu()?;
        if now - before >= IDLE {
            (since, before) = (Instant::now(), now);
        } else if since.elapsed() >= QUIET {
            return Ok(since);
        }
    }
    eprintln!("warning: the program still works after {RESTLESS:?}");
    Ok(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lease_and_watches_are_expected_at_idle() {
        for request in ["get leases", "update leases", "watch leases", "watch deployments"] {
            assert!(is_expected_at_idle(request), "{request}");
        }
        for request in ["patch memcacheds/status", "list deployments", "get deployments", "create events"] {
            assert!(!is_expected_at_idle(request), "{request}");
        }
    }
}
