//! Shows the difference between a stale file and its generated content.

use std::fmt::Write as _;
use std::path::Path;

/// The maximum number of lines to show of one file, so that the next file stays visible.
const LINES: usize = 12;

/// The lines between the first and the last difference, as `diff` writes them.
pub(super) fn between(path: &Path, old: Option<&str>, new: Option<&str>) -> String {
    let what = match (old, new) {
        (None, _) => " (is missing)",
        (_, None) => " (no longer generated)",
        _ => "",
    };
    let (old, new): (Vec<_>, Vec<_>) = (lines(old), lines(new));
    let start = old.iter().zip(&new).take_while(|(one, other)| one == other).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(one, other)| one == other).count();
    let mut text = format!("{}:{}{what}\n", path.display(), start + 1);
    if what.is_empty() {
        excerpt(&mut text, '-', &old[start..old.len() - end]);
        excerpt(&mut text, '+', &new[start..new.len() - end]);
    }
    text
}

fn lines(text: Option<&str>) -> Vec<&str> {
    text.unwrap_or_default().lines().collect()
}

fn excerpt(text: &mut String, sign: char, lines: &[&str]) {
    for line in lines.iter().take(LINES) {
        let _ = writeln!(text, "{sign} {line}"); // writing to a String cannot fail
    }
    if lines.len() > LINES {
        let _ = writeln!(text, "{sign} … and {} lines more", lines.len() - LINES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_lines_are_shown() {
        let shown = between(Path::new("a.yaml"), Some("1\n2\n3\n4\n"), Some("1\ntwo\n3\n4\n"));
        assert_eq!(shown, "a.yaml:2\n- 2\n+ two\n");
        assert_eq!(between(Path::new("a"), Some("1\n1\n"), Some("1\n")), "a:2\n- 1\n");
    }

    #[test]
    fn missing_and_obsolete_files_are_only_named() {
        assert_eq!(between(Path::new("a"), None, Some("1\n")), "a:1 (is missing)\n");
        assert_eq!(between(Path::new("a"), Some("1\n"), None), "a:1 (no longer generated)\n");
    }

    #[test]
    fn a_long_difference_is_cut() {
        let shown = between(Path::new("a"), Some(""), Some(&"line\n".repeat(20)));
        assert!(shown.ends_with("+ … and 8 lines more\n"), "{shown}");
    }
}
