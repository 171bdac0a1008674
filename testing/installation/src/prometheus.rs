//! Runs a real Prometheus from Debian's package, without installing it.

use std::{
    fs::{self, File},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use chart::helm::succeeded;
use cluster::{Cluster, Port};
use images::debian::Debian;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::MANAGER_NAMESPACE;

/// A command that runs `promtool`, which checks and tests rules.
pub fn promtool() -> Result<Command> {
    Ok(Command::new(program("promtool")?))
}

fn program(name: &str) -> Result<PathBuf> {
    Ok(Debian::shared()?.files("prometheus")?.join("usr/bin").join(name))
}

/// A Prometheus that scrapes the operators' pods every second, until it is dropped.
#[derive(Debug)]
pub struct Prometheus {
    cluster: Arc<Cluster>,
    process: Child,
    address: String,
    /// The reserved port, so that no other program gets it.
    _port: Port,
    folder: TempDir,
}

/// An instant value with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The labels as Prometheus returns them, including `__name__` if there is one.
    pub labels: Value,
    /// The value. It may be NaN, for example for a quantile without data.
    pub value: f64,
}

impl Prometheus {
    /// Starts Prometheus in the network of `cluster` with these alerting rules (YAML of `groups`). It sends `token` to its
    /// targets.
    pub fn start(cluster: &Arc<Cluster>, token: &str, rules: &Value) -> Result<Self> {
        let folder = TempDir::with_prefix("prometheus-").context("could not make a folder")?;
        let path = |name: &str| folder.path().join(name);
        fs::write(path("token"), token)?;
        fs::write(path("rules.yaml"), rules.to_string())?;
        fs::write(path("config.yaml"), configuration(cluster, folder.path())?.to_string())?;
        let port = cluster.in_network(|| Ok(Port::reserve()?))?;
        let address = format!("127.0.0.1:{}", port.number());
        let log = File::create(path("log"))?;
        let process = cluster
            .inside(program("prometheus")?)
            .arg(format!("--config.file={}", path("config.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("could not start Prometheus")?;
        let mut prometheus = Self { cluster: Arc::clone(cluster), process, address, _port: port, folder };
        let deadline = Instant::now() + Duration::from_secs(30);
        while prometheus.query("vector(1)").is_err() {
            if prometheus.process.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("Prometheus does not answer: {}", fs::read_to_string(prometheus.folder.path().join("log"))?);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(prometheus)
    }

    /// The present value of the expression. The error is Prometheus' own, for example for an invalid expression.
    pub fn query(&self, expression: &str) -> Result<Vec<Sample>> {
        let mut query = self.cluster.inside(program("promtool")?);
        query.args(["query", "instant", "--format=json"]).arg(format!("http://{}", self.address)).arg(expression);
        let answer: Value = serde_json::from_str(&succeeded(&mut query)?).context("not JSON")?;
        answer.as_array().into_iter().flatten().map(sample).collect()
    }
}

fn sample(answer: &Value) -> Result<Sample> {
    let value = answer["value"][1].as_str().context("no value")?;
    Ok(Sample { labels: answer["metric"].clone(), value: value.parse().context("not a number")? })
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Killing is safe, because its data are not needed any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The scrape configuration, like that of the chart's `PodMonitor`: each pod by its port `metrics`, with the labels that
/// dashboards expect. The list of pods is fixed, because Debian's Prometheus cannot watch them.
fn configuration(cluster: &Cluster, folder: &Path) -> Result<Value> {
    let mut list = cluster.kubectl(["get", "pods", "--namespace", MANAGER_NAMESPACE, "--output=json"]);
    let pods: Value = serde_json::from_str(&succeeded(&mut list)?)?;
    let targets: Vec<Value> = pods["items"].as_array().into_iter().flatten().filter_map(target).collect();
    Ok(json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [folder.join("rules.yaml")],
        "scrape_configs": [{
            "job_name": "operators",
            "scheme": "https",
            "tls_config": {"insecure_skip_verify": true},
            "authorization": {"credentials_file": folder.join("token")},
            "honor_labels": true,
            "static_configs": targets,
        }],
    }))
}

fn target(pod: &Value) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array()?;
    let port =
        containers.iter().filter_map(|it| it["ports"].as_array()).flatten().find(|it| it["name"] == "metrics")?;
    let ip: IpAddr = pod["status"]["podIP"].as_str()?.parse().ok()?;
    let address = SocketAddr::new(ip, u16::try_from(port["containerPort"].as_u64()?).ok()?).to_string();
    Some(json!({
        "targets": [address],
        "labels": {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]},
    }))
}
