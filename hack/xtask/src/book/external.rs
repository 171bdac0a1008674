//! The links of all documents to other sites. Only a machine with a connection to the internet can check them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use anyhow::{Context as _, Result};
use cluster::Missing;

use super::{File, blocks};
use crate::report::Outcome;
use crate::workspace;

/// What stands before the address in a link.
const LINK: &str = "](https://";
/// Answers that say that there is no such page. Other errors, such as a refusal of programs, say nothing about readers.
const GONE: &[&str] = &["404", "410"];
/// What curl prints as the status if the site gave none.
const SILENT: &str = "000";

/// Follows each link once.
pub(super) fn check(documents: &[&File]) -> Result<Outcome> {
    let mut answers = Vec::new();
    for (address, place) in links(documents) {
        match status(&address)? {
            Some(status) => answers.push((format!("{place}: {address}"), status)),
            None => return Ok(Outcome::without(&Missing("curl is missing".to_owned()).into())),
        }
    }
    if answers.iter().all(|(_, status)| status == SILENT) {
        return Ok(Outcome::without(&Missing("no site can be reached from this machine".to_owned()).into()));
    }
    let broken = broken(&answers);
    if broken.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(format!("{} links to other sites are broken\n{}", broken.len(), broken.join("\n"))))
}

/// The addresses of other sites, each with the first document and the line that have it. Those in code blocks are examples.
fn links(documents: &[&File]) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    for document in documents {
        let lines_of = |block: blocks::Block| block.line + 1..=block.line + block.text.lines().count();
        let examples: BTreeSet<usize> = blocks::of(&document.text).into_iter().flat_map(lines_of).collect();
        for (number, line) in (1..).zip(document.text.lines()).filter(|(number, _)| !examples.contains(number)) {
            for address in line.split(LINK).skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next()) {
                links.entry(format!("https://{address}")).or_insert_with(|| format!("{}:{number}", document.path));
            }
        }
    }
    links
}

/// The status of the answer to a GET, after redirects, or [`SILENT`]. `None` without curl.
fn status(address: &str) -> Result<Option<String>> {
    let mut curl = workspace::command("curl");
    curl.args(["--silent", "--location", "--max-time", "30", "--retry", "2", "--output", "/dev/null"]);
    match curl.args(["--write-out", "%{http_code}", address]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        output => {
            let output = output.context("could not run curl")?;
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
    }
}

/// A line for each answer, after the place of its link, that says that there is no such page or site.
fn broken(answers: &[(String, String)]) -> Vec<String> {
    let is_broken = |status: &str| status == SILENT || GONE.contains(&status);
    let broken = answers.iter().filter(|(_, status)| is_broken(status));
    broken.map(|(link, status)| format!("{link} answers {status}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_outside_of_examples_is_followed_once() {
        let text = "[a](https://a.com/x#part) [b](b.md), [c](https://c.com)\n[a](https://a.com/x)\n\
                    ```text\n[d](https://d.com)\ncurl https://e.com/x\n```\n[e](https://e.com)\n";
        let document = File { path: "docs/a.md".to_owned(), text: text.to_owned() };
        let found: Vec<_> = links(&[&document]).into_iter().collect();
        let expected =
            [("https://a.com/x", "docs/a.md:1"), ("https://c.com", "docs/a.md:1"), ("https://e.com", "docs/a.md:7")];
        assert_eq!(found, expected.map(|(address, place)| (address.to_owned(), place.to_owned())));
    }

    #[test]
    fn only_missing_pages_and_sites_are_broken() {
        let answers = ["200", "404", "403", "429", "410", "000"].map(|status| ("a".to_owned(), status.to_owned()));
        assert_eq!(broken(&answers), ["a answers 404", "a answers 410", "a answers 000"]);
    }
}
