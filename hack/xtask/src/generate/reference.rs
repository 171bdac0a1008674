//! Writes the reference of the book: kinds, flags, metrics, permissions, values, alerts, reasons, events and commands, each from the
//! program or the file that decides it, and the table of terms for users of controller-runtime.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use chart::document;
use clap::Command;
use controller_manager::OPERATORS;
use serde::Deserialize;

use super::{Files, events, fields};
use crate::tidy::rust::names;
use crate::workspace::{self, File};

/// The folder that contains only generated pages.
pub(super) const FOLDER: &str = "docs/book/src/reference";

/// The files with the alerts of the chart.
const ALERTS: &str = "charts/operators/observability";

/// The document for users of controller-runtime.
const MIGRATION: &str = "shared/manager/FROM-CONTROLLER-RUNTIME.md";

/// The columns of the help of a program. Without it, the help would follow the width of the terminal.
const WIDTH: usize = 100;

pub(super) fn files() -> Result<Files> {
    let reference = manager::reference(OPERATORS);
    let section = |title: &str| {
        let found = reference.split("\n## ").find_map(|section| section.strip_prefix(&format!("{title}\n")));
        found.map(|text| safe(text.trim())).with_context(|| format!("`controller-manager docs` has no \"{title}\""))
    };
    let pages = [
        page(
            "kinds",
            "Kinds",
            "you know every field of every kind, its default and its bounds",
            &kinds(&section("Kinds")?)?,
        ),
        page("values", "Values of the chart", "you know every value of the chart", &safe(&document::values_table()?)),
        page(
            "flags",
            "Flags of the operators",
            "you know every flag of `controller-manager run`, its environment variable and its default",
            &section("Flags of `run`")?.replace("### ", "## "),
        ),
        page(
            "commands",
            "Commands",
            "you know the commands of the plugin of kubectl, of the program and of this repository",
            &commands(),
        ),
        page("metrics", "Metrics", "you know what each metric counts", &section("Metrics")?),
        page("alerts", "Alerts", "you know what each alert means and what to do about it", &alerts()?),
        page(
            "permissions",
            "Permissions",
            "you know what the operators may do in a cluster. The code declares each permission, and the end-to-end tests check that \
             each is used and none is missing. With a list of namespaces, the permissions on their objects hold there alone",
            &section("Permissions")?,
        ),
    ];
    let files = workspace::files()?;
    let problems = problems(&files);
    let events = page(
        "events",
        "Events",
        "you know what each event means, and which operator emits it",
        &format!("{EVENTS}{}", events::table(&files, &problems)?),
    );
    Ok(pages.into_iter().chain([migration()?, reasons(&problems), events]).collect())
}

fn page(name: &str, title: &str, result: &str, text: &str) -> (PathBuf, String) {
    let text = format!(
        "# {title}\n\nAfter this page {result}.\n\n`cargo xtask generate` writes this page.\n\n{}\n",
        text.trim()
    );
    (Path::new(FOLDER).join(format!("{name}.md")), text)
}

/// What the page about events says before its table.
const EVENTS: &str = "`kubectl describe` shows the events of an object, and `kubectl operators trace` shows them among everything else \
    that has happened to it. Equal events within six minutes are one series. Each object may have 25 events at once, and then one \
    every five minutes. The READMEs of the operators have the same tables.\n\n";

/// The problems that conditions and events report, from the constants that define them, sorted by name.
fn problems(files: &[File]) -> Vec<Reason> {
    let is_code = |file: &&File| {
        let of_program = file.path.starts_with("shared/") || file.path.starts_with("operators/");
        of_program && file.is("rs") && file.path.contains("/src/") && !file.path.contains("tests")
    };
    let code: Vec<&File> = files.iter().filter(is_code).collect();
    let mut reasons: Vec<Reason> =
        code.iter().flat_map(|file| reasons_in(file, |constant| reporter(&file.path, constant, &code))).collect();
    reasons.sort_by(|one, other| one.name.cmp(&other.name));
    reasons
}

