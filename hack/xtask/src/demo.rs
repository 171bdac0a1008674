//! `cargo xtask demo`: starts a cluster, runs the operators on it, applies the samples and prints what a user can observe.

mod recording;

use std::{
    fmt,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use cluster::{Cluster, Nodes, Options, progress};
use controller_manager::OPERATORS;
use installation::{LocalImage, metrics};
use serde_json::{Value, json};

use crate::workspace;

/// Start a cluster, run the operators on it, and show what they do
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The cluster's name
    #[arg(long, default_value = "demo")]
    name: String,
    /// real: runs pods, needs root; simulated: pods only pretend to run [default: real for root, otherwise simulated]
    #[arg(long, value_name = "real|simulated")]
    nodes: Option<Nodes>,
    /// Write what the demo prints, and when, to this file, as a picture that moves
    #[arg(long, value_name = "FILE.svg")]
    record: Option<PathBuf>,
}

/// The service account that reads the metrics.
const READER: &str = "prometheus";
const PATIENCE: Duration = Duration::from_mins(2);

pub(crate) fn run(Args { name, nodes, record }: &Args) -> Result<ExitCode> {
    if let Some(file) = record {
        return record_to(file, name);
    }
    let nodes = match nodes {
        Some(Nodes::None) => bail!("a cluster without nodes has no pods to show: choose real or simulated"),
        Some(nodes) => *nodes,
        None if rustix::process::geteuid().is_root() => Nodes::Real,
        None => {
            println!("You are not root, so pods will not really run: the nodes of this demo are simulated.\n");
            Nodes::Simulated
        }
    };
    let image = match nodes {
        Nodes::Real => {
            heading("The programs of the image");
            // Before the cluster: cargo and the cluster both rewrite the last line of the terminal to show their progress.
            Some(LocalImage::compile()?)
        }
        _ => None,
    };
    heading("A cluster");
    let start = || Cluster::up(&Options::new(name, nodes), &progress::to_stderr);
    let (cluster, image) = match image {
        // Packing strips and compresses on one processor, and prints nothing. The start of a cluster often waits for the network
        // or for its programs, and the link of each of these programs uses little more than one processor.
        Some(image) => {
            let (image, cluster) = beside(move || image.pack(), start)?;
            (cluster, Some(image))
        }
        None => (start()?, None),
    };
    println!("Kubernetes {}, {}", cluster.version(), cluster.server());

    heading("The operators");
    // Kept until the end of this function: dropping it ends operators that run outside of the cluster.
    let outside = match image {
        Some(image) => {
            let installed = installation::install(&cluster, &image)?;
            println!("running in namespace {} as {}", installation::MANAGER_NAMESPACE, installed.image);
            None
        }
        None => Some(run_outside(&cluster)?),
    };

    heading("A sample of each kind");
    let samples: Vec<_> = OPERATORS.iter().filter(|it| nodes == Nodes::Real || !it.sample_needs_chart()).collect();
    let manifests: Vec<&str> = samples.iter().map(|operator| operator.sample().trim()).collect();
    println!("{}", manifests.join("\n---\n"));
    let file = cluster.state_dir().join("samples.yaml");
    std::fs::write(&file, manifests.join("\n---\n")).with_context(|| format!("could not write {}", file.display()))?;
    quietly(cluster.kubectl(["apply", "--server-side", "--filename"]).arg(&file))?;
    let objects = wait_until_ready(&cluster, &file)?;

    heading("What you see");
    show(&cluster, &["get", &objects.iter().map(|it| &*it.kind).collect::<Vec<_>>().join(",")])?;
    show(&cluster, &["get", "deployments,services,poddisruptionbudgets,pods"])?;
    if nodes == Nodes::Real {
        heading("Metrics, which only authorised clients may read");
        show_metrics(&cluster)?;
    }
    heading("What happened");
    for object in &objects {
        show(&cluster, &["events", "--for", &object.to_string()])?;
    }

    let last = objects.last().context("no operator has a sample")?;
    println!("{}", next_steps(name, last, outside.is_some()));
    if let Some(mut operators) = outside {
        operators.0.wait().context("could not wait for the operators")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Does `aside` in a thread of its own while this thread does `work`. Returns after both.
fn beside<A: Send, B>(aside: impl FnOnce() -> Result<A> + Send, work: impl FnOnce() -> Result<B>) -> Result<(A, B)> {
    std::thread::scope(|scope| {
        let aside = scope.spawn(aside);
        let done = work()?;
        match aside.join() {
            Ok(aside) => Ok((aside?, done)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs the demo on real nodes in another process, and writes the picture of it.
fn record_to(file: &Path, name: &str) -> Result<ExitCode> {
    let mut demo = Command::new(std::env::current_exe().context("this program has no path")?);
    demo.args(["demo", "--name", name, "--nodes", "real"]).stdin(Stdio::null());
    let lines = recording::record(demo)?;
    std::fs::write(file, recording::svg("make demo", &lines))
        .with_context(|| format!("could not write {}", file.display()))?;
    println!("\nwrote {}", file.display());
    Ok(ExitCode::SUCCESS)
}

/// The operators as a process outside of the cluster. Dropping the handle ends it.
struct LocalProcess(Child);

impl Drop for LocalProcess {
    fn drop(&mut self) {
        // The results are ignored: the process may already have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn run_outside(cluster: &Cluster) -> Result<LocalProcess> {
    let definitions =
        json!({"apiVersion": "v1", "kind": "List", "items": controller_manager::manifests::definitions()});
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "-f", "-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().context("could not start kubectl")?;
    child.stdin.take().context("kubectl reads nothing")?.write_all(definitions.to_string().as_bytes())?;
    ensure!(child.wait()?.success(), "kubectl could not apply the definitions, see above");

    let mut build = workspace::cargo();
    // Not quiet: without `make demo`, this compiles for minutes.
    workspace::run(build.args(["build", "--workspace", "--bin", "controller-manager"]), "see above")?;
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
    Ok(LocalProcess(process))
}

/// An object that the demo shows.
#[derive(Clone, PartialEq, Eq)]
struct Shown {
    /// In lower case.
    kind: String,
    name: String,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Waits until all objects of the file are ready, and prints the progress of each. Returns the objects.
fn wait_until_ready(cluster: &Cluster, file: &Path) -> Result<Vec<Shown>> {
    let begun = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    let clear = if terminal { "\r\x1b[K" } else { "" };
    let mut done: Vec<Shown> = Vec::new();
    loop {
        let output = cluster.kubectl(["get", "--output=json", "--filename"]).arg(file).output()?;
        let list: Value = serde_json::from_slice(&output.stdout).context("kubectl printed no JSON")?;
        let objects: Vec<(Shown, String)> = list["items"].as_array().into_iter().flatten().map(readiness).collect();
        let (ready, waiting): (Vec<_>, Vec<_>) = objects.into_iter().partition(|(_, status)| status == "Ready");
        for (object, _) in ready {
            if !done.contains(&object) {
                eprintln!("{clear}{object} ready after {:.1} s", begun.elapsed().as_secs_f64());
                done.push(object);
            }
        }
        let Some((object, _)) = waiting.first() else { return Ok(done) };
        if begun.elapsed() > PATIENCE {
            show(cluster, &["describe", &object.to_string()])?;
            bail!("{object} was not ready within {} s: its description above says why", PATIENCE.as_secs());
        }
        if terminal {
            let status = |(object, status): &(Shown, String)| format!("{object}: {status}");
            let waiting = waiting.iter().map(status).collect::<Vec<_>>().join(", ");
            eprint!("{clear}{} s, {waiting}", begun.elapsed().as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The object, and `Ready` or the reason why it is not ready.
fn readiness(object: &Value) -> (Shown, String) {
    let shown = Shown {
        kind: object["kind"].as_str().unwrap_or_default().to_lowercase(),
        name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    };
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.find(|condition| condition["type"] == "Ready");
    let status = match ready {
        Some(ready) if ready["status"] == "True" => "Ready",
        Some(ready) => ready["reason"].as_str().unwrap_or_default(),
        None => "not reconciled yet",
    };
    (shown, status.to_owned())
}

fn show_metrics(cluster: &Cluster) -> Result<()> {
    if let Err(code) = metrics::scrape(cluster, None)? {
        println!("without a token: {code}");
    }
    let token = metrics::token(cluster, READER)?;
    if let Err(code) = metrics::scrape(cluster, Some(&token))? {
        println!("with a token that lacks the permission: {code}");
    }
    metrics::let_read(cluster, READER)?;
    // The proxy caches a refusal for a short time.
    let begun = Instant::now();
    let text = loop {
        match metrics::scrape(cluster, Some(&token))? {
            Ok(text) => break text,
            Err(code) => ensure!(begun.elapsed() < PATIENCE, "the reader still gets {code}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    println!("with the role {}: {} lines, among them", metrics::READERS, text.lines().count());
    let ready = |line: &&str| {
        line.starts_with("operator_resource_conditions{") && line.contains(r#"status="True",type="Ready""#)
    };
    text.lines().filter(ready).for_each(|line| println!("  {line}"));
    Ok(())
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

fn next_steps(name: &str, object: &Shown, outside: bool) -> String {
    let exec = format!("cargo xtask cluster exec --name {name} -- kubectl");
    let kind = &object.kind;
    let down = format!("cargo xtask cluster down --name {name}");
    let ends = if outside { "\nThe operators run as long as this command does; Ctrl-C ends them.\n" } else { "" };
    format!(
        "
== Go on
  {exec} get {kind} --watch
  {exec} edit {object}
  {exec} describe {object}
  {exec} explain {kind}.spec
  {exec} delete deployments --all        # they come back

== Stop
  {down}
{ends}"
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;

    use chart::helm::succeeded;

    use super::*;

    const LIMIT: Duration = Duration::from_mins(1);

    /// Features depend on the packages that a call selects. So a second call with other packages could compile crates again.
    #[test]
    fn make_demo_compiles_all_its_programs_in_one_call_of_cargo() {
        let mut make = workspace::command("make");
        // Those of a `make test`, which may have started this.
        for name in ["MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES"] {
            make.env_remove(name);
        }
        let printed = succeeded(make.args(["--dry-run", "demo"])).unwrap();
        let (first, rest) = printed.split_once('\n').unwrap();
        assert!(first.starts_with("echo "), "the first line appears at once: {printed}");
        let calls: Vec<_> = rest.lines().filter(|line| line.starts_with("cargo ")).collect();
        assert_eq!(calls.len(), 2, "{printed}");
        assert!(calls[0].starts_with("cargo build --locked --workspace --bin "), "{printed}");
        let compiled: BTreeSet<_> = calls[0].split(" --bin ").skip(1).collect();
        let needed: BTreeSet<_> =
            images::operator::PROGRAMS.iter().copied().chain(["cluster-supervisor", "xtask"]).collect();
        assert_eq!(compiled, needed);
        // It compiles nothing: `xtask_shares_its_dependencies_with_the_tests` checks that the features are the same.
        assert_eq!(calls[1], "cargo xtask demo");
        let tools: Vec<_> = rest.split(" for tool in ").nth(1).unwrap().split(';').next().unwrap().split(' ').collect();
        assert!(tools.contains(&"kubernetes"), "{tools:?}");
        for tool in tools {
            assert!(workspace::root().join("hack/tools").join(tool).join("go.mod").is_file(), "{tool}");
        }
    }

    #[test]
    fn image_is_packed_while_the_cluster_starts() {
        let (to_work, of_aside) = mpsc::channel();
        let (to_aside, of_work) = mpsc::channel();
        let aside = move || -> Result<&str> {
            to_work.send("packs")?;
            Ok(of_work.recv_timeout(LIMIT)?)
        };
        let work = || -> Result<&str> {
            to_aside.send("starts")?;
            Ok(of_aside.recv_timeout(LIMIT)?)
        };
        assert_eq!(beside(aside, work).unwrap(), ("starts", "packs"));
    }

    #[test]
    fn failure_of_either_side_is_reported() {
        let fails = || -> Result<()> { bail!("no disk space") };
        let works = || -> Result<()> { Ok(()) };
        assert_eq!(beside(fails, works).unwrap_err().to_string(), "no disk space");
        assert_eq!(beside(works, fails).unwrap_err().to_string(), "no disk space");
    }
}
