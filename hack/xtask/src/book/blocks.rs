//! The code blocks of the pages. Each has one of five forms:
//!
//! - It consists of `{{#include path}}` or `{{#include path:anchor}}`, and the path is a file that the compiler or a test reads.
//! - The line before it is `<!-- tested by: path name -->`, and the file at this path has a function with this name. It reads the page,
//!   so that it fails if the block is no longer what it runs.
//! - The line before it is `<!-- run -->`, and `cargo xtask book` runs it.
//! - The line before it is `<!-- generated -->`, and `cargo xtask generate` writes the page from what the programs print.
//! - The line before it is `<!-- untested: reason -->`. If the reason speaks of tests, it names them between back-ticks, each as
//!   `path name`.

use std::fmt;

use anyhow::{Context as _, Result};

use super::File;
use crate::{generate, workspace};

/// The text of a block, and what the page says about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Block {
    /// The line of the opening fence, counted from one.
    pub(super) line: usize,
    pub(super) language: String,
    /// The last line before the block that is not empty.
    before: String,
    pub(super) text: String,
}

/// How many blocks have which form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    included: usize,
    /// Those that `generate` writes and compares.
    generated: usize,
    tested: usize,
    /// Those that this task runs itself.
    run: usize,
    untested: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { included, generated, tested, run, untested } = self;
        let all = included + generated + tested + run + untested;
        write!(
            f,
            "{all} = {included} included + {generated} generated + {tested} run by a test + {run} run here + {untested} with a reason \
             why not"
        )
    }
}

pub(super) struct Checked {
    pub(super) counts: Counts,
    /// One line each, with the page, the line and what is wrong.
    pub(super) findings: Vec<String>,
    /// The blocks to run, each after its place.
    pub(super) scripts: Vec<(String, String)>,
}

/// Returns the script in a form that compiles an example together with all other programs of the workspace. `cargo run` for one
/// package compiles the dependencies again, with the features of this package alone.
fn compiling_for_all(script: &str) -> String {
    let line = |line: &str| {
        let (_, rest) = line.strip_prefix("cargo run -p ")?.split_once(" --example ")?;
        let (example, arguments) = rest.split_once(" -- ")?;
        Some(format!(
            "cargo build --quiet --workspace --example {example}\ntarget/debug/examples/{example} {arguments}\n"
        ))
    };
    script.lines().map(|it| line(it).unwrap_or_else(|| format!("{it}\n"))).collect()
}

/// Runs these scripts in the checkout. Returns one line for each that fails.
pub(super) fn run(scripts: &[(String, String)]) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (place, script) in scripts {
        let output = workspace::command("sh")
            .args(["-euc", &compiling_for_all(script)])
            .output()
            .context("could not start sh")?;
        if !output.status.success() {
            let says = String::from_utf8_lossy(&output.stderr);
            findings.push(format!("{place}: the block fails ({}): {}", output.status, says.trim_end()));
        }
    }
    Ok(findings)
}

pub(super) fn check(pages: &[&File], files: &[File]) -> Checked {
    let mut checked = Checked { counts: Counts::default(), findings: Vec::new(), scripts: Vec::new() };
    for page in pages {
        for block in of(&page.text) {
            match form(page, &block, files) {
                Ok(Form::Included) => checked.counts.included += 1,
                Ok(Form::Generated) => checked.counts.generated += 1,
                Ok(Form::Run) => {
                    checked.counts.run += 1;
                    checked.scripts.push((format!("{}:{}", page.path, block.line), block.text));
                }
                Ok(Form::Tested) => checked.counts.tested += 1,
                Ok(Form::Untested) => checked.counts.untested += 1,
                Err(why) => checked.findings.push(format!("{}:{}: {why}", page.path, block.line)),
            }
        }
    }
    checked
}

/// One line for each block of commands in the READMEs of the operators that neither names its test nor says why none runs it.
pub(super) fn unmarked_commands(files: &[File]) -> Vec<String> {
    let is_readme = |file: &&File| {
        let operator = file.path.strip_prefix("operators/").and_then(|path| path.strip_suffix("-operator/README.md"));
        operator.is_some_and(|operator| !operator.contains('/'))
    };
    let mut findings = Vec::new();
    for readme in files.iter().filter(is_readme) {
        for block in of(&readme.text).iter().filter(|block| super::commands::SHELLS.contains(&block.language.as_str()))
        {
            let why = match form(readme, block, files) {
                Err(why) => why,
                Ok(Form::Run) => {
                    "only the blocks of the book are run: name the test, or say why none runs it".to_owned()
                }
                Ok(_) => continue,
            };
            findings.push(format!("{}:{}: {why}", readme.path, block.line));
        }
    }
    findings
}

enum Form {
    Included,
    Generated,
    Run,
    Tested,
    Untested,
}

