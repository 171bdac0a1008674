//! The command line: `run`, `smoke-test`, `migrate-storage`, and the commands that print something and need no cluster.

use std::{collections::BTreeSet, future::Future, io::Write, process::ExitCode};

use api_errors::chain;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use clap_complete::Shell;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::ObjectMeta;

use crate::{
    build_info,
    crd::{normalize, printed},
    election::{election, pod_namespace},
    metrics::Metrics,
    namespaces::namespace_selector_permissions,
    operator::{Manager, Operator, declared, metrics_permissions, permissions, run_command, webhook_configurations},
    run::{Fatal, run},
    settings::Settings,
    telemetry,
    webhook_plan::webhook_plan,
};

mod docs;
mod effective;
mod migrate;
mod smoke;

/// The whole `main` of a binary that hosts `operators`. Returns its exit code: 0, 1 for a failure, 2 for wrong flags.
pub fn main(operators: &[&'static dyn Operator]) -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let matches = command(operators).get_matches_from(with_default_command(arguments));
    // Dependencies may compile in more than one TLS provider; only this line decides which one is used.
    drop(rustls::crypto::ring::default_provider().install_default());
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::SUCCESS };
    if name == "run" {
        return start(operators, matches.clone());
    }
    let own = operators.iter().flat_map(|operator| operator.commands());
    if let Some(own) = own.into_iter().find(|own| own.command.get_name() == name) {
        return (own.run)(matches);
    }
    let task = tasks().into_iter().find(|(command, _)| command.get_name() == name);
    let result = task.map_or(Ok(()), |(_, run)| run(operators, matches));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// The command line of a binary that hosts `operators`, for documents that describe it or quote it.
pub fn command(operators: &[&'static dyn Operator]) -> Command {
    let plain: Vec<&dyn Operator> = operators.iter().map(|operator| *operator as &dyn Operator).collect();
    let names: Vec<&str> = operators.iter().map(|operator| operator.name()).collect();
    Command::new("controller-manager")
        .about("Hosts Kubernetes operators over one shared runtime")
        .version(build_info::DESCRIBED.as_str())
        .after_help(format!("Operators: {}", names.join(", ")))
        .subcommand_required(true)
        .subcommand(run_command(&plain))
        .subcommands(operators.iter().flat_map(|operator| operator.commands()).map(|own| own.command))
        .subcommands(tasks().into_iter().map(|(command, _)| command))
}

/// Carries out a subcommand with these arguments.
type Run = fn(&[&'static dyn Operator], &ArgMatches) -> Result<(), String>;

/// The subcommands beside `run` and those of the operators.
fn tasks() -> Vec<(Command, Run)> {
    let secure = Arg::new("metrics-secure")
        .long("metrics-secure")
        .action(ArgAction::SetTrue)
        .help("Include what --metrics-secure needs");
    let selector = Arg::new("watch-namespace-selector")
        .long("watch-namespace-selector")
        .action(ArgAction::SetTrue)
        .help("Include what --watch-namespace-selector needs");
    let migration = Arg::new("migrate-storage")
        .long("migrate-storage")
        .action(ArgAction::SetTrue)
        .conflicts_with_all(["metrics-secure", "watch-namespace-selector"])
        .help("Print what the user of `migrate-storage` needs instead");
    let service = Arg::new("webhook-service")
        .long("webhook-service")
        .value_name("NAMESPACE/NAME")
        .value_parser(namespace_and_name)
        .required(true)
        .help("Service through which the API server calls the webhooks");
    let configuration = Arg::new("webhook-configuration")
        .long("webhook-configuration")
        .value_name("NAME")
        .default_value("controller-manager")
        .help("Name of the webhook configurations");
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell to complete in");
    vec![
        (Command::new("crds").about("Print the custom resource definitions"), print_crds),
        (
            Command::new("rbac")
                .about("Print the ClusterRole that the operators need, derived from the code")
                .args([secure, selector, migration]),
            print_rbac,
        ),
        (
            Command::new("webhooks")
                .about("Print the webhook configurations of the operators; `run` adds the caBundle")
                .args([service, configuration]),
            print_webhooks,
        ),
        (
            Command::new("docs").about("Print the reference of kinds, flags, metrics and permissions, as Markdown"),
            print_docs,
        ),
        (
            Command::new("images").about("Print the default images of the operators and the images of their samples"),
            print_images,
        ),
        (Command::new("completions").about("Print the completions of a shell").arg(shell), print_completions),
        (
            smoke::SmokeTest::augment_args(Command::new("smoke-test"))
                .about("Apply a sample of each operator, wait until it is ready, and clean up")
                .long_about(None),
            smoke_test,
        ),
        (
            migrate::MigrateStorage::augment_args(Command::new("migrate-storage"))
                .about("Rewrite all objects in the storage version, so that old versions can retire")
                .long_about(None)
                .after_help(MIGRATION_HELP),
            migrate_storage,
        ),
    ]
}

const MIGRATION_HELP: &str = "\
Run it after an upgrade that changed the storage version, with your own kubeconfig. The operators must run, because their webhook \
converts objects that are stored in an old version. When every object of a kind is rewritten, the command removes the old versions \
from status.storedVersions of the CustomResourceDefinition. A later release can then remove these versions.\n\n\
The command can be interrupted at any time. Run it again to complete the migration. Objects that cannot be rewritten are listed, \
and then status.storedVersions does not change. `controller-manager rbac --migrate-storage` prints the permissions that it needs.";

fn namespace_and_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(text.to_owned()),
        _ => Err("expected NAMESPACE/NAME".to_owned()),
    }
}

/// `controller-manager --flag` means `controller-manager run --flag`, as users of other operators expect.
fn with_default_command(mut arguments: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let top_level = ["--help", "-h", "--version", "-V"];
    let first = arguments.get(1).and_then(|argument| argument.to_str());
    if first.is_none_or(|first| first.starts_with('-') && !top_level.contains(&first)) {
        arguments.insert(1, "run".into());
    }
    arguments
}

fn start(operators: &[&'static dyn Operator], matches: ArgMatches) -> ExitCode {
    let settings = match Settings::from_arg_matches(&matches) {
        Ok(settings) => settings,
        Err(error) => error.exit(),
    };
    let known: Vec<&str> = operators.iter().map(|operator| operator.name()).collect();
    if let Some(unknown) = settings.unknown_operator(&known) {
        print_error(&format!("--operators: there is no operator \"{unknown}\"; known are {}", known.join(", ")));
        return ExitCode::from(2);
    }
    if settings.dry_run_config {
        let plain: Vec<&dyn Operator> = operators.iter().map(|operator| *operator as &dyn Operator).collect();
        drop(write!(std::io::stdout(), "{}", effective::effective(&run_command(&plain), &matches)));
        return ExitCode::SUCCESS;
    }
    let election = match election(&settings) {
        Ok(election) => election,
        Err(error) => {
            print_error(&error);
            return ExitCode::from(2);
        }
    };
    let webhooks = match webhook_plan(&settings, pod_namespace()) {
        Ok(webhooks) => webhooks,
        Err(error) => {
            print_error(&error);
            return ExitCode::from(2);
        }
    };
    let mut manager = Manager::new(settings.clone(), matches);
    for operator in operators {
        if settings.selects(operator.name()) {
            manager.take(*operator);
        } else {
            manager.answer_for(*operator);
        }
    }
    let running = block_on(async {
        let traces = telemetry::start(&settings).map_err(ExitReason::Configured)?;
        let result = run(manager, election, webhooks, traces.clone()).await;
        if let Err(error) = &result
            && !matches!(error, Fatal::SecondSignal)
        {
            tracing::error!(error = chain(error), "Cannot go on");
        }
        traces.flush();
        result.map_err(|_| ExitReason::AlreadyLogged)
    });
    match running {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(ExitReason::AlreadyLogged)) => ExitCode::FAILURE,
        Ok(Err(ExitReason::Configured(error))) => {
            print_error(&error);
            ExitCode::from(2)
        }
        Err(error) => {
            print_error(&error);
            ExitCode::FAILURE
        }
    }
}

/// Why the process ends early.
enum ExitReason {
    /// A wrong flag.
    Configured(String),
    /// The error is already in the log.
    AlreadyLogged,
}

fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    Ok(runtime.map_err(|error| format!("cannot start threads: {error}"))?.block_on(work))
}

fn print_crds(operators: &[&'static dyn Operator], _: &ArgMatches) -> Result<(), String> {
    for crd in operators.iter().flat_map(|operator| operator.crds()) {
        print_yaml(&printed(&normalize(&crd)))?;
    }
    Ok(())
}

fn print_rbac(operators: &[&'static dyn Operator], matches: &ArgMatches) -> Result<(), String> {
    if matches.get_flag("migrate-storage") {
        return print_role("migrate-storage", migrate::rules(operators));
    }
    let plain: Vec<&dyn Operator> = operators.iter().map(|operator| *operator as &dyn Operator).collect();
    let mut rules: Vec<PolicyRule> = permissions(&plain);
    if matches.get_flag("metrics-secure") {
        rules.extend(metrics_permissions());
    }
    if matches.get_flag("watch-namespace-selector") {
        rules.extend(namespace_selector_permissions());
    }
    print_role("controller-manager", rules)
}

fn print_role(name: &str, rules: Vec<PolicyRule>) -> Result<(), String> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    print_yaml(&ClusterRole { metadata, rules: Some(rules), aggregation_rule: None })
}

fn print_webhooks(operators: &[&'static dyn Operator], matches: &ArgMatches) -> Result<(), String> {
    let given = |id: &str| matches.get_one::<String>(id).cloned().unwrap_or_default();
    let (service, name) = (given("webhook-service"), given("webhook-configuration"));
    let (namespace, service) = service.split_once('/').unwrap_or_default();
    let plain: Vec<&dyn Operator> = operators.iter().map(|operator| *operator as &dyn Operator).collect();
    for configuration in webhook_configurations(&plain, &name, namespace, service) {
        print_yaml(&configuration)?;
    }
    Ok(())
}

fn print_docs(operators: &[&'static dyn Operator], _: &ArgMatches) -> Result<(), String> {
    write!(std::io::stdout(), "{}", reference(operators)).map_err(|error| error.to_string())
}

/// The reference of kinds, flags, metrics and permissions of `operators` as Markdown, which the command `docs` prints.
pub fn reference(operators: &[&'static dyn Operator]) -> String {
    let plain: Vec<&dyn Operator> = operators.iter().map(|operator| *operator as &dyn Operator).collect();
    let crds: Vec<_> = operators.iter().flat_map(|operator| operator.crds()).collect();
    let manager = declared(&plain);
    Metrics::new(manager.metrics());
    docs::reference(&run_command(&plain), &crds, &permissions(&plain), &manager.metrics().descriptions())
}

fn print_images(operators: &[&'static dyn Operator], _: &ArgMatches) -> Result<(), String> {
    for image in images(operators) {
        writeln!(std::io::stdout(), "{image}").map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The images that `images` prints: the defaults of the flags whose name ends with `image`, the images of the samples, and those that
/// the operators name.
pub fn images(operators: &[&'static dyn Operator]) -> BTreeSet<String> {
    let mut images = BTreeSet::new();
    for operator in operators {
        let flags = operator.args(Command::new("run"));
        let of_images =
            flags.get_arguments().filter(|flag| flag.get_long().is_some_and(|long| long.ends_with("image")));
        let defaults = of_images.flat_map(Arg::get_default_values).map(|image| image.to_string_lossy().into_owned());
        images.extend(defaults.filter(|image| !image.is_empty()));
        images.extend(smoke::image_of_sample(*operator));
        images.extend(operator.images().iter().map(|image| (*image).to_owned()));
    }
    images
}

fn print_completions(operators: &[&'static dyn Operator], matches: &ArgMatches) -> Result<(), String> {
    let Some(shell) = matches.get_one::<Shell>("shell") else { return Ok(()) };
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut command(operators), "controller-manager", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| error.to_string())
}

fn smoke_test(operators: &[&'static dyn Operator], matches: &ArgMatches) -> Result<(), String> {
    match smoke::SmokeTest::from_arg_matches(matches) {
        Ok(flags) => block_on(smoke::run(operators, flags)).flatten(),
        Err(error) => error.exit(),
    }
}

fn migrate_storage(operators: &[&'static dyn Operator], matches: &ArgMatches) -> Result<(), String> {
    match migrate::MigrateStorage::from_arg_matches(matches) {
        Ok(flags) => block_on(migrate::run(operators, flags)).flatten(),
        Err(error) => error.exit(),
    }
}

fn print_yaml(value: &impl serde::Serialize) -> Result<(), String> {
    let text = serde_saphyr::to_string(value).map_err(|error| error.to_string())?;
    write!(std::io::stdout(), "---\n{text}").map_err(|error| error.to_string())
}

/// Prints one line to stderr, because logging may not have begun.
fn print_error(message: &str) {
    drop(writeln!(std::io::stderr(), "error: {message}"));
}
