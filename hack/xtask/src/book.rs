//! `cargo xtask book`: checks the pages of the book in `docs/book` and builds it into `target/book`.
//!
//! - [`blocks`]: every code block comes from a tested file or a generator, names the test that runs it, is run by this task,
//!   or says why no test does; also the commands in the READMEs of the operators.
//! - [`contents`]: the summary lists every page, and each page begins with what the reader can do after it.
//! - [`commands`]: every command in a page exists, with its flags and values; also in all other documents.
//! - [`calls`]: every name of our API in the pages for users of other libraries exists.
//! - [`links`]: every link of the finished book leads to a page and a heading.
//!
//! Steps of their own:
//!
//! - [`screens`]: each page fits on a phone and in a window, and is readable in light and dark colours.
//! - [`external`]: the links of all documents to other sites, by night.

mod blocks;
mod calls;
pub(crate) mod commands;
mod contents;
mod external;
mod links;
mod screens;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use browser::{Browser, MISSING};
use cluster::Missing;

use crate::cargo_tools::{self, MDBOOK};
use crate::report::Outcome;
use crate::workspace::{self, File};

/// The folder of the book, relative to the root of the checkout.
const BOOK: &str = "docs/book";

/// Build the book into target/book, and check its code blocks, commands and links
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run() -> Result<ExitCode> {
    let files = workspace::files()?;
    let pages: Vec<&File> = files.iter().filter(|file| is_page(file)).collect();
    let blocks = blocks::check(&pages, &files);
    let mut findings = blocks.findings;
    findings.extend(blocks::unmarked_commands(&files));
    findings.extend(contents::check(&pages));
    let documents: Vec<&File> = files.iter().filter(|file| is_document(file)).collect();
    findings.extend(commands::check(&documents, &files)?);
    findings.extend(calls::check(&files));
    findings.extend(blocks::run(&blocks.scripts)?);
    let output = build()?;
    let links = links::check(&output)?;
    findings.extend(links.findings);
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        println!("\n{} findings in the book", findings.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("{} pages, {} links; code blocks: {}", pages.len(), links.count, blocks.counts);
    println!("{}", output.join("index.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Opens each page of the finished book in a real browser.
pub(crate) fn look() -> Result<Outcome> {
    let folder = output();
    let pages = links::pages(&folder).context("`cargo xtask book` builds the book first")?;
    let Some(browser) = Browser::start()? else { return Ok(Outcome::without(&Missing(MISSING.to_owned()).into())) };
    let findings = screens::check(&browser, &folder, &pages)?;
    if findings.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Failed(format!("{} faults of pages\n{}", findings.len(), findings.join("\n"))))
}

/// Follows the links of all documents to other sites.
pub(crate) fn follow() -> Result<Outcome> {
    let files = workspace::files()?;
    external::check(&files.iter().filter(|file| is_document(file)).collect::<Vec<_>>())
}

fn is_page(file: &File) -> bool {
    file.path.starts_with("docs/book/src/") && file.is("md")
}

/// Whether a file describes this repository. What the template of new projects describes is another one.
fn is_document(file: &File) -> bool {
    file.is("md") && !file.path.starts_with("hack/scaffold/project/")
}

/// The folder of the finished book.
fn output() -> PathBuf {
    workspace::root().join("target/book")
}

/// Runs mdBook. Returns the folder of the finished book.
fn build() -> Result<PathBuf> {
    cargo_tools::ensure(&[MDBOOK])?;
    let output = output();
    match std::fs::remove_dir_all(&output) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context("could not remove the former book");
        }
        _ => {}
    }
    let mut build = MDBOOK.command()?;
    build.args(["build", "--dest-dir"]).arg(&output).arg(BOOK);
    workspace::run(&mut build, "mdBook could not build docs/book, see above")?;
    Ok(output)
}
