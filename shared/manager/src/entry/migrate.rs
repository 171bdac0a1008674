//! The command `migrate-storage`: rewrites the objects of the operators' kinds in the storage version.

use std::io::{IsTerminal, Write};

use api_errors::chain;
use clap::Args;
use k8s_openapi::api::rbac::v1::PolicyRule;
use storage_migration::{Options, Output, Progress, Target};

use crate::{client, operator::Operator, settings::ClusterFlags};

/// The flags of `migrate-storage`.
#[derive(Debug, Clone, Args)]
pub(super) struct MigrateStorage {
    #[command(flatten)]
    options: Options,

    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Migrates the kinds of these operators, and reports on standard output.
///
/// Returns an error that names the kinds that could not be migrated.
pub(super) async fn run(operators: &[&'static dyn Operator], flags: MigrateStorage) -> Result<(), String> {
    let targets = storage_migration::choose(targets(operators), &flags.options.kinds)?;
    let client = client::plain(&flags.cluster).await.map_err(|error| chain(&error))?;
    let reports = storage_migration::run(&client, &targets, &flags.options, progress).await;
    let text = match flags.options.output {
        Output::Table => storage_migration::table(&reports, flags.options.dry_run),
        Output::Json => storage_migration::json(&reports),
    };
    write!(std::io::stdout(), "{text}").map_err(|error| error.to_string())?;
    storage_migration::summary(&reports)
}

fn targets(operators: &[&'static dyn Operator]) -> Vec<Target> {
    let definitions = operators.iter().flat_map(|operator| operator.crds());
    let named =
        definitions.map(|definition| (definition.metadata.name.unwrap_or_default(), definition.spec.names.kind));
    named.map(|(definition, kind)| Target { definition, kind }).collect()
}

/// Shows the progress on standard error.
fn progress(progress: &Progress<'_>) {
    let mut out = std::io::stderr();
    drop(write!(out, "{}", progress.line(out.is_terminal())));
}

/// The permissions that `migrate-storage` needs for the kinds of these operators.
pub(super) fn rules(operators: &[&'static dyn Operator]) -> Vec<PolicyRule> {
    let rule = |group: &str, resource: String, names: Option<Vec<String>>, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource]),
        resource_names: names,
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let definitions: Vec<_> = operators.iter().flat_map(|operator| operator.crds()).collect();
    let names: Vec<String> = definitions.iter().filter_map(|definition| definition.metadata.name.clone()).collect();
    let group = "apiextensions.k8s.io";
    let mut rules = vec![
        rule(group, "customresourcedefinitions".to_owned(), Some(names.clone()), &["get"]),
        rule(group, "customresourcedefinitions/status".to_owned(), Some(names), &["patch"]),
    ];
    for definition in definitions {
        rules.push(rule(&definition.spec.group, definition.spec.names.plural, None, &["list", "patch"]));
    }
    rules
}
