//! Measures what the API server can take. There is no operator: this program sends what the operator sends for each Memcached, with a
//! fixed number of requests under way.
//!
//! All else is as in the herd of `measure`, with which it is to be compared: the objects exist before, this program watches them, and it
//! plays the Deployment controller and the kubelet. `writes` has the requests. The user is the operator's, because the API server's flow
//! control depends on it, and the watches are the operator's too.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cluster::{Cluster, Nodes};
use futures::AsyncReadExt;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::Request as Http,
};
use tokio::{task::JoinSet, time::timeout};

use self::writes::{Owner, Request, Writes};
use crate::{
    kind::Kind,
    machine::Machine,
    operator::{BUILT, Requests, USER, audit_length, kubeconfig},
    table::Table,
    world::World,
};

mod writes;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program whose definitions to install.
    #[arg(default_value = BUILT)]
    program: PathBuf,
    /// Number of Memcacheds.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    objects: u32,
    /// Numbers of requests that are under way at a time, separated by commas. Each is measured on its own, on a fresh cluster.
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_values = ["2", "8", "32"],
        value_parser = clap::value_parser!(u16).range(1..=1_000)
    )]
    in_flight: Vec<u16>,
}

/// The part of the best rate that a herd should reach.
const AIM: f64 = 0.9;
/// How long to wait until the watches have begun.
const SETTLE: Duration = Duration::from_secs(2);
/// The number of objects of a page of the list.
const PAGE: u32 = 500;
/// The deadline of a request, as for the operator's.
const DEADLINE: Duration = Duration::from_secs(20);
/// How often a request is sent while the API server is too busy for it, and the pause before the next attempt.
const ATTEMPTS: u32 = 20;
const AGAIN: Duration = Duration::from_millis(500);
/// The seconds after which the API server ends a watch: longer than a measurement, because another watch begins with all objects.
const WATCH: u32 = 86_400;
/// The operator's watches that have events in a herd, and their label selectors.
const WATCHES: [(&str, Option<&str>); 4] = [
    ("/apis/memcached.cache.example.com/v1/memcacheds", None),
    ("/apis/apps/v1/deployments", Some(CHILDREN)),
    ("/api/v1/services", Some(CHILDREN)),
    ("/apis/policy/v1/poddisruptionbudgets", Some(CHILDREN)),
];
const CHILDREN: &str = "app.kubernetes.io/managed-by in (memcached-operator)";

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut table = Table::of("limit");
    let measured = measure_each(args, &mut table);
    if let Ok(rates) = &measured
        && let Some(best) = best(rates)
    {
        table.add("limit", "/s", best, "objects, the best of these rates");
        table.add("herd rate at least", "/s", AIM * best, "90 % of it: the aim of `herd rate` with as many objects");
    }
    table.print(None)?; // also after a failure, with the figures until then
    measured.map(drop)
}

/// Measures with each number of requests under way. Returns the objects per second of each.
fn measure_each(args: &Args, table: &mut Table) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    for in_flight in &args.in_flight {
        let cluster = Cluster::fresh(Nodes::None)?;
        let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
        let rate = runtime.block_on(measure(args, usize::from(*in_flight), &cluster, table));
        runtime.shutdown_background();
        rates.push(rate?);
    }
    Ok(rates)
}

fn best(rates: &[f64]) -> Option<f64> {
    rates.iter().copied().max_by(f64::total_cmp)
}

/// Measures with so many requests under way. Returns the objects per second.
#[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
async fn measure(args: &Args, in_flight: usize, cluster: &Cluster, table: &mut Table) -> Result<f64> {
    let objects = args.objects as usize;
    let world = World::prepare(Kind::Memcached, cluster, &args.program).await?;
    world.create(0..objects, "", |created| eprintln!("created: {created} of {objects}")).await?;
    let load = Load::prepare(&kubeconfig(cluster)?).await?;
    ensure!(load.owners.len() == objects, "the cluster has {} of {objects} objects", load.owners.len());
    for (path, selector) in WATCHES {
        tokio::spawn(watch(load.client.clone(), path, selector));
    }
    tokio::time::sleep(SETTLE).await;

    let (offset, machine, load) = (audit_length(cluster)?, Machine::of(cluster)?, Arc::new(load));
    let (before, begun) = (machine.now(), Instant::now());
    tokio::try_join!(
        send_all(&load, in_flight),
        world.follow_rollouts(objects, |done| eprintln!("{in_flight} in flight: {done} of {objects}")),
    )?;
    let (rate, after) = (objects as f64 / begun.elapsed().as_secs_f64(), machine.now());

    let name = |what: &str| format!("{in_flight} in flight: {what}");
    table.add(&name("rate"), "/s", rate, "objects");
    for line in after.since(&before, objects) {
        table.add(&name(&line.what), line.unit, line.value, line.remark);
    }
    table.add_requests(&format!("{in_flight} in flight"), &Requests::after(USER, cluster, offset)?, objects);
    let repeated = load.repeated.load(Ordering::Relaxed);
    if repeated > 0 {
        table.add(&name("repeated"), "requests", repeated as f64, "refused or unanswered, and sent again");
    }
    Ok(rate)
}

