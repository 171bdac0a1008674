//! Rules for all text files.

use super::rust::code;
use super::{Finding, lines};
use crate::workspace::File;

/// The maximum number of lines of a source file. A longer file mostly has two subjects.
const LONGEST: usize = 500;

/// Files that may be longer, each with the reason why it has only one subject.
const LONG: &[(&str, &str)] = &[];

pub(super) fn files_are_short(files: &[File]) -> Vec<Finding> {
    let is_long = |file: &&File| {
        let written = file.is("rs") || file.is("go") || file.is("py") || file.is("sh") || file.name() == "Makefile";
        written && file.text.lines().count() > LONGEST && !LONG.iter().any(|(path, _)| *path == file.path)
    };
    let advice = format!("has more than {LONGEST} lines: divide it, or give a reason in hack/xtask/src/tidy/text.rs");
    files.iter().filter(is_long).map(|file| Finding::in_file(&file.path, advice.clone())).collect()
}

pub(super) fn no_trailing_space(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_foreign(file)) {
        findings.extend(lines(file, &file.text, "remove the white space at the end", |line| {
            line.ends_with([' ', '\t', '\r'])
        }));
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            findings.push(Finding::in_file(&file.path, "end it with one line break"));
        }
    }
    findings
}

pub(super) fn no_machine_paths(files: &[File]) -> Vec<Finding> {
    // In two halves, so that this file does not break the rule itself.
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let is_wrong =
        |line: &str| paths.iter().any(|path| line.match_indices(path).any(|(at, _)| starts_a_path(&line[..at])));
    files.iter().flat_map(|file| lines(file, &file.text, "other machines lack this path", is_wrong)).collect()
}

/// Whether a "/" after this text starts an absolute path.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-~$})".contains(c))
}

pub(super) fn actions_are_pinned(files: &[File]) -> Vec<Finding> {
    let message = "name the commit, and the version in a comment: the owner of an action can move its tags";
    let is_wrong = |line: &str| {
        let Some((_, action)) = line.split_once("uses: ") else { return false };
        let commit = action.split_once('@').map(|(_, version)| version.split(' ').next().unwrap_or_default());
        let is_commit = |it: &str| it.len() == 40 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
        !action.starts_with("./") && !commit.is_some_and(is_commit)
    };
    let workflows = files.iter().filter(|file| file.path.starts_with(".github/"));
    workflows.flat_map(|file| lines(file, &file.text, message, is_wrong)).collect()
}

pub(super) fn images_are_pinned(files: &[File]) -> Vec<Finding> {
    let advice = "name the digest behind the tag: the owner of an image can move its tags";
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.name() == "Dockerfile") {
        let mut stages = vec!["scratch"];
        for (line, text) in (1..).zip(file.text.lines()) {
            let mut words = text.split_whitespace();
            let image = match words.next().map(str::to_uppercase).as_deref() {
                Some("FROM") => words.find(|word| !word.starts_with("--")),
                Some("COPY") => words.find_map(|word| word.strip_prefix("--from=")),
                _ => None,
            };
            let Some(image) = image else { continue };
            if !has_digest(image) && !stages.contains(&image) {
                findings.push(Finding::in_line(file, line, advice));
            }
            stages.extend(words.skip_while(|word| !word.eq_ignore_ascii_case("as")).nth(1));
        }
    }
    findings
}

fn has_digest(image: &str) -> bool {
    image.split_once("@sha256:").is_some_and(|(_, hex)| hex.len() == 64 && hex.bytes().all(|it| it.is_ascii_hexdigit()))
}

pub(super) fn no_registries(files: &[File]) -> Vec<Finding> {
    let hosts = [
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("proxy.golang", ".org"),
        concat!("sum.golang", ".org"),
        concat!("deb.debian", ".org"),
        concat!("security.debian", ".org"),
        concat!("registry.npmjs", ".org"),
        concat!("GOPROXY", "="),
    ];
    let message = "remove the host: each machine configures its registries, not the repository";
    let is_wrong = |line: &str| hosts.iter().any(|host| line.contains(host));
    let files = files.iter().filter(|file| !is_foreign(file));
    files.flat_map(|file| lines(file, &file.text, message, is_wrong)).collect()
}

