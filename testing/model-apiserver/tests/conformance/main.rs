//! Conformance: sends the same requests to the model and to a real API server, and compares the answers.
//!
//! `MODEL_CASES` sets the number of request sequences (default 40; `all` for at least 20,000 requests). `MODEL_SEED` sets the
//! first seed (default random). Half of the sequences use the chart's CRDs, half use built-in kinds and widgets.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod defined;
mod generate;
mod normal;
mod server;
mod single;
mod step;
mod values;

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use cluster::{Cluster, Nodes};
use futures::{StreamExt, stream};
use kube::{
    Client,
    config::{KubeConfigOptions, Kubeconfig},
};
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::{
    defined::{Defined, Definition},
    generate::Generator,
    normal::Names,
    server::Server,
    step::{Requests, Step, first},
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const STEPS: usize = 30;
/// The minimum number of requests for `MODEL_CASES=all`.
const ALL: u64 = 20_000;
/// The number of concurrent sequences. The real server answers many clients faster than one.
const AT_ONCE: usize = 4;
/// Numbers the CRD groups, so that each test has its own CRDs.
static COUNT: AtomicU32 = AtomicU32::new(0);

fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |text| text.parse().unwrap())
}

async fn real(cluster: &Cluster) -> Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A model and a real server with the same CRDs.
struct Pair {
    group: String,
    definitions: Vec<Definition>,
    model: Server,
    real: Server,
    server: Model,
    cluster: Cluster,
}

impl Pair {
    async fn start(definitions: fn(&str) -> Vec<Definition>) -> Option<Self> {
        let started = tokio::task::spawn_blocking(|| cluster::or_skip(Cluster::shared(Nodes::None)));
        let cluster = started.await.unwrap()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = format!("conf-{}-{count}.example.com", std::process::id());
        let server = Model::new();
        let (model, real) = (Server::new(server.client()), Server::new(real(&cluster).await));
        let pair = Self { definitions: definitions(&group), group, model, real, server, cluster };
        for definition in pair.installed() {
            pair.server.install(&definition);
            let (code, body) = pair.real.send(&Step::new("POST", DEFINITIONS).body(definition)).await;
            assert_eq!(code, 201, "{body}");
        }
        for definition in pair.installed() {
            pair.wait_for(&definition["spec"]).await;
        }
        Some(pair)
    }

    /// The CRDs of widgets and of the chart, which both servers have.
    fn installed(&self) -> Vec<Value> {
        let widgets = single::definition(&self.group);
        std::iter::once(widgets).chain(self.definitions.iter().map(|it| it.definition.clone())).collect()
    }

