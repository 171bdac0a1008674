//! `kubectl operators`: shows and steers the objects of all operators that are built on the runtime.
//!
//! It uses the user's kubeconfig and nothing else. It names no operator: it asks the API server for the kinds in the category
//! [`CATEGORY`], which the runtime gives to each of its kinds. This needs no permission beyond that of every user.
//!
//! Each command first reads from the API server, and then makes a text with pure functions. Reading order: `cli` (commands and
//! flags), `kinds` (discovery), `object` (what an object says about itself), `children`, `events`, `observed` (what belongs to an
//! object), `status`, `describe`, `trace` (what the user sees), `request` (annotations that steer an operator).

mod children;
mod cli;
mod completion;
mod describe;
mod events;
mod kinds;
mod object;
mod observed;
mod request;
mod status;
mod text;
mod trace;

use std::{
    ffi::OsString,
    io::{ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use api_errors::chain;
use clap::{CommandFactory, Parser};
use jiff::Timestamp;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use storage_migration::{Output, Progress, Target};
use terminal_size::{Width, terminal_size_of};

use cli::{Cli, Command};
use completion::{COMPLETE, complete};
pub use kinds::CATEGORY;
use kinds::Kinds;

/// The command line of the plugin, for documents that quote it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Where the commands work.
pub(crate) struct Session {
    pub(crate) client: Client,
    /// The namespace of `--namespace` or of the kubeconfig's context.
    pub(crate) namespace: String,
    pub(crate) all_namespaces: bool,
    pub(crate) kinds: Kinds,
    pub(crate) now: Timestamp,
    /// The columns of the terminal that shows the text; `None` if no terminal does.
    pub(crate) width: Option<usize>,
}

/// The whole `main`. Returns the exit code: 0, 1 for a failure, 2 for wrong flags.
pub fn main() -> ExitCode {
    // Dependencies may compile in more than one TLS provider; only this line decides which one is used.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(execute(std::env::args_os())),
        Err(error) => Err(Failed { text: String::new(), error: format!("cannot start: {error}") }),
    };
    let (text, error) = match done {
        Ok(text) => (text, None),
        Err(Failed { text, error }) => (text, Some(error)),
    };
    let mut out = std::io::stdout();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    // A reader such as `head` may leave early.
    let lost = written.err().filter(|error| error.kind() != ErrorKind::BrokenPipe);
    let Some(error) = error.or_else(|| lost.map(|error| format!("cannot write the result: {error}"))) else {
        return ExitCode::SUCCESS;
    };
    drop(writeln!(std::io::stderr(), "error: {error}"));
    ExitCode::FAILURE
}

/// A failure, with what was found out nevertheless.
#[derive(Debug)]
pub struct Failed {
    /// The text for standard output.
    pub text: String,
    /// What went wrong, and what the user can do.
    pub error: String,
}

impl From<String> for Failed {
    fn from(error: String) -> Self {
        Self { text: String::new(), error }
    }
}

/// Runs the command with these arguments, of which the first is the name of the program. Returns the text for standard output.
/// Ends the process if the arguments are wrong, or ask for help.
///
/// # Errors
///
/// Returns what went wrong, in words on which the user can act.
pub async fn execute(arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<String, Failed> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if arguments.get(1).is_some_and(|command| command == COMPLETE) {
        return Ok(complete(arguments.into_iter().skip(2).collect()));
    }
    let cli = Cli::parse_from(arguments);
    if let Command::Completions { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "kubectl-operators", &mut script);
        return Ok(String::from_utf8_lossy(&script).into_owned());
    }
    let config = config(&cli).await?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| format!("cannot set up a client: {}", chain(&error)))?;
    execute_with(cli, client, &namespace, width()).await
}

/// The columns of the terminal that is the standard output.
fn width() -> Option<usize> {
    let (Width(columns), _) = terminal_size_of(std::io::stdout())?;
    Some(columns.into())
}

async fn config(cli: &Cli) -> Result<Config, String> {
    let options = KubeConfigOptions { context: cli.context.clone(), ..KubeConfigOptions::default() };
    let kubeconfig = match &cli.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let advice = "give --kubeconfig and --context, or set KUBECONFIG";
    let kubeconfig = kubeconfig.map_err(|error| format!("cannot read the kubeconfig: {}; {advice}", chain(&error)))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    config.map_err(|error| format!("cannot use the kubeconfig: {}; {advice}", chain(&error)))
}

/// Same as [`execute`], with a client for the cluster and the namespace of its context, for a terminal of this width.
async fn execute_with(cli: Cli, client: Client, namespace: &str, width: Option<usize>) -> Result<String, Failed> {
    let kinds = Kinds::discover(&client).await?;
    let session = Session {
        namespace: cli.namespace.unwrap_or_else(|| namespace.to_owned()),
        all_namespaces: cli.all_namespaces,
        client,
        kinds,
        now: Timestamp::now(),
        width,
    };
    match cli.command {
        Command::Status(flags) => status::run(&session, &flags).await,
        Command::Describe { target } => Ok(describe::run(&session, &target).await?),
        Command::Trace { target } => Ok(trace::run(&session, &target).await?),
        Command::Pause { target } => Ok(request::pause(&session, &target, true).await?),
        Command::Resume { target } => Ok(request::pause(&session, &target, false).await?),
        Command::Reconcile { target, wait } => Ok(request::reconcile(&session, &target, &wait).await?),
        Command::RunNow { target, wait } => Ok(request::run_now(&session, &target, &wait).await?),
        Command::MigrateStorage(options) => migrate(&session, &options).await,
        Command::Completions { .. } => Ok(String::new()),
    }
}

/// Rewrites the objects of all kinds, as `controller-manager migrate-storage` does.
async fn migrate(session: &Session, options: &storage_migration::Options) -> Result<String, Failed> {
    let target = |kind: &kinds::Kind| Target {
        definition: format!("{}.{}", kind.resource.plural, kind.resource.group),
        kind: kind.resource.kind.clone(),
    };
    let targets = storage_migration::choose(session.kinds.iter().map(target).collect(), &options.kinds)?;
    let reports = storage_migration::run(&session.client, &targets, options, progress).await;
    let text = match options.output {
        Output::Table => storage_migration::table(&reports, options.dry_run),
        Output::Json => storage_migration::json(&reports),
    };
    match storage_migration::summary(&reports) {
        Ok(()) => Ok(text),
        Err(error) => Err(Failed { text, error }),
    }
}

/// Shows the progress on standard error.
fn progress(progress: &Progress<'_>) {
    let mut out = std::io::stderr();
    drop(write!(out, "{}", progress.line(out.is_terminal())));
}

#[cfg(test)]
mod tests;
