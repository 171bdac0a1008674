//! `cargo xtask demo`: from nothing to a cluster, the operators on it, a sample, and what a user sees.

use std::{
    io::{IsTerminal as _, Write as _},
    net::SocketAddr,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use cluster::{Cluster, Nodes, Options, progress};
use serde_json::json;

use crate::workspace;

/// Start a cluster, run the operators on it, and show what they do
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The cluster's name
    #[arg(long, default_value = "demo")]
    name: String,
    /// real runs pods and needs root; simulated only pretends. As far as you may, when not given
    #[arg(long, value_name = "real|simulated")]
    nodes: Option<Nodes>,
}

const SAMPLE: &str = "operators/memcached-operator/samples/cache_v1_memcached.yaml";
const NAME: &str = "memcached-sample";
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) fn run(Args { name, nodes }: &Args) -> Result<ExitCode> {
    let nodes = match nodes {
        Some(Nodes::None) => bail!("without nodes there are no pods to see: choose real or simulated"),
        Some(nodes) => *nodes,
        None if rustix::process::geteuid().is_root() => Nodes::Real,
        None => {
            println!("You are not root, so pods will not really run: the nodes of this demo are simulated.\n");
            Nodes::Simulated
        }
    };
    heading("A cluster");
    let cluster = Cluster::up(&Options::new(name, nodes), &progress::to_stderr)?;
    println!("Kubernetes {}, {}", cluster.version(), cluster.server());

    heading("The operators");
    // Kept until the end: outside of the cluster, the operators live as long as this process.
    let outside = match nodes {
        Nodes::Real => {
            println!("building their image (the first time takes a few minutes)");
            let installed = e2e::install(&cluster, &e2e::build_image()?)?;
            println!("running in namespace {} as {}", e2e::MANAGER_NAMESPACE, installed.image);
            None
        }
        _ => Some(run_outside(&cluster)?),
    };

    heading("A Memcached of three nodes");
    println!("{}", std::fs::read_to_string(workspace::root().join(SAMPLE))?.trim_end());
    quietly(cluster.kubectl(["apply", "--server-side", "-f"]).arg(workspace::root().join(SAMPLE)))?;
    wait_until_ready(&cluster)?;

    heading("What you see");
    show(&cluster, &["get", "memcacheds,deployments,services,pods", "--output", "wide"])?;
    if nodes == Nodes::Real {
        heading("A set and a get through a node's own address");
        let (address, answer) = set_and_get(&cluster)?;
        println!("set greeting \"hello\" on {address}: STORED\nget greeting from {address}: {answer}");
    }
    heading("What happened");
    show(&cluster, &["events", "--for", &format!("memcached/{NAME}")])?;

    println!("{}", next_steps(name, outside.is_some()));
    if let Some(mut operators) = outside {
        operators.0.wait().context("the operators cannot be waited for")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The operators as a process of this machine; it ends with the handle.
struct Outside(Child);

impl Drop for Outside {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run_outside(cluster: &Cluster) -> Result<Outside> {
    let definitions =
        json!({"apiVersion": "v1", "kind": "List", "items": controller_manager::manifests::definitions()});
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "-f", "-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("could not start kubectl")?;
    child.stdin.take().context("kubectl reads nothing")?.write_all(definitions.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "kubectl could not apply the definitions, see above");

    let mut build = workspace::cargo();
    workspace::run(build.args(["build", "--quiet", "--package", "controller-manager"]), "see above")?;
    let program = workspace::root().join("target/debug/controller-manager");
    let log = cluster.state_dir().join("controller-manager.log");
    let file = std::fs::File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
    let process = Command::new(program)
        .args(["run", "--metrics-bind-address", "0", "--health-probe-bind-address", "0", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .stdin(Stdio::null())
        .stderr(file)
        .spawn()
        .context("could not start the operators")?;
    println!("running outside of the cluster, pid {}; log: {}", process.id(), log.display());
    Ok(Outside(process))
}

fn wait_until_ready(cluster: &Cluster) -> Result<()> {
    let begun = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let jsonpath = "jsonpath={.status.readyReplicas}/{.spec.size} {.status.conditions[?(@.type==\"Ready\")].status}";
    loop {
        let output = cluster.kubectl(["get", "memcached", NAME, "--output", jsonpath]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.ends_with("True") {
            eprintln!("{}ready after {:.1} s", if terminal { "\r\x1b[K" } else { "" }, begun.elapsed().as_secs_f64());
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            show(cluster, &["describe", "memcached", NAME])?;
            bail!("{NAME} was not ready within {} s: its description above says why", PATIENCE.as_secs());
        }
        if terminal {
            eprint!("\r\x1b[K{} nodes ready, {} s", text.split(' ').next().unwrap_or("0/3"), begun.elapsed().as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn set_and_get(cluster: &Cluster) -> Result<(SocketAddr, String)> {
    let output = cluster.kubectl(["get", "memcached", NAME, "--output", "jsonpath={.status.endpoints[0]}"]).output()?;
    let address: SocketAddr =
        String::from_utf8_lossy(&output.stdout).parse().context("the status names no endpoint")?;
    let answer = std::thread::scope(|scope| {
        // A thread of its own: once it has entered the cluster's network it stays there.
        let client = scope.spawn(|| {
            cluster.enter_network()?;
            e2e::cache_client::set_and_get(address, "greeting", "hello")
        });
        client.join()
    });
    Ok((address, answer.map_err(|_| anyhow::anyhow!("the client panicked"))??))
}

fn show(cluster: &Cluster, arguments: &[&str]) -> Result<()> {
    ensure!(cluster.kubectl(arguments).status()?.success(), "kubectl failed, see above");
    Ok(())
}

fn quietly(command: &mut Command) -> Result<()> {
    let output = command.output().context("could not start kubectl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim_end());
    Ok(())
}

fn heading(text: &str) {
    let bold = std::io::stdout().is_terminal();
    let (on, off) = if bold { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    println!("\n{on}== {text}{off}");
}

fn next_steps(name: &str, outside: bool) -> String {
    let exec = format!("cargo xtask cluster exec --name {name} -- kubectl");
    let down = format!("cargo xtask cluster down --name {name}");
    let ends = if outside { "\nThe operators run as long as this command does; Ctrl-C ends them.\n" } else { "" };
    format!(
        "
== Go on
  {exec} scale memcached/{NAME} --replicas=5
  {exec} get memcacheds --watch
  {exec} delete deployment {NAME}        # it comes back
  {exec} explain memcached.spec

== Stop
  {down}
{ends}"
    )
}
