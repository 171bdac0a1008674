//! `cargo xtask cluster`: starts and stops real Kubernetes clusters on this machine, with programs that it builds from Go and
//! Rust sources.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;
use cluster::{
    Cluster, Controllers, IpFamily, MOST_WORKERS, Nodes, Options, PartState, Phase, Restore, Snapshot, Summary, TOOLS,
    Tool, Tools, progress, tools,
};

/// Start and stop real Kubernetes clusters on this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster, unless it runs already, and print how to use it
    ///
    /// The first start builds the programs from the Go modules that hack/tools pins. That takes a quarter of an hour on a
    /// small machine. You can interrupt it; the next start continues the build.
    Up {
        #[command(flatten)]
        name: Name,
        /// What runs the cluster
        ///
        /// local: this repository, with the programs that it builds. All other options are for this.
        /// kind: the program kind, with one control plane and --workers workers. Its nodes run in your Docker or Podman, from the
        /// published node image, or the one that `KIND_NODE_IMAGE` names. If neither runs, and with `KIND_ENGINE=built`, kind needs
        /// no registry: then this unpacks Docker from Debian packages, runs it in Linux namespaces of its own, and builds the
        /// node image. That needs root and Debian. The pods of these nodes pull the images of `cargo xtask image list` alone, and
        /// their network does not enforce policies.
        #[arg(long, default_value = "local", value_name = "local|kind")]
        backend: Backend,
        /// The kind of nodes
        ///
        /// none: no nodes, only etcd, the API server and a few controllers. Starts in three seconds, without root.
        /// simulated: nodes and pods that only pretend to run, for large numbers. Needs no root.
        /// real: nodes that run pods, in Linux namespaces of their own. Needs root.
        #[arg(long, default_value = "real", value_name = "real|simulated|none")]
        nodes: Nodes,
        /// The Kubernetes version; it must be the one that hack/tools pins
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
        /// With --nodes none: run all controllers, not only garbage collection, namespaces, service accounts and role
        /// aggregation
        #[arg(long)]
        all_controllers: bool,
        /// With --nodes simulated: the number of nodes
        #[arg(long, default_value_t = 5, value_name = "N")]
        simulated_nodes: u16,
        /// With --nodes real: the number of nodes
        ///
        /// The first shares its namespaces with the control plane. Each other one has namespaces of its own, and costs 70
        /// megabytes of memory. With --backend kind: the number of workers beside the control plane.
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_WORKERS)))]
        workers: u8,
        /// With --nodes real: the addresses of nodes, pods and Services
        #[arg(long, default_value = "ipv4", value_name = "ipv4|ipv6|dual")]
        ip_family: IpFamily,
        /// Stop the cluster after this many minutes without any open handle to it
        #[arg(long, value_name = "MINUTES")]
        idle: Option<u64>,
    },
    /// Stop a cluster and remove everything that belongs to it, also after a crash
    Down {
        #[command(flatten)]
        name: Name,
        /// Stop all clusters of this user, also those that tests share, and those of kind
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Show the state of a cluster and of its parts; fails if the cluster is not ready
    Status {
        #[command(flatten)]
        name: Name,
    },
    /// List the clusters
    List,
    /// Run a command in the network of a cluster, with KUBECONFIG and PATH set
    ///
    /// The command enters only the network, and sees the files and processes of this machine as usual. In the network of a
    /// cluster with a real node, it reaches pods and Services, and nothing outside. The PATH has kubectl, and also helm and
    /// helm3 after `cargo xtask cluster tools` has built them.
    Exec {
        #[command(flatten)]
        name: Name,
        /// The command and its arguments, after `--`
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Copy the data of a cluster's etcd, to restore it later
    ///
    /// This pauses etcd for some tenths of a second and restarts nothing. The copy is in the cluster's folder; stopping the
    /// cluster removes it. `restore` without a name lists the snapshots.
    Snapshot {
        #[command(flatten)]
        name: Name,
        /// A name for the snapshot, such as "before"
        snapshot: String,
    },
    /// Reset the etcd of a cluster to a snapshot, as an administrator restores a backup
    ///
    /// The control plane stops, with the API server and etcd last. The data are replaced. Then etcd, the API server and the
    /// other parts start again. Pods continue to run. Resource versions go back, so connected clients may wait for ever for
    /// versions that they already know. This is etcd's default; its documentation advises --bump-revision.
    Restore {
        #[command(flatten)]
        name: Name,
        /// The snapshot's name; without it, the command lists the snapshots
        snapshot: Option<String>,
        /// Raise the revision by this number and mark all older revisions as compacted
        ///
        /// The number must be larger than the number of changes since the snapshot. Resource versions then go forward, and the
        /// API server refuses old watches as too old. The first use builds etcdutl.
        #[arg(long, value_name = "N", requires = "snapshot", value_parser = clap::value_parser!(u64).range(1..))]
        bump_revision: Option<u64>,
    },
    /// Build the missing programs that clusters and tests use, and print the paths of all
    Tools {
        /// The programs to build, such as helm; all by default
        tools: Vec<String>,
    },
}

/// What runs a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Backend {
    Local,
    Kind,
}