fn form(page: &File, block: &Block, files: &[File]) -> std::result::Result<Form, String> {
    let marker = |name: &str| block.before.strip_prefix(&format!("<!-- {name}: "))?.strip_suffix(" -->");
    if block.text.contains("{{#include ") {
        for line in block.text.lines().filter(|line| !line.trim().is_empty()) {
            included(page, line, files)?;
        }
        return Ok(Form::Included);
    }
    if block.before == "<!-- run -->" {
        return Ok(Form::Run);
    }
    if block.before == "<!-- generated -->" {
        let is_written = generate::writes(&page.path);
        return is_written.then_some(Form::Generated).ok_or_else(|| "no generator writes this page".to_owned());
    }
    if let Some(test) = marker("tested by") {
        let file = with_function(test, files)?;
        // The test of the READMEs computes their paths.
        if super::is_page(page) && !file.text.contains(&page.path) {
            let path = &file.path;
            return Err(format!("{path} does not read this page: the test would not notice a change of the block"));
        }
        return Ok(Form::Tested);
    }
    match marker("untested") {
        Some(reason) => untested(page, reason, files).map(|()| Form::Untested),
        None => {
            Err("the block comes from no tested file: include it from one, or write `<!-- tested by: path name -->` \
                     or `<!-- untested: reason -->` in the line before it"
                .to_owned())
        }
    }
}

/// The file with the function that `named` names, as `path name`.
fn with_function<'a>(named: &str, files: &'a [File]) -> std::result::Result<&'a File, String> {
    let (path, name) = named.split_once(' ').unwrap_or((named, ""));
    let has = |file: &&File| file.path == path && file.text.contains(&format!("fn {name}("));
    files.iter().find(has).ok_or_else(|| format!("there is no test \"{named}\""))
}

/// Checks the reason why no test runs a block. Without the name of a test, no check would notice that the test is gone.
fn untested(page: &File, reason: &str, files: &[File]) -> std::result::Result<(), String> {
    if reason.split(' ').count() <= 2 {
        return Err(format!("\"{reason}\" is no reason why no test runs the block"));
    }
    let mut tests = reason.split('`').skip(1).step_by(2).peekable();
    let speaks_of_tests = || {
        let mut words = reason.split(|letter: char| !letter.is_alphanumeric());
        words.any(|word| matches!(word, "test" | "tests" | "step"))
    };
    if super::is_page(page) && tests.peek().is_none() && speaks_of_tests() {
        return Err(format!("\"{reason}\" speaks of a test: name it between back-ticks, as `path name`"));
    }
    tests.try_for_each(|test| with_function(test, files).map(|_| ()))
}

/// Checks that the file of an include exists, that a test or the compiler reads it, and that it has the anchor.
fn included(page: &File, line: &str, files: &[File]) -> std::result::Result<(), String> {
    let target = line.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
    let target = target.ok_or_else(|| format!("\"{line}\" is text beside an include: divide the block"))?;
    let (path, anchor) = target.split_once(':').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let path = super::links::resolved(page.folder(), path);
    let file = files.iter().find(|file| file.path == path);
    let file = file.ok_or_else(|| format!("includes {path}, which does not exist"))?;
    let is_named = |by: &File| (by.is("rs") || by.name() == "Makefile") && by.text.contains(file.name());
    if !file.is("rs") && !files.iter().any(is_named) {
        return Err(format!("includes {path}, which no code reads"));
    }
    let ends = |line: &str, anchor: &str, word: &str| line.trim_end().ends_with(&format!("{word}: {anchor}"));
    let has = |word: &str, anchor: &str| file.text.lines().any(|line| ends(line, anchor, word));
    match anchor {
        Some(anchor) if !(has("ANCHOR", anchor) && has("ANCHOR_END", anchor)) => {
            Err(format!("includes {path}, which has no anchor \"{anchor}\""))
        }
        _ => Ok(()),
    }
}

