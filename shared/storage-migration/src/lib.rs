//! Rewrites the objects of custom kinds in the storage version, and removes the other versions from `status.storedVersions` of the
//! `CustomResourceDefinition`. Afterwards these versions can be taken out of the definition.
//!
//! ```text
//! read the definition ──▶ list the objects, page by page ──▶ patch each one, changing nothing ──▶ prune storedVersions
//!                                                             └ fenced by uid and resourceVersion
//! ```
//!
//! The API server writes a patched object in the storage version, also if the patch changes nothing. If the stored bytes stay the
//! same, it writes nothing. So the command keeps no record of its progress: after it was killed, it starts again from the
//! beginning, and objects that it has rewritten already cost no write. A conflict means that another client has written the
//! object since it was listed, and that the API server has stored it in the storage version.
//!
//! Reading order: `definition` (what the definition says, pure), `migrate` (one kind), `pages` (lists), `persist` (retries),
//! `report` (what the user sees).
#![deny(missing_docs)]

mod definition;
mod migrate;
mod pages;
mod persist;
mod report;
#[cfg(test)]
mod tests;

use clap::{Args, ValueEnum};
use kube::Client;

pub use report::{Failure, KindReport, Objects, Outcome, Progress, json, summary, table};

/// The flags of a storage migration.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Only these kinds: the name of the kind, its plural, or the whole name of its CRD.
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub kinds: Vec<String>,

    /// Write nothing: send each write as a dry run, and show what would be refused. The API server does not say which objects it
    /// would rewrite.
    #[arg(long)]
    pub dry_run: bool,

    /// Also rewrite kinds of which only the storage version is recorded, for example after encryption at rest was configured.
    #[arg(long)]
    pub force: bool,

    /// How many objects to rewrite at once.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,

    /// How many objects to list at once.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub chunk_size: u32,

    /// Format of the result.
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Format of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table, and a line for each object that was not rewritten.
    Table,
    /// A list of JSON objects, one for each kind.
    Json,
}

/// A `CustomResourceDefinition` to migrate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name of the definition, such as `things.example.com`.
    pub definition: String,
    /// The kind.
    pub kind: String,
}

impl Target {
    fn is_named(&self, name: &str) -> bool {
        let plural = self.definition.split('.').next().unwrap_or_default();
        [self.kind.as_str(), plural, &self.definition].iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Chooses the targets that `--kind` names; all of them without `--kind`.
///
/// # Errors
///
/// Names the first kind that is none of `known`.
pub fn choose(known: Vec<Target>, kinds: &[String]) -> Result<Vec<Target>, String> {
    if let Some(unknown) = kinds.iter().find(|name| !known.iter().any(|target| target.is_named(name))) {
        let names: Vec<&str> = known.iter().map(|target| target.kind.as_str()).collect();
        return Err(format!("--kind: there is no kind \"{unknown}\"; known are {}", names.join(", ")));
    }
    let is_chosen = |target: &Target| kinds.is_empty() || kinds.iter().any(|name| target.is_named(name));
    Ok(known.into_iter().filter(is_chosen).collect())
}

/// Migrates the targets, one after the other. Calls `progress` after each page of objects.
pub async fn run(
    client: &Client,
    targets: &[Target],
    options: &Options,
    mut progress: impl FnMut(&Progress<'_>),
) -> Vec<KindReport> {
    let mut reports = Vec::new();
    for target in targets {
        reports.push(migrate::one(client, target, options, &mut progress).await);
    }
    reports
}

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