/// What to send.
struct Load {
    client: Client,
    writes: Writes,
    owners: Vec<Owner>,
    /// The number of objects whose requests have begun.
    begun: AtomicUsize,
    /// The number of requests that were sent again.
    repeated: AtomicUsize,
}

impl Load {
    async fn prepare(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false; // as the operator's client; a repeated request is counted
        let client = Client::try_from(config)?;
        let owners = owners(&client).await?;
        Ok(Self {
            client,
            writes: Writes::new()?,
            owners,
            begun: AtomicUsize::default(),
            repeated: AtomicUsize::default(),
        })
    }

    /// Sends the requests for one object after another, until no object is left.
    async fn send(&self) -> Result<()> {
        while let Some(owner) = self.owners.get(self.begun.fetch_add(1, Ordering::Relaxed)) {
            for request in self.writes.of(owner)? {
                self.send_one(&request).await?;
            }
        }
        Ok(())
    }

    async fn send_one(&self, request: &Request) -> Result<()> {
        let mut attempt = 1;
        loop {
            let answer = timeout(DEADLINE, self.client.request_text(request.clone())).await;
            let (code, why) = match answer {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(kube::Error::Api(status))) => (Some(status.code), status.message.clone()),
                Ok(Err(error)) => (None, error.to_string()),
                Err(_) => (None, format!("no answer within {DEADLINE:?}")),
            };
            match next(code, attempt) {
                Next::Done => return Ok(()),
                Next::Again => tokio::time::sleep(AGAIN).await,
                Next::Fail => bail!("{} {}: {why}", request.method(), request.uri()),
            }
            self.repeated.fetch_add(1, Ordering::Relaxed);
            attempt += 1;
        }
    }
}

/// What follows from a request that failed.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Done,
    Again,
    Fail,
}

/// What follows from the code of an error; there is none without an answer.
fn next(code: Option<u16>, attempt: u32) -> Next {
    match code {
        // An earlier attempt had its effect, and its answer was lost.
        Some(409 | 422) if attempt > 1 => Next::Done,
        Some(code) if (400..500).contains(&code) && code != 429 => Next::Fail,
        _ if attempt >= ATTEMPTS => Next::Fail,
        _ => Next::Again,
    }
}

/// Sends all requests, with so many under way.
async fn send_all(load: &Arc<Load>, in_flight: usize) -> Result<()> {
    let mut lanes = JoinSet::new();
    for _ in 0..in_flight {
        let load = load.clone();
        lanes.spawn(async move { load.send().await });
    }
    while let Some(ended) = lanes.join_next().await {
        ended??;
    }
    Ok(())
}

/// The Memcacheds that wait.
async fn owners(client: &Client) -> Result<Vec<Owner>> {
    let objects: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &Kind::Memcached.resource());
    let (mut owners, mut params) = (Vec::new(), ListParams::default().limit(PAGE));
    loop {
        let page = objects.list_metadata(&params).await?;
        for object in page.items {
            let number = owners.len();
            owners.push(Owner::of(object.metadata, number).context("an object has no name, uid or version")?);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(owners),
        }
    }
}

/// Reads the events of a watch for ever, and drops them. They are not decoded: that would take time that the API server needs.
async fn watch(client: Client, path: &'static str, selector: Option<&'static str>) {
    let params = WatchParams::default().timeout(WATCH);
    let params = match selector {
        Some(selector) => params.labels(selector),
        None => params,
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if let Ok(request) = Http::new(path).watch(&params, "0")
            && let Ok(events) = client.request_stream(request).await
        {
            let mut events = pin!(events);
            while matches!(events.read(&mut buffer).await, Ok(1..)) {}
        }
        eprintln!("warning: a watch of {path} has ended, and begins again");
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Limit {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn numbers_in_flight_are_separated_by_commas() {
        let parse = |flags: &[&str]| Limit::try_parse_from([&["limit"][..], flags].concat());
        assert_eq!(parse(&[]).unwrap().args.in_flight, [2, 8, 32]);
        assert_eq!(parse(&["--in-flight", "1,64"]).unwrap().args.in_flight, [1, 64]);
        assert!(parse(&["--in-flight", "0"]).is_err());
    }

    #[test]
    fn limit_is_the_best_rate() {
        let is = |rates: &[f64], expected: f64| best(rates).is_some_and(|best| (best - expected).abs() < f64::EPSILON);
        assert!(is(&[40.0, 90.5, 88.0], 90.5) && is(&[7.0], 7.0));
        assert_eq!(best(&[]), None);
    }

    #[test]
    fn refused_request_fails_and_busy_api_server_gets_it_again() {
        assert_eq!(next(Some(404), 1), Next::Fail);
        assert_eq!(next(Some(409), 1), Next::Fail, "the name is taken");
        assert_eq!(next(Some(409), 2), Next::Done, "the first attempt has created the object");
        assert_eq!(next(Some(422), 2), Next::Done, "the first attempt has changed the version");
        for code in [Some(429), Some(500), Some(503), None] {
            assert_eq!(next(code, 1), Next::Again, "{code:?}");
            assert_eq!(next(code, ATTEMPTS), Next::Fail, "{code:?}");
        }
    }
}
