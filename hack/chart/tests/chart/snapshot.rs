//! What the chart renders with its default values, and what Helm says about it, as files of the repository: so a review shows what a
//! change means for users.

use std::{fs, path::Path};

use serde_json::json;

use crate::{kit::render, notes::notes};

/// The variable that writes the files anew instead of comparing them.
const UPDATE: &str = "UPDATE_SNAPSHOTS";

/// Compares the text with this file of the repository, without white space at the ends of lines.
fn is_stored(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots").join(name);
    let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, &text).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap();
    let (old, new): (Vec<&str>, Vec<&str>) = (stored.lines().collect(), text.lines().collect());
    let line = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    assert!(
        stored == text,
        "{name} has changed from line {} on:\n- {}\n+ {}\nIf this is meant: {UPDATE}=1 cargo test -p chart snapshot::",
        line + 1,
        old.get(line).unwrap_or(&"(the end)"),
        new.get(line).unwrap_or(&"(the end)"),
    );
}

#[test]
fn default_render_is_the_one_in_the_repository() {
    // The CRDs have files of their own, which are in the repository, too.
    let is_shown = |document: &&str| !document.contains("\nkind: CustomResourceDefinition\n");
    let rendered = render(&json!({})).text;
    let documents: Vec<&str> = rendered.trim_end().split("\n---\n").filter(is_shown).collect();
    is_stored("default.yaml", &documents.join("\n---\n"));
}

#[test]
fn default_notes_are_those_in_the_repository() {
    // Those of an install are a part of them.
    is_stored("notes.txt", &notes(&json!({}), &["--is-upgrade"]));
}