    async fn wait_for(&self, spec: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let version = text(&spec["versions"][0]["name"]);
        let list = format!("/apis/{}/{version}/{}", text(&spec["group"]), text(&spec["names"]["plural"]));
        for _ in 0..400 {
            if self.real.send(&Step::new("GET", &list)).await.0 == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{list} is not served on {}", self.cluster.name());
    }

    async fn namespace(&self, name: &str) {
        self.server.add_namespace(name);
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let (code, body) = self.real.send(&Step::new("POST", "/api/v1/namespaces").body(body)).await;
        assert_eq!(code, 201, "{body}");
    }

    async fn end(self) {
        for definition in self.installed() {
            let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
            self.real.send(&Step::new("DELETE", &path)).await;
        }
        drop(self.cluster);
    }

    /// Sends one step to both servers. Returns the model's status code, and the difference if there is one.
    async fn step(&self, names: &mut (Names, Names), step: &Step) -> (u16, Option<String>) {
        let (model, real) = tokio::join!(self.model.run(&mut names.0, step), self.real.run(&mut names.1, step));
        (model.0, (model != real).then(|| difference(step, &model, &real)))
    }

    /// Runs one sequence in its own namespace up to the first difference: for built-in kinds and widgets, or for a CRD.
    async fn case(&self, case: u64) -> Case {
        let namespace = format!("conf-{}-{case}", std::process::id());
        self.namespace(&namespace).await;
        let mut names = (Names::default(), Names::default());
        let which = usize::try_from(case / 2).unwrap() % self.definitions.len();
        let mut requests: Box<dyn Requests> = match case % 2 {
            0 => Box::new(Generator::new(case, &namespace, &self.group)),
            _ => Box::new(Defined::new(case, &namespace, &self.definitions[which])),
        };
        let mut out = Case::default();
        let beginning = std::iter::once(first(&namespace)).chain((0..STEPS).map(|_| requests.step()));
        let steps: Vec<Step> = beginning.collect();
        for step in steps.into_iter().chain(requests.watches()) {
            let (code, difference) = self.step(&mut names, &step).await;
            out.requests += 1;
            out.good += usize::from(code < 300);
            if let Some(difference) = difference {
                out.difference = Some(format!("case {case}, request {}: {difference}", out.requests));
                break;
            }
        }
        if out.difference.is_none() && names.0.order() != names.1.order() {
            out.difference = Some(format!("case {case}: versions are in another order"));
        }
        self.real.send(&Step::new("DELETE", &format!("/api/v1/namespaces/{namespace}"))).await;
        out
    }
}

/// The result of a sequence.
#[derive(Default)]
struct Case {
    requests: usize,
    good: usize,
    difference: Option<String>,
}

fn difference(step: &Step, model: &(u16, Value), real: &(u16, Value)) -> String {
    let mut lines = Vec::new();
    if model.0 != real.0 {
        lines.push(format!("  code: model {}, real {}", model.0, real.0));
    }
    compare("", &model.1, &real.1, &mut lines);
    lines.truncate(12);
    format!("{step}\n{}", lines.join("\n"))
}

fn compare(at: &str, model: &Value, real: &Value, lines: &mut Vec<String>) {
    match (model, real) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let value = |map: &serde_json::Map<String, Value>| map.get(name).cloned();
                match (value(a), value(b)) {
                    (Some(a), Some(b)) => compare(&format!("{at}.{name}"), &a, &b, lines),
                    (a, b) => lines.push(format!("  {at}.{name}: model {}, real {}", show(a), show(b))),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}[{index}]"), a, b, lines);
            }
        }
        (a, b) if a != b => lines.push(format!("  {at}: model {a}, real {b}")),
        _ => {}
    }
}

fn show(value: Option<Value>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_answers_as_the_real_server() {
    let wants_all = std::env::var("MODEL_CASES").is_ok_and(|text| text == "all");
    let Some(pair) = Pair::start(defined::of_the_chart).await else {
        assert!(!wants_all, "MODEL_CASES=all needs a cluster to compare with");
        return;
    };
    let cases = if wants_all { ALL.div_ceil(STEPS as u64) } else { from_environment("MODEL_CASES", 40) };
    let seed = from_environment("MODEL_SEED", fastrand::u64(..1_000_000_000));
    let all = stream::iter(seed..seed + cases).map(|case| pair.case(case)).buffer_unordered(AT_ONCE);
    let all: Vec<Case> = all.collect().await;
    pair.end().await;
    let sum = |of: fn(&Case) -> usize| all.iter().map(of).sum::<usize>();
    let (requests, good) = (sum(|case| case.requests), sum(|case| case.good));
    let differences: Vec<&String> = all.iter().filter_map(|case| case.difference.as_ref()).collect();
    let agreement = match differences.len() {
        0 => "all agree".to_owned(),
        count => format!("{count} sequences end with a difference"),
    };
    eprintln!("conformance: {} requests, {agreement} (seed {seed})", thousands(requests));
    let shown: Vec<&str> = differences.iter().take(10).map(|it| it.as_str()).collect();
    assert!(differences.is_empty(), "{}", shown.join("\n"));
    assert!(good * 5 > requests * 2, "only {good} of {requests} requests succeed, too few for a comparison");
    assert!(!wants_all || requests as u64 >= ALL, "{requests} requests are too few");
}

/// Writes a number with thousands separators.
fn thousands(number: usize) -> String {
    if number < 1_000 { number.to_string() } else { format!("{},{:03}", thousands(number / 1_000), number % 1_000) }
}

/// Compares the single requests that random sequences do not send.
#[tokio::test(flavor = "multi_thread")]
async fn the_model_answers_single_requests_as_the_real_server() {
    let Some(pair) = Pair::start(|_| Vec::new()).await else { return };
    let namespace = format!("single-{}", std::process::id());
    pair.namespace(&namespace).await;
    let mut names = (Names::default(), Names::default());
    let mut differences = Vec::new();
    for step in single::questions(&namespace, &pair.group) {
        differences.extend(pair.step(&mut names, &step).await.1);
    }
    pair.real.send(&Step::new("DELETE", &format!("/api/v1/namespaces/{namespace}"))).await;
    pair.end().await;
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