fn reasons(problems: &[Reason]) -> (PathBuf, String) {
    let mut text = String::from(
        "A problem makes `Degraded` true, unless its meaning says otherwise, and its reason is that of the conditions. If it has an \
         event, the runtime emits it when the problem appears. The README of an operator has its reasons that are no problems.\n\n| Reason | Event | Reported by | Meaning |\n|---|---|---|---|\n",
    );
    for Reason { name, event, meaning, crate_ } in problems {
        let event = event.as_ref().map(|event| format!("`{event}`")).unwrap_or_default();
        let _ = writeln!(text, "| `{name}` | {event} | {crate_} | {} |", safe(meaning).trim_end());
    }
    page("reasons", "Reasons", "you know what the reason of a condition means", &text)
}

/// A kind of problem.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) name: String,
    pub(super) event: Option<String>,
    pub(super) meaning: String,
    /// Who reports it, see [`reporter`].
    pub(super) crate_: String,
}

/// The operator to which a file belongs, or all of them.
pub(super) fn emitter(path: &str) -> &str {
    let operator = path.strip_prefix("operators/").and_then(|rest| rest.split_once("-operator/"));
    operator.map_or("all operators", |(name, _)| name)
}

/// Who reports the problem of this constant in the file at `path`: one operator, or all if the runtime itself reports it. Else only the
/// code about pods reports it, which operators with pods share. `code` is that of all programs.
fn reporter<'a>(path: &'a str, constant: &str, code: &[&File]) -> &'a str {
    let kind = format!("ProblemKind::{constant}");
    let is_of_the_runtime = |file: &&File| file.path.starts_with("shared/manager/") && names(&file.text, &kind);
    if path.starts_with("shared/workloads/") && !code.iter().any(is_of_the_runtime) {
        "operators with pods"
    } else {
        emitter(path)
    }
}

/// The constants of type `ProblemKind` in this file. Each has its reason as the first string. `reporter` says who reports a constant.
fn reasons_in<'a>(file: &File, reporter: impl Fn(&str) -> &'a str) -> Vec<Reason> {
    let mut reasons = Vec::new();
    let mut meaning: Vec<&str> = Vec::new();
    for (n, line) in file.text.lines().enumerate() {
        if let Some(comment) = line.trim().strip_prefix("/// ") {
            meaning.push(comment);
            continue;
        }
        let is_kind = line.contains("const ") && (line.contains(": ProblemKind =") || line.contains(": Self = Self::"));
        if is_kind {
            let statement: String = file.text.lines().skip(n).take(3).collect();
            let statement = statement.split(';').next().unwrap_or_default();
            let event = statement.split_once("with_event(\"").and_then(|(_, rest)| rest.split('"').next());
            let name = statement.split('"').nth(1).unwrap_or_default();
            let event = event.or_else(|| statement.contains("invalid(\"").then_some(name));
            if !name.is_empty() && statement.contains("(\"") && file.text.contains("ProblemKind") {
                let constant =
                    line.split_once("const ").and_then(|(_, rest)| rest.split(':').next()).unwrap_or_default();
                reasons.push(Reason {
                    name: name.to_owned(),
                    event: event.map(str::to_owned),
                    meaning: meaning.join(" "),
                    crate_: reporter(constant).to_owned(),
                });
            }
        }
        meaning.clear();
    }
    reasons
}

/// The table of terms for users of controller-runtime. Its links lead to code, which the book does not contain.
fn migration() -> Result<(PathBuf, String)> {
    let files = workspace::files()?;
    let source = files.iter().find(|file| file.path == MIGRATION).with_context(|| format!("{MIGRATION} is missing"))?;
    let (_, text) = source.text.split_once("\n\n").unwrap_or_default();
    let result = "you can port an operator from controller-runtime: you know what each of its terms is here";
    let text = format!("It is the text of `{MIGRATION}`.\n\n{}", without_links(text));
    Ok(page("from-controller-runtime", "From controller-runtime", result, &safe(&text)))
}

/// The text with the words of each link in place of the link.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(open) = plain.rfind('[') {
            plain.remove(open);
        }
        plain += part.split_once(')').map_or(part, |(_, rest)| rest);
    }
    plain
}

