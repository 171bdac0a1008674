//! Rules for the file that selects the code of which `cargo xtask mutants` makes mutants. A module that moves, or that becomes a
//! folder, would leave the selection without notice.

use super::Finding;
use crate::glob::matches;
use crate::workspace::File;

/// The file that selects the code.
const SELECTION: &str = ".cargo/mutants.toml";

pub(super) fn patterns_match_files(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for selection in files.iter().filter(|file| file.path == SELECTION) {
        for (line, pattern) in patterns(selection, "examine_globs") {
            if !files.iter().any(|file| file.is("rs") && matches(pattern, &file.path)) {
                findings.push(Finding::in_line(selection, line, format!("no source file matches {pattern}")));
            }
        }
    }
    findings
}

pub(super) fn folders_of_modules_are_selected(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for selection in files.iter().filter(|file| file.path == SELECTION) {
        let (selected, excluded) = (patterns(selection, "examine_globs"), patterns(selection, "exclude_globs"));
        let is_in = |patterns: &[(usize, &str)], file: &File| patterns.iter().any(|(_, it)| matches(it, &file.path));
        let sources: Vec<&File> = files.iter().filter(|file| file.is("rs") && !is_in(&excluded, file)).collect();
        for module in sources.iter().filter(|file| is_in(&selected, file)) {
            let folder = format!("{}/", module.path.strip_suffix(".rs").unwrap_or(&module.path));
            let left_out = sources.iter().find(|file| file.path.starts_with(&folder) && !is_in(&selected, file));
            if let Some(File { path, .. }) = left_out {
                let message = format!("select {path} too, or exclude it: it is a part of {}", module.path);
                findings.push(Finding::in_file(SELECTION, message));
            }
        }
    }
    findings
}

/// A pattern without a reason could hide a mutant that a test should kill.
pub(super) fn exclusions_have_reasons(files: &[File]) -> Vec<Finding> {
    const QUOTES: [char; 2] = ['"', '\''];
    let mut findings = Vec::new();
    for selection in files.iter().filter(|file| file.path == SELECTION) {
        let (mut is_inside, mut has_reason) = (false, false);
        for (number, line) in (1..).zip(selection.text.lines().map(str::trim)) {
            let (is_pattern, is_comment) = (is_inside && line.starts_with(QUOTES), line.starts_with('#'));
            let list = line.split_once(" = [").filter(|_| !is_pattern && !is_comment);
            if let Some((key, _)) = list {
                is_inside = key.starts_with("exclude_");
            }
            let is_in_one_line = is_inside && list.is_some_and(|(_, patterns)| patterns.contains(QUOTES));
            if is_in_one_line || (is_pattern && !has_reason) {
                let advice =
                    "write the reason of each pattern in a comment above it, and each pattern in a line of its own";
                findings.push(Finding::in_line(selection, number, advice));
            }
            has_reason = is_comment;
            is_inside &= is_pattern || is_comment || !line.ends_with(']');
        }
    }
    findings
}

/// The patterns in the list of this name, with their lines.
fn patterns<'a>(selection: &'a File, list: &str) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(selection.text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        if let Some((key, _)) = line.split_once(" = [") {
            is_inside = key == list;
        }
        if is_inside {
            found.extend(line.split('"').skip(1).step_by(2).map(|pattern| (number, pattern)));
        }
        is_inside &= !line.trim_end().ends_with(']');
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    const FILE: &str = r#"# comment
examine_globs = [
    "shared/queue/src/**",
    "operators/*/src/known.rs", # with a comment
    "operators/*/src/course.rs",
]
exclude_globs = ["**/tests.rs", "**/tests/**"]
exclude_re = [
    'replace = with "x"',
]
"#;

    #[test]
    fn pattern_without_a_file_is_found() {
        let files = [
            (SELECTION, FILE),
            ("shared/queue/src/core/heap.rs", ""),
            ("operators/crontab-operator/src/known.rs", ""),
            ("operators/crontab-operator/src/course.md", ""),
            ("operators/flightticket-operator/src/deep/course.rs", ""),
        ];
        assert_eq!(found(patterns_match_files, &files), [".cargo/mutants.toml:5"]);
    }

    #[test]
    fn excluded_pattern_without_a_reason_is_found() {
        let text = "# Why.\nexamine_globs = [\n    \"a.rs\",\n]\nexclude_globs = [\"b.rs\"]\nexclude_re = [\n    # Why [x]\n    \
                    'replace = [x]'\n    ,\n    # Why,\n    # in two lines.\n    'b',\n    'c',\n]\ntest_tool = \"cargo\"\n";
        let expected = [5, 13].map(|line| format!("{SELECTION}:{line}"));
        assert_eq!(found(exclusions_have_reasons, &[(SELECTION, text)]), expected);
    }

    #[test]
    fn part_of_a_module_that_is_not_selected_is_found() {
        let module = [
            (SELECTION, FILE),
            ("shared/queue/src/core.rs", ""),
            ("shared/queue/src/core/heap.rs", ""),
            ("operators/crontab-operator/src/known.rs", ""),
            ("operators/crontab-operator/src/known/tests.rs", ""),
            ("operators/crontab-operator/src/known/tests/more.rs", ""),
        ];
        assert!(found(folders_of_modules_are_selected, &module).is_empty());
        let with_a_part = [&module[..], &[("operators/crontab-operator/src/known/memory.rs", "")]].concat();
        assert_eq!(found(folders_of_modules_are_selected, &with_a_part), [SELECTION]);
    }
}
