//! The links of the finished book, as a browser sees them. [`external`](super::external) follows those to other sites.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Files that mdBook makes itself, whose links are those of the pages.
const MADE_BY_MDBOOK: &[&str] = &["404.html", "print.html", "toc.html"];

pub(super) struct Checked {
    pub(super) count: usize,
    /// One line each, with the page and the link.
    pub(super) findings: Vec<String>,
}

/// Checks all pages in this folder.
pub(super) fn check(folder: &Path) -> Result<Checked> {
    let mut files = BTreeMap::new();
    collect(folder, "", &mut files)?;
    Ok(check_files(&files))
}

/// The paths of all pages in this folder, relative to it.
pub(super) fn pages(folder: &Path) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    collect(folder, "", &mut files)?;
    Ok(files.into_iter().filter_map(|(path, text)| text.map(|_| path)).collect())
}

/// The text of each page and the name of each other file, relative to the folder of the book.
type BookFiles = BTreeMap<String, Option<String>>;

fn collect(folder: &Path, prefix: &str, files: &mut BookFiles) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))? {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), files)?;
        } else {
            let is_page = entry.path().extension().is_some_and(|it| it == "html") && !MADE_BY_MDBOOK.contains(&&*path);
            let text = is_page.then(|| fs::read_to_string(entry.path())).transpose();
            files.insert(path, text.with_context(|| format!("could not read {}", entry.path().display()))?);
        }
    }
    Ok(())
}

fn check_files(files: &BookFiles) -> Checked {
    let pages: Vec<(&str, &str)> =
        files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?))).collect();
    let headings: BTreeMap<&str, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (*path, attributes(text, "id").collect())).collect();
    let mut checked = Checked { count: 0, findings: Vec::new() };
    for (path, text) in &pages {
        let source = path.replace(".html", ".md");
        for link in attributes(text, "href").chain(attributes(text, "src")).filter(|link| !leaves(link)) {
            checked.count += 1;
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let target = if target.is_empty() { (*path).to_owned() } else { resolved(folder, target) };
            if !files.contains_key(&target) {
                checked.findings.push(format!("docs/book/src/{source}: the link \"{link}\" leads to no page"));
            } else if !heading.is_empty() && headings.get(&*target).is_some_and(|known| !known.contains(heading)) {
                checked.findings.push(format!("docs/book/src/{source}: the link \"{link}\" leads to no heading"));
            }
        }
    }
    checked
}

/// Whether the link leads out of the book.
fn leaves(link: &str) -> bool {
    ["https:", "http:", "mailto:", "data:", "javascript:"].iter().any(|scheme| link.starts_with(scheme))
}

/// The values of this attribute of all elements.
fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let open = format!(" {name}=\"");
    let starts: Vec<usize> = html.match_indices(&open).map(|(at, _)| at + open.len()).collect();
    starts.into_iter().filter_map(|start| html.get(start..)?.split('"').next())
}

/// A relative path as seen from this folder.
pub(super) fn resolved(folder: &str, target: &str) -> String {
    let mut parts: Vec<_> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_missing_pages_and_headings_are_found() {
        let page = "<h1 id=\"top\">x</h1> <a href=\"../b.html#there\">b</a> <a href=\"#top\">t</a> <img src=\"i.svg\"> \
                    <a href=\"https://example.com/none\">e</a> <a href=\"../b.html#gone\">b</a> <a href=\"gone.html\">c</a>";
        let files = BookFiles::from([
            ("a/page.html".to_owned(), Some(page.to_owned())),
            ("a/i.svg".to_owned(), None),
            ("b.html".to_owned(), Some("<h2 id=\"there\">y</h2>".to_owned())),
        ]);
        let checked = check_files(&files);
        assert_eq!(checked.count, 5);
        assert_eq!(
            checked.findings,
            [
                "docs/book/src/a/page.md: the link \"../b.html#gone\" leads to no heading",
                "docs/book/src/a/page.md: the link \"gone.html\" leads to no page",
            ]
        );
    }
}