fn kinds(overview: &str) -> Result<String> {
    let mut text = format!("{overview}\n");
    for crd in OPERATORS.iter().flat_map(|operator| operator.crds()) {
        let table = fields::table(&manager::printed(&manager::normalize(&crd)))?;
        let _ = write!(text, "\n## {}\n\nFields of `spec`:\n\n{}", crd.spec.names.kind, safe(&table));
    }
    Ok(text)
}

fn commands() -> String {
    let mut text = String::new();
    for (title, program) in [
        ("The plugin of kubectl", kubectl_operators::command()),
        ("The program", manager::command(OPERATORS)),
        ("The tasks of the repository", crate::command()),
    ] {
        let name = program.get_bin_name().unwrap_or(program.get_name()).to_owned();
        let _ = writeln!(text, "## {title}\n\n| Command | Result |\n|---|---|");
        for command in program.get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(
                text,
                "| [`{name} {0}`](#{1}) | {2} |",
                command.get_name(),
                anchor(&name, command),
                safe(&about).trim_end()
            );
        }
        for command in program.get_subcommands() {
            let _ = writeln!(text, "\n### `{name} {}`\n", command.get_name());
            if command.get_name() == "run" {
                text.push_str("The page [Flags of the operators](flags.md) lists its flags.\n");
                continue;
            }
            let bin_name = format!("{name} {}", command.get_name());
            let help = command.clone().bin_name(bin_name).term_width(WIDTH).disable_help_flag(true).render_long_help();
            let help: String = help.to_string().lines().fold(String::new(), |text, line| text + line.trim_end() + "\n");
            let _ = writeln!(text, "<!-- generated -->\n```text\n{}\n```", help.trim_end());
        }
        text.push('\n');
    }
    text
}

/// The anchor that mdBook gives to the heading of a command.
fn anchor(name: &str, command: &Command) -> String {
    format!("{name} {}", command.get_name()).replace(' ', "-")
}

#[derive(Deserialize)]
struct Group {
    title: String,
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    #[serde(rename = "alert")]
    name: String,
    #[serde(default, rename = "for")]
    wait: Option<String>,
    labels: std::collections::BTreeMap<String, String>,
    annotations: std::collections::BTreeMap<String, String>,
}

/// Each alert with its runbook.
fn alerts() -> Result<String> {
    let files = workspace::files()?;
    let runbooks = files.iter().find(|file| file.path == "docs/runbooks.md").context("docs/runbooks.md is missing")?;
    let mut sections = runbooks.text.split("\n## ");
    let introduction = sections.next().and_then(|text| text.split_once("\n\n")).map_or("", |(_, text)| text);
    let marked = "<!-- untested: needs an installed release, and names that differ in each -->\n```sh";
    let mut text = introduction.replace("```sh", marked);
    let sections: Vec<&str> = sections.collect();
    // The file of the runtime comes first.
    let (own, of_operators): (Vec<_>, Vec<_>) = files
        .iter()
        .filter(|file| file.folder() == ALERTS && file.is("yaml"))
        .partition(|it| it.name() == "manager.yaml");
    for file in own.into_iter().chain(of_operators) {
        let group: Group =
            serde_saphyr::from_str(&file.text).with_context(|| format!("{} has no alerts", file.path))?;
        let _ = writeln!(text, "\n## {}", group.title);
        for Alert { name, wait, labels, annotations } in &group.alerts {
            let severity = labels.get("severity").map_or("none", String::as_str);
            let wait = wait.as_deref().map_or("at once".to_owned(), |wait| format!("after {wait}"));
            let description = annotations.get("description").map_or("", String::as_str).trim();
            let runbook = sections.iter().find_map(|section| section.strip_prefix(&format!("{name}\n")));
            let runbook = runbook.with_context(|| format!("docs/runbooks.md has no section {name}"))?;
            let _ = writeln!(
                text,
                "\n### {name}\n\nSeverity: {severity}; fires {wait}. {}\n\n{}",
                in_code(description),
                safe(runbook.trim())
            );
        }
    }
    Ok(text)
}

/// The text of an annotation. Words of Prometheus' templates become code.
fn in_code(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    safe(&text.replace("{{", "`{{").replace("}}", "}}`"))
}

