//! Runs the program for a long time under random faults. Checks that its memory does not grow, and that in the end all objects
//! have converged.
//!
//! Reading order: [`fleet`] draws the users' changes; [`faults`] and [`outages`] draw what fails; [`convergence`] and [`verdict`]
//! decide whether the run has passed. These modules are pure. `load` and this file carry out what they decide.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use cluster::{Cluster, Nodes};
use fastrand::Rng;
use fault_plan::Plan;
use fault_proxy::{FaultProxy, Upstream};
use kube::Api;
use tokio::time::{Instant, sleep, timeout};

use self::{
    convergence::differences,
    faults::Rates,
    fleet::Fleet,
    load::{KINDS, Load, NAMESPACE, Pace},
    report::Report,
    tally::{Tally, total},
    verdict::{End, Reading, failures},
};
use crate::{
    kind::Kind,
    kubelet,
    operator::{BUILT, Operator, kubeconfig},
    world,
};

mod convergence;
pub(crate) mod exposition;
mod faults;
mod fleet;
mod load;
mod outages;
mod report;
mod tally;
mod trend;
mod verdict;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program to test.
    #[arg(default_value = BUILT)]
    program: PathBuf,
    /// Minutes of faults; a nightly run takes 120.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
    /// Seed of all random events and of their order; their timing still varies. Default: a fresh seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Maximum number of objects at a time.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    objects: u32,
    /// Number of changes per second.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    changes: u32,
    /// Number of requests in a thousand that get a fault; writes get faults twice as often.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=200))]
    faults: u32,
}

/// The interval between two readings of the process.
const READING: Duration = Duration::from_secs(2);
/// The interval between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(30);
/// The interval after which stalled requests are released, since no real connection is silent for ever.
const RELEASE: Duration = Duration::from_secs(3);
/// The interval at which to check whether the present page of faults is used up.
const TURN: Duration = Duration::from_millis(200);
/// The time limit for convergence. The longest back-off is five minutes, and takes ten minutes of errors alone to reach.
const PATIENCE: Duration = Duration::from_mins(5);
/// How long the operator must write nothing. This is longer than any write that it delays on purpose.
const QUIET: Duration = Duration::from_secs(10);
/// How long the process may take to end. Its own limit is 30 s.
const END: Duration = Duration::from_secs(40);

pub(crate) fn run(args: &Args) -> Result<()> {
    let cluster = Arc::new(Cluster::fresh(Nodes::None)?);
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    let folder = tempfile::Builder::new().prefix("soak-").tempdir()?;
    let log = folder.path().join("controller-manager.log");
    let soaked = runtime.block_on(soak(args, &cluster, &log));
    if soaked.is_err() {
        let folder = folder.keep();
        eprintln!("log of the program: {}", folder.join("controller-manager.log").display());
    }
    soaked
}