#[derive(clap::Args)]
struct Name {
    /// The cluster's name; several clusters can run at once
    #[arg(long, default_value = "dev")]
    name: String,
}

pub(crate) fn run(Args { command }: Args) -> Result<ExitCode> {
    match command {
        Command::Up {
            name: Name { name },
            backend: Backend::Kind,
            nodes,
            kubernetes,
            all_controllers,
            simulated_nodes: _,
            workers,
            ip_family,
            idle,
        } => {
            let only_local = [
                ("--nodes", nodes != Nodes::Real),
                ("--kubernetes", kubernetes.is_some()),
                ("--all-controllers", all_controllers),
                ("--ip-family", ip_family != IpFamily::default()),
                ("--idle", idle.is_some()),
            ];
            refuse(&only_local)?;
            describe(&Cluster::kind(&name, workers.into(), None, &progress::to_stderr)?);
        }
        Command::Up {
            name: Name { name },
            backend: Backend::Local,
            nodes,
            kubernetes,
            all_controllers,
            simulated_nodes,
            workers,
            ip_family,
            idle,
        } => {
            check_version(kubernetes.as_deref())?;
            let controllers = if all_controllers { Controllers::All } else { Controllers::Reduced };
            let idle = idle.map(|minutes| Duration::from_secs(60 * minutes));
            up(&Options {
                controllers,
                simulated: simulated_nodes,
                workers,
                ip_family,
                idle,
                ..Options::new(name, nodes)
            })?;
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

/// Refuses options that clusters of kind do not have. Each comes with whether it was given.
fn refuse(options: &[(&str, bool)]) -> Result<()> {
    match options.iter().find(|(_, given)| *given) {
        Some((name, _)) => bail!("{name} is for --backend local: leave it out with --backend kind"),
        None => Ok(()),
    }
}

fn up(options: &Options) -> Result<()> {
    describe(&Cluster::up(options, &progress::to_stderr)?);
    Ok(())
}

/// Prints how to use the cluster.
fn describe(cluster: &Cluster) {
    let (name, nodes, version) = (cluster.name(), cluster.nodes(), cluster.version());
    println!("cluster {name} is up: Kubernetes {version}, nodes {nodes}, {}", cluster.server());
    println!();
    println!("  export KUBECONFIG={}", cluster.kubeconfig().display());
    println!("  cargo xtask cluster exec --name {name} -- kubectl get namespaces");
    println!("  cargo xtask cluster down --name {name}");
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

/// Prints the state of the cluster. The exit code is a failure unless the cluster is ready, so that scripts can check it.
fn status(summary: &Summary) -> ExitCode {
    println!("cluster     {}", summary.name);
    println!("state       {}", state(summary));
    println!("nodes       {}", nodes(summary));
    println!("kubernetes  {}", summary.version);
    println!("age         {}", age(summary.age));
    println!("pid         {}", pid(summary));
    println!("kubeconfig  {}", summary.kubeconfig.display());
    // The logs about a cluster of kind are beside its other files.
    let logs = if summary.is_kind { summary.folder.clone() } else { summary.folder.join("log") };
    println!("logs        {}", logs.display());
    if let Some(status) = &summary.status {
        println!("users       {}", status.users.saturating_sub(1)); // without this command's own connection
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
        let nodes = if summary.is_kind { "kind".to_owned() } else { summary.nodes.to_string() };
        let version = summary.version.clone();
        vec![summary.name.clone(), state(summary), nodes, version, age(summary.age), pid(summary), kubeconfig]
    });
    table(["NAME", "STATE", "NODES", "KUBERNETES", "AGE", "PID", "KUBECONFIG"], rows.collect());
}

fn exec(name: &str, command: &[OsString]) -> Result<ExitCode> {
    let cluster = Cluster::open(name)?;
    let (program, args) = command.split_first().context("no command is given after `--`")?;
    let helm = Tools::locate(&[Tool::Helm, Tool::Helm3])?; // only if they are built already
    let path = cluster.tools().path(Some(helm.path(std::env::var_os("PATH"))));
    let status = cluster.exec(program).args(args).env("PATH", path).status();
    let status = status.with_context(|| format!("could not start {}", program.display()))?;
    // 128 plus the signal, as in a shell.
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
    println!("cluster {cluster} is back at snapshot {name}: resource version {}, before {before}", restored.after);
    Ok(())
}

fn build_tools(names: &[String]) -> Result<()> {
    let find = |name: &String| {
        let tool = TOOLS.into_iter().find(|tool| tool.name() == name);
        tool.with_context(|| format!("there is no tool {name}; choose from {}", TOOLS.map(Tool::name).join(", ")))
    };
    let wanted: Vec<_> = names.iter().map(find).collect::<Result<_>>()?;
    let wanted = if wanted.is_empty() { TOOLS.to_vec() } else { wanted };
    let tools = Tools::locate_or_build(&wanted, &progress::to_stderr)?;
    for binary in wanted.into_iter().flat_map(Tool::binaries) {
        println!("{}", tools.binary(binary)?.display());
    }
    Ok(())
}

/// Refuses every version but the pinned one. To support a second version, add another folder of pins and choose between them
/// here.
fn check_version(wanted: Option<&str>) -> Result<()> {
    let pinned = tools::kubernetes_version()?;
    match wanted {
        Some(wanted) if wanted.trim_start_matches('v') != pinned.trim_start_matches('v') => {
            bail!("hack/tools pins Kubernetes {pinned}: hack/tools/README.md explains how to change it to {wanted}")
        }
        _ => Ok(()),
    }
}

fn state(summary: &Summary) -> String {
    match summary.status.as_ref().map(|status| &status.phase) {
        None if summary.is_kind && summary.ready => "ready".into(),
        None if summary.is_kind => "not answering".into(),
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

/// The kind of nodes; with real ones, also their number and their addresses.
fn nodes(summary: &Summary) -> String {
    match summary.workers {
        _ if summary.is_kind => format!("kind ({} beside the control plane)", summary.workers),
        0 => summary.nodes.to_string(),
        workers => format!("{} ({workers}, {})", summary.nodes, summary.ip_family),
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

/// Prints a table; each column is as wide as its widest cell.
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
    fn age_is_shown_in_one_unit() {
        let ages = [5, 300, 10_000, 200_000].map(|seconds| age(Duration::from_secs(seconds)));
        assert_eq!(ages, ["5s", "5m", "2h", "2d"]);
    }

    #[test]
    fn cluster_of_kind_without_a_supervisor_has_not_crashed() {
        let mut summary = Summary {
            name: "dev".to_owned(),
            nodes: Nodes::Real,
            is_kind: false,
            workers: 2,
            ip_family: IpFamily::default(),
            version: "v1.37.0".to_owned(),
            age: Duration::ZERO,
            kubeconfig: "/state/dev/kubeconfig".into(),
            folder: "/state/dev".into(),
            pid: None,
            status: None,
            ready: false,
        };
        assert_eq!(state(&summary), "crashed");
        summary.is_kind = true;
        assert_eq!([state(&summary), nodes(&summary)], ["not answering", "kind (2 beside the control plane)"]);
        summary.ready = true;
        assert_eq!(state(&summary), "ready");
    }

    #[test]
    fn options_of_local_clusters_are_refused_with_kind() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let given = |line: &str| {
            let words = ["cluster", "up", "--backend", "kind"].into_iter().chain(line.split_whitespace());
            run(<Line as clap::Parser>::try_parse_from(words).unwrap().args).unwrap_err().to_string()
        };
        assert_eq!(given("--nodes none"), "--nodes is for --backend local: leave it out with --backend kind");
        assert_eq!(
            given("--workers 2 --ip-family dual"),
            "--ip-family is for --backend local: leave it out with --backend kind"
        );
    }

    #[test]
    fn only_pinned_kubernetes_version_is_accepted() {
        let pinned = tools::kubernetes_version().unwrap();
        assert!(check_version(None).is_ok());
        assert!(check_version(Some(pinned.trim_start_matches('v'))).is_ok());
        assert!(check_version(Some("1.12")).unwrap_err().to_string().contains("README"));
    }
}