/// The text without HTML: `<` outside of code is a character.
fn safe(text: &str) -> String {
    let mut in_block = false;
    let mut safe = String::new();
    for line in text.lines() {
        in_block ^= line.starts_with("```");
        if in_block {
            safe.extend([line, "\n"]);
            continue;
        }
        let parts = line.split('`').enumerate();
        let parts: Vec<String> =
            parts.map(|(n, part)| if n % 2 == 0 { part.replace('<', "\\<") } else { part.to_owned() }).collect();
        safe.extend([parts.join("`").as_str(), "\n"]);
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_outside_of_code_is_escaped() {
        assert_eq!(safe("<a> `<b>`\n```\n<c>\n```\n<d>"), "\\<a> `<b>`\n```\n<c>\n```\n\\<d>\n");
    }

    #[test]
    fn reasons_come_from_constants() {
        let text = "/// Runs are late.\n/// Really.\nconst LATE: ProblemKind =\n    ProblemKind::new(\"Late\", 1).with_event(\"IsLate\");\n\
                    const OTHER: u8 = 1;\n/// Wrong.\npub const BAD: ProblemKind = ProblemKind::invalid(\"Bad\");\n";
        let file = File { path: "operators/foo-operator/src/status.rs".to_owned(), text: text.to_owned() };
        let reason = |name: &str, event: &str, meaning: &str| Reason {
            name: name.to_owned(),
            event: Some(event.to_owned()),
            meaning: meaning.to_owned(),
            crate_: "foo".to_owned(),
        };
        assert_eq!(
            reasons_in(&file, |_| "foo"),
            [reason("Late", "IsLate", "Runs are late. Really."), reason("Bad", "Bad", "Wrong.")]
        );
    }

    #[test]
    fn problem_of_pods_is_not_one_of_all_operators() {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let runtime = file("shared/manager/src/context/apply.rs", "ProblemKind::QUOTA_EXCEEDED, ProblemKind::CRASHES");
        let pods = file("shared/workloads/src/pods.rs", "ProblemKind::CRASH");
        let reporter = |path: &str, constant: &str| reporter(path, constant, &[&runtime, &pods]).to_owned();
        assert_eq!(reporter("shared/workloads/src/problem.rs", "QUOTA_EXCEEDED"), "all operators");
        assert_eq!(reporter("shared/workloads/src/problem.rs", "CRASH"), "operators with pods");
        assert_eq!(reporter("shared/manager/src/conditions.rs", "WAITING"), "all operators");
        assert_eq!(reporter("operators/foo-operator/src/status.rs", "LATE"), "foo");
    }

    #[test]
    fn links_become_their_words() {
        assert_eq!(without_links("a [`b`](c/d.md), [e](f) `[g]`"), "a `b`, e `[g]`");
    }

    #[test]
    fn reference_lists_each_metric_of_the_alerts_and_panels() {
        let pages = files().unwrap();
        let metrics = &pages[&Path::new(FOLDER).join("metrics.md")];
        for file in workspace::files().unwrap().iter().filter(|file| file.folder() == ALERTS && file.is("yaml")) {
            let words = file.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            for metric in words.filter(|word| word.contains("operator_") || word.starts_with("process_")) {
                let metric = metric.trim_end_matches("_bucket");
                assert!(metrics.contains(&format!("| `{metric}` |")), "{}: {metric}", file.path);
            }
        }
    }

    #[test]
    fn reference_names_each_operator_and_does_not_follow_the_width_of_the_terminal() {
        let files = files().unwrap();
        let kinds = &files[&Path::new(FOLDER).join("kinds.md")];
        for crd in OPERATORS.iter().flat_map(|operator| operator.crds()) {
            assert!(kinds.contains(&format!("\n## {}\n", crd.spec.names.kind)));
        }
        let commands = &files[&Path::new(FOLDER).join("commands.md")];
        let helps = commands.split("```").skip(1).step_by(2);
        let longest = helps.flat_map(str::lines).map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest > WIDTH / 2 && longest <= WIDTH), "{longest:?}");
    }
}
