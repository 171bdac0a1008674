//! Commands and flags.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Shows and steers the objects of the operators in a cluster
#[derive(Debug, Parser)]
#[command(name = "kubectl-operators", bin_name = "kubectl operators", version, max_term_width = 120)]
pub(crate) struct Cli {
    /// Path of the kubeconfig. Default: KUBECONFIG, or the home directory's
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Namespace of the objects. Default: that of the context
    #[arg(long, short, global = true, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// All namespaces
    #[arg(long, short = 'A', global = true, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all objects in one table, what is wrong first
    Status(StatusFlags),
    /// Show an object, its children as a tree, and its last events; of Secrets, those that its pods use or the operator has made
    Describe {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Show what happened to an object, in the order of time: events, conditions, and who wrote which fields
    Trace {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Let the operator leave an object alone
    Pause {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Let the operator work on a paused object again
    Resume {
        #[command(flatten)]
        target: TargetFlags,
    },
    /// Let the operator reconcile an object now
    Reconcile {
        #[command(flatten)]
        target: TargetFlags,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// Start a run of a scheduled object now
    RunNow {
        #[command(flatten)]
        target: TargetFlags,
        #[command(flatten)]
        wait: WaitFlags,
    },
    /// Rewrite all objects in the storage version of their kind, so that old versions can be removed
    #[command(
        after_help = "Run it after an upgrade that changed a storage version. It can be interrupted and run again at any \
                            time. The user needs the permissions that `controller-manager rbac --migrate-storage` prints."
    )]
    MigrateStorage(storage_migration::Options),
    /// Print the completions of a shell
    Completions {
        /// The shell to complete in
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StatusFlags {
    /// Only these kinds
    #[arg(value_name = "KIND")]
    pub(crate) kinds: Vec<String>,

    /// Only objects that are not ready
    #[arg(long)]
    pub(crate) not_ready: bool,

    /// Format of the result
    #[arg(long, short, value_enum, default_value_t = Format::Table)]
    pub(crate) output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct TargetFlags {
    /// The object: KIND/NAME, or KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitFlags {
    /// How many seconds to wait for the operator; 0: do not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

impl WaitFlags {
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

impl TargetFlags {
    /// The kind and the name.
    pub(crate) fn parts(&self) -> Result<(&str, &str), String> {
        let parts = match self.words.as_slice() {
            [word] => word.split_once('/'),
            [kind, name] => Some((kind.as_str(), name.as_str())),
            _ => None,
        };
        let complete = parts.filter(|(kind, name)| !kind.is_empty() && !name.is_empty() && !name.contains('/'));
        complete.ok_or_else(|| format!("\"{}\" is not an object: expected KIND/NAME", self.words.join(" ")))
    }
}
