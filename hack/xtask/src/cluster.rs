//! `cargo xtask cluster`: real Kubernetes clusters on this machine, from nothing but Go and Rust sources.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use cluster::{
    Cluster, Controllers, Nodes, Options, PartState, Phase, Restore, Snapshot, Summary, TOOLS, Tool, Tools, progress,
    tools,
};

/// Bring up real Kubernetes clusters on this machine, and take them down.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster, unless it runs, and print how to use it
    ///
    /// The first time, its programs are built from the Go modules that hack/tools pins. That takes a quarter of an hour
    /// on a small machine; an interrupted build goes on where it was.
    Up {
        #[command(flatten)]
        name: Name,
        /// What stands behind the API server
        ///
        /// none: nothing; etcd, the API server and a few controllers, in three seconds and without root.
        /// simulated: nodes and pods that only pretend to run; for scale, and without root.
        /// real: a node that runs pods, in namespaces of its own; needs root.
        #[arg(long, default_value = "real", value_name = "real|simulated|none")]
        nodes: Nodes,
        /// The Kubernetes version; it must be one that hack/tools pins
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
        /// With --nodes none: run every controller, not only garbage collection, namespaces and service accounts
        #[arg(long)]
        all_controllers: bool,
        /// With --nodes simulated: how many nodes pretend
        #[arg(long, default_value_t = 5, value_name = "N")]
        simulated_nodes: u16,
        /// End the cluster after so many minutes in which nobody has used a handle to it
        #[arg(long, value_name = "MINUTES")]
        idle: Option<u64>,
    },
    /// End a cluster and everything that it has left behind; also after a crash
    Down {
        #[command(flatten)]
        name: Name,
        /// Every cluster of this user, those that tests share included
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Show one cluster and the health of its parts
    Status {
        #[command(flatten)]
        name: Name,
    },
    /// List the clusters
    List,
    /// Run a command in the network of a cluster, with KUBECONFIG and PATH set
    ///
    /// Only the network is entered. In that of a real cluster, pods and Services can be reached, and nothing else.
    /// kubectl is there, and helm and helm3 once `cargo xtask cluster tools` has built them.
    Exec {
        #[command(flatten)]
        name: Name,
        /// The command and its arguments, after `--`
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Copy what the etcd of a cluster holds, to restore it later
    ///
    /// etcd is paused for the copy, some tenths of a second; nothing is restarted. The copy is kept in the cluster's folder
    /// and goes with the cluster. `restore` without the name of a snapshot lists what there is.
    Snapshot {
        #[command(flatten)]
        name: Name,
        /// What to call the snapshot, such as "before"
        snapshot: String,
    },
    /// Put the etcd of a cluster back to a snapshot, as an administrator restores a backup
    ///
    /// The control plane stops, the API server and etcd last; the data are replaced; etcd, the API server and the others
    /// start again. Pods live on. Resource versions go back: clients that are connected may wait for ever for versions that
    /// they have seen already. That is what etcd does by default; --bump-revision is what its documentation advises.
    Restore {
        #[command(flatten)]
        name: Name,
        /// The snapshot's name; without one, the snapshots are listed
        snapshot: Option<String>,
        /// Raise the revision by so much, more than there were changes since, and mark what is below as compacted
        ///
        /// Resource versions then go forward, and watches from before are refused as too old. Builds etcdutl the first time.
        #[arg(long, value_name = "N", requires = "snapshot", value_parser = clap::value_parser!(u64).range(1..))]
        bump_revision: Option<u64>,
    },
    /// Build the programs that clusters and their tests use, unless they are there, and print where they are
    Tools {
        /// Which of them, such as helm; all if none is named
        tools: Vec<String>,
    },
}

#[derive(clap::Args)]
struct Name {
    /// The cluster's name; several can run side by side
    #[arg(long, default_value = "dev")]
    name: String,
}

pub(crate) fn run(Args { command }: Args) -> Result<ExitCode> {
    match command {
        Command::Up { name: Name { name }, nodes, kubernetes, all_controllers, simulated_nodes, idle } => {
            check_version(kubernetes.as_deref())?;
            let controllers = if all_controllers { Controllers::All } else { Controllers::Reduced };
            let idle = idle.map(|minutes| Duration::from_secs(60 * minutes));
            up(&Options { controllers, simulated: simulated_nodes, idle, ..Options::new(name, nodes) })?;
        }
        Command::Down { name: Name { name }, all } => down(if all { all_names() } else { vec![name] })?,
        Command::Status { name: Name { name } } => return Ok(status(&cluster::summary(&name)?)),
        Command::List => list(&cluster::list()),
        Command::Exec { name: Name { name }, command } => return exec(&name, &command),
        Command::Snapshot { name: Name { name }, snapshot } => take_snapshot(&name, &snapshot)?,
        Command::Restore { name: Name { name }, snapshot: None, .. } => list_snapshots(&name)?,
        Command::Restore { name: Name { name }, snapshot: Some(snapshot), bump_revision } => {
            restore(&name, &snapshot, Restore { bump_revision })?;
        }
        Command::Tools { tools } => build_tools(&tools)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(options: &Options) -> Result<()> {
    let cluster = Cluster::up(options, &progress::to_stderr)?;
    let (name, nodes, version) = (cluster.name(), cluster.nodes(), cluster.version());
    println!("cluster {name} is up: Kubernetes {version}, nodes {nodes}, {}", cluster.server());
    println!();
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("  cargo xtask cluster exec --name {name} -- kubectl get namespaces");
    println!("  cargo xtask cluster down --name {name}");
    Ok(())
}

fn down(names: Vec<String>) -> Result<()> {
    for name in names {
        let existed = cluster::down(&name)?;
        println!("{}", if existed { format!("cluster {name} is down") } else { format!("there is no cluster {name}") });
    }
    Ok(())
}

fn all_names() -> Vec<String> {
    cluster::list().into_iter().map(|summary| summary.name).collect()
}

/// Fails when the cluster is not well, so that scripts can ask.
fn status(summary: &Summary) -> ExitCode {
    println!("cluster     {}", summary.name);
    println!("state       {}", state(summary));
    println!("nodes       {}", summary.nodes);
    println!("kubernetes  {}", summary.version);
    println!("age         {}", age(summary.age));
    println!("pid         {}", pid(summary));
    println!("kubeconfig  {}", summary.kubeconfig.display());
    println!("logs        {}", summary.folder.join("log").display());
    if let Some(status) = &summary.status {
        println!("users       {}", status.users.saturating_sub(1)); // not counting us
        println!();
        let rows = status.parts.iter().map(|part| {
            let pid = part.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            vec![part.name.clone(), part_state(part.state).to_owned(), part.restarts.to_string(), pid]
        });
        table(["PART", "STATE", "RESTARTS", "PID"], rows.collect());
    }
    if summary.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list(summaries: &[Summary]) {
    let rows = summaries.iter().map(|summary| {
        let kubeconfig = summary.kubeconfig.display().to_string();
        let (nodes, version) = (summary.nodes.to_string(), summary.version.clone());
        vec![summary.name.clone(), state(summary), nodes, version, age(summary.age), pid(summary), kubeconfig]
    });
    table(["NAME", "STATE", "NODES", "KUBERNETES", "AGE", "PID", "KUBECONFIG"], rows.collect());
}

fn exec(name: &str, command: &[OsString]) -> Result<ExitCode> {
    let cluster = Cluster::open(name)?;
    let (program, args) = command.split_first().context("which command?")?;
    let helm = Tools::locate(&[Tool::Helm, Tool::Helm3])?; // if someone has built it
    let path = cluster.tools().path(Some(helm.path(std::env::var_os("PATH"))));
    let status = cluster.exec(program).args(args).env("PATH", path).status();
    let status = status.with_context(|| format!("could not start {}", program.display()))?;
    // As a shell says it.
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn take_snapshot(cluster: &str, name: &str) -> Result<()> {
    let snapshot = Cluster::open(cluster)?.snapshot(name)?;
    println!("snapshot {name} of the cluster {cluster}: {}", snapshot.data().display());
    if let Some(version) = snapshot.resource_version() {
        println!("  taken at resource version {version}");
    }
    println!("  cargo xtask cluster restore --name {cluster} {name}");
    Ok(())
}

fn list_snapshots(cluster: &str) -> Result<()> {
    let rows = Cluster::open(cluster)?.snapshots()?.into_iter().map(|snapshot| {
        let version = snapshot.resource_version().map_or_else(|| "-".to_owned(), |version| version.to_string());
        vec![snapshot.name().to_owned(), age(snapshot.taken().elapsed().unwrap_or_default()), version]
    });
    table(["SNAPSHOT", "AGE", "RESOURCE VERSION"], rows.collect());
    Ok(())
}

fn restore(cluster: &str, name: &str, how: Restore) -> Result<()> {
    let handle = Cluster::open(cluster)?;
    let all = handle.snapshots()?;
    let Some(snapshot) = all.iter().find(|snapshot| snapshot.name() == name) else {
        let names: Vec<_> = all.iter().map(Snapshot::name).collect();
        match names.as_slice() {
            [] => {
                bail!("the cluster {cluster} has no snapshots: `cargo xtask cluster snapshot --name {cluster} {name}`")
            }
            _ => bail!("the cluster {cluster} has no snapshot {name}; it has {}", names.join(", ")),
        }
    };
    let restored = handle.restore_with(snapshot, &how, &progress::to_stderr)?;
    let before = restored.before.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    println!("cluster {cluster} is as of snapshot {name}: resource version {}, before {before}", restored.after);
    Ok(())
}

fn build_tools(names: &[String]) -> Result<()> {
    let find = |name: &String| {
        let tool = TOOLS.into_iter().find(|tool| tool.name() == name);
        tool.with_context(|| format!("there is no tool {name}; there are {}", TOOLS.map(Tool::name).join(", ")))
    };
    let wanted: Vec<_> = names.iter().map(find).collect::<Result<_>>()?;
    let wanted = if wanted.is_empty() { TOOLS.to_vec() } else { wanted };
    let tools = Tools::locate_or_build(&wanted, &progress::to_stderr)?;
    for binary in wanted.into_iter().flat_map(Tool::binaries) {
        println!("{}", tools.binary(binary)?.display());
    }
    Ok(())
}

/// There is one pin today. A second would be another folder, and this the place to choose it.
fn check_version(wanted: Option<&str>) -> Result<()> {
    let pinned = tools::kubernetes_version()?;
    match wanted {
        Some(wanted) if wanted.trim_start_matches('v') != pinned.trim_start_matches('v') => {
            bail!("hack/tools pins Kubernetes {pinned}: hack/tools/README.md says how to change that to {wanted}")
        }
        _ => Ok(()),
    }
}

fn state(summary: &Summary) -> String {
    match summary.status.as_ref().map(|status| &status.phase) {
        None => "crashed".into(),
        Some(Phase::Starting(what)) => format!("starting: waiting for {what}"),
        Some(Phase::Failed(why)) => format!("failed: {why}"),
        Some(Phase::Ready) if summary.ready => "ready".into(),
        Some(Phase::Ready) => "not answering".into(),
    }
}

fn part_state(state: PartState) -> &'static str {
    match state {
        PartState::Waiting => "waiting",
        PartState::Running => "running",
        PartState::Paused => "paused",
        PartState::Ending => "ending",
        PartState::Stopped => "stopped",
        PartState::Restarting => "restarting",
        PartState::Failed => "failed",
    }
}

fn pid(summary: &Summary) -> String {
    summary.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

/// Columns as wide as what is in them.
fn table<const N: usize>(head: [&str; N], rows: Vec<Vec<String>>) {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned).to_vec()).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let ages = [5, 300, 10_000, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5s", "5m", "2h", "2d"]);
    }

    #[test]
    fn only_the_pinned_version_can_be_asked_for() {
        let pinned = tools::kubernetes_version().unwrap();
        assert!(check_version(None).is_ok());
        assert!(check_version(Some(pinned.trim_start_matches('v'))).is_ok());
        assert!(check_version(Some("1.12")).unwrap_err().to_string().contains("README"));
    }
}
