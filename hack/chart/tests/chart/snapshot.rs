//! What the chart renders with its default values, as a file of the repository: so a review shows what a change means for users.

use std::{fs, path::Path};

use serde_json::json;

use crate::kit::render;

/// The variable that writes the file anew instead of comparing it.
const UPDATE: &str = "UPDATE_SNAPSHOTS";

#[test]
fn default_render_is_the_one_in_the_repository() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/default.yaml");
    // The CRDs have files of their own, which are in the repository, too.
    let is_shown = |document: &&str| !document.contains("\nkind: CustomResourceDefinition\n");
    let rendered = render(&json!({})).text;
    let documents: Vec<&str> = rendered.trim_end().split("\n---\n").filter(is_shown).collect();
    let rendered = documents.join("\n---\n");
    let rendered = rendered.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
    if std::env::var_os(UPDATE).is_some() {
        fs::write(&file, &rendered).unwrap();
    }
    let stored = fs::read_to_string(&file).unwrap();
    let (old, new): (Vec<&str>, Vec<&str>) = (stored.lines().collect(), rendered.lines().collect());
    let line = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    assert!(
        stored == rendered,
        "the default render has changed from line {} on:\n- {}\n+ {}\nIf this is meant: {UPDATE}=1 cargo test -p chart default_render",
        line + 1,
        old.get(line).unwrap_or(&"(the end)"),
        new.get(line).unwrap_or(&"(the end)"),
    );
}