pub(super) fn nothing_for_later(files: &[File]) -> Vec<Finding> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("to", "do!")];
    let is_wrong =
        |line: &str| words.iter().any(|word| super::rust::names(line, word) || line.contains(&format!("{word}(")));
    let files = files.iter().filter(|file| !is_foreign(file));
    files.flat_map(|file| lines(file, &file.text, "do it now, or write an issue", is_wrong)).collect()
}

/// Words for a person where a sentence is about a program.
const PERSONS: &[&str] = &[
    concat!("some", "body"),
    concat!("some", "one"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
    concat!("every", "one"),
    concat!("who", "ever"),
    concat!("stran", "ger"),
    concat!("stran", "gers"),
    concat!("peo", "ple"),
];

/// Verbs that leave open who acts, when they follow a form of "to be".
const WITHOUT_AGENT: &[&str] = &["told", "said", "asked", "seen"];
const TO_BE: &[&str] = &["is", "are", "was", "were", "be", "been", "being"];

/// Lines that may contain such a word, each as its file and a part of the line, with the reason.
const WORDS_KEPT: &[(&str, &str)] = &[
    // A user of Unix has this name.
    ("testing/images/src/fixtures.rs", "/etc/passwd"),
];

pub(super) fn sentences_name_who_acts(files: &[File]) -> Vec<Finding> {
    let files = files.iter().filter(|file| !is_foreign(file) && file.name() != "LICENSE");
    files
        .flat_map(|file| {
            unclear(&file.path, &file.text)
                .map(|(line, advice)| Finding::in_line(file, line, advice))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The lines, counted from one, that do not name who acts, each with advice.
fn unclear<'a>(path: &'a str, text: &'a str) -> impl Iterator<Item = (usize, String)> + 'a {
    let is_kept = move |line: &str| WORDS_KEPT.iter().any(|(file, part)| *file == path && line.contains(part));
    text.lines().zip(1..).filter(move |(line, _)| !is_kept(line)).filter_map(|(line, number)| {
        let line = line.to_lowercase();
        let person = PERSONS.iter().find(|word| super::rust::names(&line, word));
        let advice = |words: &str| format!("\"{words}\": name the program, user or client that acts");
        person.map(|word| (*word).to_owned()).or_else(|| passive(&line)).map(|words| (number, advice(&words)))
    })
}

/// A passive without an agent, such as "is " and "told".
fn passive(line: &str) -> Option<String> {
    let passives = TO_BE.iter().flat_map(|be| WITHOUT_AGENT.iter().map(move |verb| format!("{be} {verb}")));
    passives.into_iter().find(|words| super::rust::names(line, words))
}

pub(super) fn exceptions_have_reasons(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let code = code(&file.text);
        for attribute in ["[allow(", "[expect("] {
            for (at, _) in code.match_indices(attribute) {
                let end = code[at..].find(")]").map_or(code.len(), |length| at + length);
                if !code[at..end].contains("reason =") {
                    let line = code[..at].matches('\n').count() + 1;
                    findings.push(Finding::in_line(file, line, "say why: `#[expect(…, reason = \"…\")]`"));
                }
            }
        }
    }
    findings
}

/// Files that third parties or programs have written.
fn is_foreign(file: &File) -> bool {
    let by_name = matches!(file.name(), "Cargo.lock" | "go.sum" | "go.mod" | "LICENSE");
    by_name || file.is("snap") || file.path.contains("proptest-regressions/")
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn actions_with_a_tag_are_found() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let text = format!(
            "- uses: actions/checkout@{commit} # v4\n- uses: actions/checkout@v4\n- uses: ./local\n- uses: a/b@{commit}0\n"
        );
        let found = found(actions_are_pinned, &[(".github/workflows/ci.yaml", &text), ("docs/a.md", "uses: a/b@v1")]);
        assert_eq!(found, [".github/workflows/ci.yaml:2", ".github/workflows/ci.yaml:4"]);
    }

    #[test]
    fn base_images_without_a_digest_are_found() {
        let digest = "0123456789abcdef".repeat(4);
        let text = format!(
            "FROM rust:1@sha256:{digest} AS build\nFROM --platform=linux/amd64 rust:1 as other\nFROM build\nCOPY --from=other /a /b\n\
             COPY --from=busybox:1 /a /b\nfrom rust:1@sha256:{digest}0\nFROM scratch\nCOPY a b\nFROM rust:1.95-bookworm\n"
        );
        let found = found(images_are_pinned, &[("x/Dockerfile", &text), ("Dockerfile", "FROM rust:1.95-bookworm\n")]);
        assert_eq!(found, ["x/Dockerfile:2", "x/Dockerfile:5", "x/Dockerfile:6", "x/Dockerfile:9", "Dockerfile:1"]);
    }

    #[test]
    fn unclear_words_are_found() {
        let found = |text: &str| unclear("a.rs", text).map(|(line, _)| line).collect::<Vec<_>>();
        let text = concat!("a\nNo", "body waits\nit is to", "ld so\nno", "body_waits, has seen\nfor peo", "ple\n");
        assert_eq!(found(text), [2, 3, 5]);
        let passwd = concat!("/etc/passwd: no", "body");
        assert_eq!(unclear("testing/images/src/fixtures.rs", passwd).count(), 0);
        assert_eq!(found(passwd), [1]);
    }

    /// The number is that of CONTRIBUTING.md, so the test also fails if only the constant changes.
    #[test]
    fn file_of_more_than_500_lines_is_found() {
        let (longest, long) = ("line\n".repeat(500), "line\n".repeat(501));
        let files = [("a.rs", long.as_str()), ("a.md", long.as_str()), ("b.rs", longest.as_str())];
        assert_eq!(found(files_are_short, &files), ["a.rs"]);
    }

    #[test]
    fn every_exception_from_length_is_needed_and_has_a_reason() {
        for (path, reason) in LONG {
            let text = std::fs::read_to_string(crate::workspace::root().join(path)).unwrap_or_default();
            assert!(text.lines().count() > LONGEST && !reason.is_empty(), "{path} needs no exception any more");
        }
    }

    #[test]
    fn trailing_white_space_is_found() {
        let files = [("a.rs", "a \nb\n"), ("b.md", "b"), ("c.md", "c\n\n"), ("Cargo.lock", "d "), ("e.md", "")];
        assert_eq!(found(no_trailing_space, &files), ["a.rs:1", "b.md", "c.md"]);
    }

    #[test]
    fn machine_paths_are_found() {
        let path = concat!("/ro", "ot/");
        let text = format!("cd {path}x\nof(\"{path}\")\n$ROOT{path}x\n\"/root\"\n");
        assert_eq!(found(no_machine_paths, &[("a.md", &text)]), ["a.md:1", "a.md:2"]);
    }

    #[test]
    fn registry_hosts_are_found() {
        let text = concat!("see crates", ".io\nhttps://index.crates", ".io/x\n");
        assert_eq!(found(no_registries, &[("a.toml", text), ("Cargo.lock", text)]), ["a.toml:2"]);
    }

    #[test]
    fn postponed_work_markers_are_found() {
        let text = concat!("// TO", "DO: more\nto", "do!();\nmethod()\nTO", "DOS\n// TO", "DO(me)\n");
        assert_eq!(found(nothing_for_later, &[("a.rs", text)]), ["a.rs:1", "a.rs:2", "a.rs:5"]);
    }

    #[test]
    fn lint_exception_without_reason_is_found() {
        let text = "#[expect(dead_code, reason = \"soon\")]\n#![allow(dead_code)]\n// #[allow(x)]\n#[expect(\n    unused,\n)]\n";
        assert_eq!(found(exceptions_have_reasons, &[("a.rs", text)]), ["a.rs:2", "a.rs:4"]);
    }
}