async fn soak(args: &Args, cluster: &Arc<Cluster>, log: &Path) -> Result<()> {
    let seed = args.seed.unwrap_or_else(|| Rng::new().u64(..1_000_000));
    eprintln!("seed {seed}, {} minutes", args.minutes);
    // Each task has its own random numbers, so that none depends on the speed of another.
    let mut seeds = Rng::with_seed(seed);
    let [changes, faults, outages] = std::array::from_fn(|_| seeds.fork());

    let client = world::install(cluster, &args.program).await?;
    let load = Load::prepare(client.clone()).await?;
    let kubelet = tokio::spawn(kubelet::run(Api::namespaced(client, NAMESPACE)));
    let upstream = Upstream::cluster(&kubeconfig(cluster)?).await?;
    let proxy = FaultProxy::start(upstream, &Plan::default()).await?;
    let said = Stdio::from(std::fs::File::create(log)?);
    let names = KINDS.map(Kind::operator).join(",");
    let mut operator = Operator::start_with(&args.program, &proxy.kubeconfig(), &names, &[], said)?;
    operator.until_ready().await?;

    let (tally, mut fleet, mut readings) = (Tally::default(), Fleet::default(), Vec::new());
    let begun = Instant::now();
    let end = begun + Duration::from_secs(args.minutes * 60);
    let pace = Pace { objects: args.objects as usize, changes: f64::from(args.changes) };
    let rates = Rates::of(f64::from(args.faults) / 1_000.0);
    let ran = tokio::try_join!(
        load.run(&mut fleet, changes, pace, end, &tally),
        outages::happen(cluster, outages, end, &tally),
        misbehave(&proxy, faults, rates, end, &tally),
        read(&mut operator, begun, end, &tally, &mut readings),
    );
    let converged = async {
        ran?;
        outages::over(cluster).await?;
        eprintln!("no more faults; waiting until everything has converged");
        converge(&load, &fleet, &proxy, &mut operator, &tally).await
    };
    // After a failure too, the readings until then are worth a table.
    let given_up = |error| End { given_up: Some(format!("{error:#}")), ..End::default() };
    let mut verdict = converged.await.unwrap_or_else(given_up);
    let told = metrics(&operator).await.unwrap_or_default();
    verdict.has_exited = operator.ended()?.is_some();
    verdict.terminated = terminate(&mut operator).await?;
    kubelet.abort();
    let said = std::fs::read_to_string(log)?;
    let lines = |words: &str| said.lines().filter(|line| line.contains(words)).count();
    verdict.terms = lines("Became leader");
    // The program catches panics of reconciles and counts them itself.
    let caught = exposition::sum(&told, "controller_runtime_reconcile_panics_total");
    verdict.panics = f64::from(u32::try_from(lines("panicked at"))?).max(caught);

    let failures = failures(&readings, &verdict);
    let objects = fleet.objects().len();
    let report =
        Report { seed, objects, readings: &readings, tally: &tally, page: &told, end: &verdict, failures: &failures };
    print(&report.render())?;
    match failures.len() {
        0 => Ok(()),
        count => bail!("{count} checks failed; --seed {seed} repeats the same events"),
    }
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn print(text: &str) -> Result<()> {
    print!("{text}");
    Ok(std::io::Write::flush(&mut std::io::stdout())?)
}

async fn metrics(operator: &Operator) -> Result<String> {
    timeout(END, operator.metrics()).await.context("the program does not answer")?
}

/// How long the process took to end after SIGTERM; `None` if it did not end in time.
async fn terminate(operator: &mut Operator) -> Result<Option<Duration>> {
    if operator.ended()?.is_some() {
        return Ok(None); // another process may have its id by now
    }
    let begun = Instant::now();
    let in_time = timeout(END, operator.terminate()).await.is_ok_and(|ended| ended.is_ok());
    let in_order = operator.ended()?.is_some_and(|status| status.success());
    Ok((in_time && in_order).then(|| begun.elapsed()))
}

/// Injects faults between the operator and its API server until `end`.
async fn misbehave(proxy: &FaultProxy, mut rng: Rng, rates: Rates, end: Instant, tally: &Tally) -> Result<()> {
    while Instant::now() < end {
        proxy.set_plan(&faults::page(&mut rng, rates));
        let (mut requests, mut events, mut released) = (0, 0, Instant::now());
        while requests.max(events) < faults::PAGE as usize && Instant::now() < end {
            sleep(TURN).await;
            let trace = proxy.drain();
            tally.trace(&trace);
            requests += trace.exchanges.len();
            events += trace.frames.len();
            if released.elapsed() >= RELEASE {
                proxy.release();
                released = Instant::now();
            }
        }
    }
    proxy.set_plan(&Plan::default());
    proxy.release();
    Ok(())
}

/// Reads the figures of the process until `end`.
///
/// # Errors
///
/// If the process ends by itself.
async fn read(
    operator: &mut Operator,
    begun: Instant,
    end: Instant,
    tally: &Tally,
    readings: &mut Vec<Reading>,
) -> Result<()> {
    let mut told = Instant::now();
    while Instant::now() < end {
        sleep(READING).await;
        is_running(operator)?;
        let memory = operator.memory()?;
        let reading = Reading {
            hours: begun.elapsed().as_secs_f64() / 3_600.0,
            rss: memory.rss(),
            heap: memory.anonymous,
            descriptors: f64::from(u32::try_from(operator.descriptors()?)?),
            threads: operator.threads()?,
        };
        readings.push(reading);
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let page = metrics(operator).await?;
            eprintln!(
                "{:4.1} min: {:.2} MiB, {} descriptors, {} threads; {} changes, {} faults, {} outages; {} reconciles, \
                 {} errors, {} in queues",
                reading.hours * 60.0,
                reading.rss,
                reading.descriptors,
                reading.threads,
                total(&tally.changes),
                total(&tally.faults),
                total(&tally.outages),
                exposition::sum(&page, "controller_runtime_reconcile_total"),
                exposition::sum(&page, "controller_runtime_reconcile_errors_total"),
                exposition::sum(&page, "workqueue_depth"),
            );
        }
    }
    Ok(())
}

fn is_running(operator: &mut Operator) -> Result<()> {
    match operator.ended()? {
        Some(status) => bail!("the program ended by itself: {status}"),
        None => Ok(()),
    }
}

/// Waits until all objects have converged and the operator writes nothing; both waits have a limit.
async fn converge(
    load: &Load,
    fleet: &Fleet,
    proxy: &FaultProxy,
    operator: &mut Operator,
    tally: &Tally,
) -> Result<End> {
    let (begun, mut end) = (Instant::now(), End::default());
    let (mut last_write, mut told) = (begun, begun);
    while begun.elapsed() < PATIENCE {
        is_running(operator)?;
        proxy.release(); // requests may have stalled just before the end
        end.differences = match load.snapshot().await {
            Ok(snapshot) => differences(fleet, &snapshot),
            Err(error) => vec![format!("could not read the objects: {error:#}")],
        };
        end.converged = if end.differences.is_empty() { end.converged.or(Some(begun.elapsed())) } else { None };
        let trace = proxy.drain();
        tally.trace(&trace);
        // Writes of leases continue for ever, and events only report earlier writes.
        let writes = trace.writes().filter(|it| !matches!(it.request.resource.as_str(), "leases" | "events"));
        last_write = writes.map(|it| it.at).fold(last_write, Instant::max);
        end.quiet = (last_write.elapsed() >= QUIET).then(|| last_write - begun);
        if end.converged.is_some() && end.quiet.is_some() {
            break;
        }
        if told.elapsed() >= PROGRESS / 3 {
            told = Instant::now();
            let first = end.differences.first().map_or("converged, but it still writes", String::as_str);
            eprintln!("{:3.0} s: {} differences: {first}", begun.elapsed().as_secs_f64(), end.differences.len());
        }
        sleep(Duration::from_millis(500)).await;
    }
    Ok(end)
}
