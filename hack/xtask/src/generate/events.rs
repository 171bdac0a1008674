//! Writes the page about events. The README of each crate that emits events has a table with their meanings; this checks that the
//! tables and the code name the same events. The events of problems come from the constants that define these.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::reference::Reason;
use crate::tidy::rust::without_comments;
use crate::workspace::File;

/// The header of the table in a README.
const HEADER: &str = "| Event | Type | Meaning |";

/// What comes before the reason of an event in code, and the type of this event.
const EMITTERS: &[(&str, &str)] = &[
    ("Event::normal(", "Normal"),
    ("Event::warning(", "Warning"),
    ("EventType::Normal,", "Normal"),
    ("EventType::Warning,", "Warning"),
];

/// The reason and the type of an event.
type Name<'a> = (&'a str, &'a str);

/// The text of the page: a table of all events.
///
/// # Errors
///
/// A crate emits an event that its README does not explain, or explains one that it does not emit.
pub(super) fn table(files: &[File], problems: &[Reason]) -> Result<String> {
    // By the reason of the event and by who emits it: its type, and sentences about it.
    let mut events: BTreeMap<(String, String), (String, Vec<String>)> = BTreeMap::new();
    for (folder, code) in code(files) {
        let path = format!("{folder}/README.md");
        let readme = files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
        let explained = explained(readme);
        for (reason, type_) in emitted(&code) {
            ensure!(
                explained.contains_key(&(reason, type_)),
                "{path}: explain the event {reason} of the type {type_} in a row of the table \"{HEADER}\""
            );
        }
        for ((reason, type_), meaning) in explained {
            ensure!(code.contains(&format!("\"{reason}\"")), "{path}: no code of {folder} emits the event {reason}");
            let emitter = super::reference::emitter(&path).to_owned();
            events.insert((reason.to_owned(), emitter), (type_.to_owned(), vec![meaning.to_owned()]));
        }
    }
    let mut of_problems: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for problem in problems {
        if let Some(event) = &problem.event {
            of_problems.entry((event.clone(), problem.crate_.clone())).or_default().push(format!("`{}`", problem.name));
        }
    }
    for (name, reasons) in of_problems {
        let sentence = format!("The problem {} has appeared, see [Reasons](reasons.md).", reasons.join(" or "));
        events.entry(name).or_insert_with(|| ("Warning".to_owned(), Vec::new())).1.push(sentence);
    }
    let mut text = String::from("| Event | Type | Emitted by | Meaning |\n|---|---|---|---|\n");
    for ((reason, emitter), (type_, meanings)) in &events {
        writeln!(text, "| `{reason}` | {type_} | {emitter} | {} |", meanings.join(" "))?;
    }
    Ok(text)
}

/// The code of each crate by its folder, without comments and tests.
fn code(files: &[File]) -> BTreeMap<&str, String> {
    let mut crates: BTreeMap<&str, String> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is("rs") && !file.path.contains("/examples/")) {
        let Some((folder, path)) = file.path.split_once("/src/") else { continue };
        let runs_in_the_cluster = folder.starts_with("shared/") || folder.starts_with("operators/");
        let is_test = path.contains("tests") || path.contains("testing");
        if runs_in_the_cluster && !is_test {
            let tested = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            *crates.entry(folder).or_default() += &without_comments(tested);
        }
    }
    crates
}

/// The events that this code emits by a literal. Others, whose reasons are values, only need a row in the table.
fn emitted(code: &str) -> BTreeSet<Name<'_>> {
    let mut names = BTreeSet::new();
    for (before, type_) in EMITTERS {
        for rest in code.split(before).skip(1) {
            let rest = rest.trim_start();
            names.extend(literal(rest.strip_prefix("reason:").unwrap_or(rest).trim_start()).map(|it| (it, *type_)));
        }
    }
    // The events of the runtime about children.
    for call in code.split("child_event(").skip(1) {
        let arguments = call.split(';').next().unwrap_or_default();
        names.extend(arguments.find('"').and_then(|at| literal(&arguments[at..])).map(|it| (it, "Normal")));
    }
    names
}

/// The text in quotation marks with which `code` begins, if it is one word.
fn literal(code: &str) -> Option<&str> {
    let word = code.strip_prefix('"')?.split('"').next()?;
    (!word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(word)
}

/// The rows of the table of events in a README: each event with its meaning.
fn explained(readme: &str) -> BTreeMap<Name<'_>, &str> {
    let rows = readme.lines().skip_while(|line| *line != HEADER).skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        Some(((cells.next()?.trim_matches('`'), cells.next()?), cells.next()?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "Event::normal(\n    \"Made\",\n);\n// Event::normal(\"Comment\", \"\");\nNote { type_: EventType::Warning, reason: \"Lost\".into() };\n\
                        self.child_event(requests, key, uid, \"Deleted\", text);\nevent(EventType::Normal, reason, format!(\"{kind}Missing\"));\n\
                        #[cfg(test)]\nmod tests {\n    Event::normal(\"Test\", \"\");\n}\n";
    const README: &str = "# foo\n\n| Event | Type | Meaning |\n|---|---|---|\n| `Made` | Normal | It is made. |\n\
                          | `Lost` | Warning | It is lost. |\n| `Deleted` | Normal | It is deleted. |\n\
                          | `{kind}Missing` | Normal | A kind is missing. |\n\nText.\n";

    fn table_of(code: &str, readme: &str) -> Result<String> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let files =
            [file("operators/foo-operator/README.md", readme), file("operators/foo-operator/src/controller.rs", code)];
        let late = Reason {
            name: "Late".to_owned(),
            event: Some("Lost".to_owned()),
            meaning: String::new(),
            crate_: "foo".to_owned(),
        };
        table(&files, &[late])
    }

    #[test]
    fn events_come_from_the_table_in_the_readme_and_from_problems() {
        let text = table_of(CODE, README).unwrap();
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| `Deleted` | Normal | foo | It is deleted. |",
                "| `Lost` | Warning | foo | It is lost. The problem `Late` has appeared, see [Reasons](reasons.md). |",
                "| `Made` | Normal | foo | It is made. |",
                "| `{kind}Missing` | Normal | foo | A kind is missing. |",
            ]
        );
    }

    #[test]
    fn event_without_a_row_and_row_without_an_event_are_errors() {
        let error = |code: &str, readme: &str| table_of(code, readme).unwrap_err().to_string();
        let path = "operators/foo-operator/README.md";
        for (row, name) in [
            ("| `Made` | Normal | It is made. |\n", "Made of the type Normal"),
            ("| `Lost` | Warning | It is lost. |\n", "Lost of the type Warning"),
            ("| `Deleted` | Normal | It is deleted. |\n", "Deleted of the type Normal"),
        ] {
            let said = error(CODE, &README.replace(row, ""));
            assert!(said.starts_with(&format!("{path}: explain the event {name}")), "{said}");
        }
        let said = error(&CODE.replace("{kind}Missing", "other"), README);
        assert_eq!(said, format!("{path}: no code of operators/foo-operator emits the event {{kind}}Missing"));
    }
}
