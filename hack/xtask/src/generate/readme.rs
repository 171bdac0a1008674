//! Fills the generated blocks in READMEs, in the chart's `Chart.yaml` and in the pages of the book that count lines of code. Comments around a
//! block name its content:
//!
//! ```text
//! <!-- generated: fields of Memcached -->
//! <!-- end -->
//! ```

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use chart::{CHART, document, hub};
use controller_manager::OPERATORS;

use super::{Files, fields, lines};
use crate::workspace::{self, File};

const OPEN: &str = "<!-- generated: ";
const CLOSE: &str = "<!-- end -->";

/// The pages of the book that count lines of code.
const PAGES: &[&str] = &["docs/book/src/comparison.md", "docs/book/src/tutorial.md"];

pub(super) fn files() -> Result<Files> {
    let files = workspace::files()?;
    let chart = |file: &&File| file.folder() == CHART && matches!(file.name(), "README.md" | "Chart.yaml");
    let readme = |file: &&File| file.path.starts_with("operators/") && file.name() == "README.md";
    files
        .iter()
        .filter(|file| chart(file) || readme(file) || PAGES.contains(&&*file.path))
        .filter(|file| file.text.contains(OPEN))
        .map(|file| Ok((PathBuf::from(&file.path), fill(file, block)?)))
        .collect()
}

/// The content of the block with this title.
fn block(title: &str) -> Result<String> {
    match title {
        "values" => return document::values_table(),
        "lines of code" => return lines::table(&workspace::files()?),
        "annotations" => return Ok(hub::annotations()? + "  # "), // in Chart.yaml, the closing line is a YAML comment
        _ => {}
    }
    if let Some(folder) = title.strip_prefix("lines of ") {
        return lines::of_operator(folder, &workspace::files()?);
    }
    let known = "this title is unknown; the known ones are \"fields of KIND\", \"values\", \"annotations\", \"lines of code\" and \
                 \"lines of FOLDER\"";
    let kind = title.strip_prefix("fields of ").context(known)?;
    let crds = OPERATORS.iter().flat_map(|operator| operator.crds());
    let crd = crds.into_iter().find(|crd| crd.spec.names.kind == kind);
    let crd = crd.with_context(|| format!("no operator has the kind {kind}"))?;
    fields::table(&manager::printed(&manager::normalize(&crd)))
}

/// The text of the file with all its blocks filled.
fn fill(file: &File, block: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut text = String::new();
    let mut rest = file.text.as_str();
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (title, after) =
            after.split_once(" -->").with_context(|| format!("{}: `{OPEN}` without `-->`", file.path))?;
        let close = || format!("{}: `{OPEN}{title} -->` without `{CLOSE}`", file.path);
        let (_, after) = after.split_once(CLOSE).with_context(close)?;
        let content = block(title).with_context(|| format!("{}: {title}", file.path))?;
        text.extend([before, OPEN, title, " -->\n", content.as_str(), CLOSE]);
        rest = after;
    }
    Ok(text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readme(text: &str) -> File {
        File { path: "operators/foo-operator/README.md".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn only_text_between_markers_changes() {
        let old =
            "# Foo\n\n<!-- generated: fields of Foo -->\nold\n<!-- end -->\n\nMore <!-- generated: x --><!-- end -->\n";
        let new = "# Foo\n\n<!-- generated: fields of Foo -->\n[fields of Foo]\n<!-- end -->\n\nMore <!-- generated: x -->\n[x]\n<!-- end -->\n";
        let filled = fill(&readme(old), |title| Ok(format!("[{title}]\n"))).unwrap();
        assert_eq!(filled, new);
        assert_eq!(fill(&readme(new), |title| Ok(format!("[{title}]\n"))).unwrap(), new);
    }

    #[test]
    fn unknown_or_unclosed_block_is_an_error() {
        let unknown = fill(&readme("<!-- generated: fields of Nothing --><!-- end -->"), block).unwrap_err();
        assert_eq!(
            format!("{unknown:#}"),
            "operators/foo-operator/README.md: fields of Nothing: no operator has the kind Nothing"
        );
        let open = fill(&readme("<!-- generated: fields of Memcached -->"), block).unwrap_err();
        assert!(format!("{open:#}").ends_with("without `<!-- end -->`"), "{open:#}");
    }
}