/// The code blocks of a page.
pub(super) fn of(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, Block)> = None;
    let mut before = "";
    for (line, content) in (1..).zip(text.lines()) {
        let trimmed = content.trim_start();
        match &mut open {
            Some((fence, block)) if trimmed.trim_end() == fence => {
                blocks.push(std::mem::take(block));
                (open, before) = (None, "");
            }
            Some((_, block)) => block.text.extend([content, "\n"]),
            None if trimmed.starts_with("```") || trimmed.starts_with("~~~") => {
                let length = trimmed.len() - trimmed.trim_start_matches(['`', '~']).len();
                let (fence, language) = trimmed.split_at(length);
                let language = language.trim().to_owned();
                let block = Block { line, language, before: before.trim().to_owned(), text: String::new() };
                open = Some((fence.to_owned(), block));
            }
            None if !trimmed.is_empty() => before = content,
            None => {}
        }
    }
    blocks.extend(open.map(|(_, block)| block)); // a block that never ends
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    fn checked(page: &str) -> Checked {
        let page = file("docs/book/src/a/page.md", page);
        let code = "// ANCHOR: part\nfn a_test() {}\n// ANCHOR_END: part\nread(\"sample.yaml\")\n\
                    include_str!(\"../docs/book/src/a/page.md\")\n";
        let blind = file("x/blind.rs", "fn b_test() {}\n");
        let files = [file("x/a.rs", code), blind, file("x/sample.yaml", ""), file("x/other.yaml", "")];
        check(&[&page], &files)
    }

    #[test]
    fn each_form_is_counted() {
        let text = "Text\n\n```rust\n{{#include ../../../../x/a.rs:part}}\n```\n```\n{{#include ../../../../x/sample.yaml}}\n```\n\
                    <!-- tested by: x/a.rs a_test -->\n```sh\nls\n```\n\
                    <!-- run -->\n```sh\nls\n```\n\
                    <!-- untested: needs a cluster; the test `x/a.rs a_test` has one -->\n\n````text\n```\n````\n";
        let checked = checked(text);
        assert_eq!(checked.findings, Vec::<String>::new());
        assert_eq!(checked.counts, Counts { included: 2, generated: 0, tested: 1, run: 1, untested: 1 });
        let shown = checked.counts.to_string();
        assert!(shown.starts_with("5 = 2 included + 0 generated + 1 run by a test + 1 run here + 1 with"), "{shown}");

        let generated = file("docs/book/src/reference/page.md", "<!-- generated -->\n```text\nls\n```\n");
        let checked = check(&[&generated], &[]);
        assert_eq!(checked.findings, Vec::<String>::new());
        assert_eq!(checked.counts, Counts { generated: 1, ..Counts::default() });
    }

    #[test]
    fn unmarked_commands_in_the_readme_of_an_operator_are_found() {
        let text = "```yaml\na: b\n```\n<!-- untested: needs a cluster -->\n```sh\nls\n```\n```console\n$ ls\n```\n\
                    <!-- run -->\n```sh\nls\n```\n";
        let files = [file("operators/a-operator/README.md", text), file("operators/a-operator/server/README.md", text)];
        let findings = unmarked_commands(&files);
        assert!(
            matches!(&*findings, [unmarked, run]
                if unmarked.starts_with("operators/a-operator/README.md:8: the block comes from no")
                && run.starts_with("operators/a-operator/README.md:12: only the blocks of the book are run")),
            "{findings:?}"
        );
    }

    #[test]
    fn example_is_compiled_with_all_programs() {
        assert_eq!(
            compiling_for_all("true\ncargo run -p a --example b -- crds | cat\n"),
            "true\ncargo build --quiet --workspace --example b\ntarget/debug/examples/b crds | cat\n"
        );
    }

    #[test]
    fn failing_script_is_found() {
        let scripts = checked("<!-- run -->\n```sh\ntrue\n```\n<!-- run -->\n```sh\necho no >&2; false\n```\n").scripts;
        let findings = run(&scripts).unwrap();
        assert!(
            matches!(&*findings, [it] if it.starts_with("docs/book/src/a/page.md:6: ") && it.ends_with("no")),
            "{findings:?}"
        );
    }

    #[test]
    fn unmarked_blocks_and_wrong_marks_are_found() {
        for (text, what) in [
            ("```sh\nls\n```\n", "docs/book/src/a/page.md:1: the block comes from no tested file"),
            ("<!-- untested: so -->\n```\n```\n", "docs/book/src/a/page.md:2: \"so\" is no reason"),
            ("<!-- generated -->\n```\n```\n", "docs/book/src/a/page.md:2: no generator writes this page"),
            (
                "<!-- untested: needs a cluster; the tests do the same -->\n```\n```\n",
                "docs/book/src/a/page.md:2: \"needs a cluster; the tests do the same\" speaks of a test",
            ),
            (
                "<!-- untested: needs a cluster; `x/a.rs other_test` does the same -->\n```\n```\n",
                "docs/book/src/a/page.md:2: there is no test \"x/a.rs other_test\"",
            ),
            ("<!-- untested: needs a cluster -->\n```\n```\n\n```\nls\n```\n", "docs/book/src/a/page.md:5: the block"),
            ("<!-- tested by: x/a.rs other_test -->\n```\n```\n", "docs/book/src/a/page.md:2: there is no test"),
            (
                "<!-- tested by: x/blind.rs b_test -->\n```\n```\n",
                "docs/book/src/a/page.md:2: x/blind.rs does not read",
            ),
            (
                "```\n{{#include ../../../../x/b.rs}}\n```\n",
                "docs/book/src/a/page.md:1: includes x/b.rs, which does not",
            ),
            (
                "```\n{{#include ../../../../x/a.rs:no}}\n```\n",
                "docs/book/src/a/page.md:1: includes x/a.rs, which has no",
            ),
            (
                "```\n{{#include ../../../../x/other.yaml}}\n```\n",
                "docs/book/src/a/page.md:1: includes x/other.yaml, which no",
            ),
            ("```\n{{#include ../../../../x/a.rs}}\nls\n```\n", "docs/book/src/a/page.md:1: \"ls\" is text beside"),
            ("```sh\nls\n", "docs/book/src/a/page.md:1: the block comes from no tested file"),
        ] {
            let findings = checked(text).findings;
            assert!(matches!(&*findings, [finding] if finding.starts_with(what)), "{text}: {findings:?}");
        }
    }
}
