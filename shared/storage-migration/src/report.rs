//! What the user sees. Pure.

use std::{fmt::Write as _, io::Write as _};

use serde::Serialize;
use tabwriter::TabWriter;

use crate::Target;

/// How many failures of one kind the table shows. JSON has all of them.
const SHOWN_FAILURES: usize = 20;

/// What happened to one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindReport {
    /// The name of the definition.
    pub definition: String,
    /// The kind.
    pub kind: String,
    /// The version in which the API server stores objects.
    pub storage_version: String,
    /// `status.storedVersions` of the definition before the migration.
    pub stored_versions: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// What happened to the objects.
    pub objects: Objects,
    /// The objects that were not rewritten.
    pub failures: Vec<Failure>,
    /// Why the migration failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How the migration of a kind ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// Every object is stored in the storage version, and only this version is recorded.
    Migrated,
    /// A dry run found nothing that would prevent the migration.
    WouldMigrate,
    /// Only the storage version was recorded: there was nothing to do.
    UpToDate,
    /// The cluster does not know the kind.
    NotInstalled,
    /// The error says why.
    Failed,
}

/// Counts objects by what happened to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Objects {
    /// Written in the storage version.
    pub rewritten: u64,
    /// In a dry run: the API server would take the write. It does not say whether the object is stored in the storage version
    /// already, so whether there is anything to rewrite.
    pub accepted: u64,
    /// Stored in the storage version before.
    pub current: u64,
    /// Written by another client after they were listed, and so in the storage version.
    pub changed_meanwhile: u64,
    /// Deleted after they were listed.
    pub gone: u64,
    /// Not rewritten, because the API server refused it.
    pub failed: u64,
}

impl Objects {
    pub(crate) fn total(&self) -> u64 {
        self.rewritten + self.accepted + self.current + self.changed_meanwhile + self.gone + self.failed
    }
}

/// An object that was not rewritten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Its namespace and name.
    pub object: String,
    /// What the API server said.
    pub error: String,
}

/// How far the migration of one kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The kind.
    pub kind: &'a str,
    /// The objects so far.
    pub done: u64,
    /// All objects, as far as the API server has counted them.
    pub total: u64,
}

impl Progress<'_> {
    /// The progress as text. On a terminal, each line replaces the former one.
    pub fn line(&self, is_terminal: bool) -> String {
        let Self { kind, done, total } = self;
        let (before, after) = match is_terminal {
            true if done == total => ("\r", "\n"),
            true => ("\r", ""),
            false => ("", "\n"),
        };
        format!("{before}{kind}: {done} of {total} objects{after}")
    }
}

impl KindReport {
    pub(crate) fn new(target: &Target) -> Self {
        Self {
            definition: target.definition.clone(),
            kind: target.kind.clone(),
            storage_version: String::new(),
            stored_versions: Vec::new(),
            outcome: Outcome::Failed,
            objects: Objects::default(),
            failures: Vec::new(),
            error: None,
        }
    }

    fn result(&self) -> String {
        match (self.outcome, &self.error) {
            (Outcome::Migrated, _) => format!("only {} is stored now", self.storage_version),
            (Outcome::WouldMigrate, _) => format!(
                "can be migrated to {}; the API server does not say which of the accepted objects it would rewrite",
                self.storage_version
            ),
            (Outcome::UpToDate, _) => format!("nothing to do: only {} is stored", self.storage_version),
            (Outcome::NotInstalled, _) => "not installed in this cluster".to_owned(),
            (Outcome::Failed, Some(why)) => format!("FAILED: {why}"),
            (Outcome::Failed, None) => "FAILED".to_owned(),
        }
    }
}

/// The reports as a table, followed by the objects that were not rewritten.
pub fn table(reports: &[KindReport], dry_run: bool) -> String {
    let mut rows = TabWriter::new(Vec::new()).padding(3);
    let fates = if dry_run { "ACCEPTED" } else { "REWRITTEN\tCURRENT" };
    let _ = writeln!(rows, "KIND\tSTORAGE\tSTORED BEFORE\t{fates}\tCHANGED\tGONE\tFAILED\tRESULT");
    for report in reports {
        let Objects { rewritten, accepted, current, changed_meanwhile, gone, failed } = report.objects;
        let fates = if dry_run { accepted.to_string() } else { format!("{rewritten}\t{current}") };
        let or_dash = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let (storage, stored) = (or_dash(&report.storage_version), or_dash(&report.stored_versions.join(",")));
        let _ = writeln!(
            rows,
            "{}\t{storage}\t{stored}\t{fates}\t{changed_meanwhile}\t{gone}\t{failed}\t{}",
            report.kind,
            printable(&report.result())
        );
    }
    let mut text = String::from_utf8(rows.into_inner().unwrap_or_default()).unwrap_or_default();
    for report in reports.iter().filter(|report| !report.failures.is_empty()) {
        let _ = writeln!(text, "\nObjects of kind {} that were not rewritten:", report.kind);
        for Failure { object, error } in report.failures.iter().take(SHOWN_FAILURES) {
            let _ = writeln!(text, "  {object}: {}", printable(error));
        }
        if let Some(more) = report.failures.len().checked_sub(SHOWN_FAILURES).filter(|more| *more > 0) {
            let _ = writeln!(text, "  … and {more} more, see --output json");
        }
    }
    text
}

/// The text without control characters: it comes from the cluster, and could change what the terminal shows.
fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The reports as JSON.
pub fn json(reports: &[KindReport]) -> String {
    serde_json::to_string_pretty(reports).unwrap_or_default() + "\n"
}

/// `Err` with a sentence about what to do if a kind was not migrated.
pub fn summary(reports: &[KindReport]) -> Result<(), String> {
    let failed: Vec<&str> =
        reports.iter().filter(|report| report.outcome == Outcome::Failed).map(|report| report.kind.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "not migrated: {}. Nothing is lost. Run the command again when the cause is removed; what is rewritten stays rewritten",
        failed.join(", ")
    ))
}
