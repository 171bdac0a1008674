//! Patterns for paths, as cargo-mutants understands them.

/// Whether a pattern matches a path: `**` stands for any folders, and at the end for everything below; `*` stands for any part of one
/// name.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    parts_match(&pattern, &path)
}

fn parts_match(pattern: &[&str], path: &[&str]) -> bool {
    match pattern {
        [] => path.is_empty(),
        ["**"] => !path.is_empty(),
        ["**", rest @ ..] => (0..path.len()).any(|at| parts_match(rest, &path[at..])),
        [part, rest @ ..] => {
            path.split_first().is_some_and(|(name, below)| name_matches(part, name) && parts_match(rest, below))
        }
    }
}

fn name_matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| &rest[at..]).chain([""]).any(|rest| name_matches(after, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_cargo_mutants() {
        for (pattern, path, expected) in [
            ("a/**", "a/b.rs", true),
            ("a/**", "a/b/c.rs", true),
            ("a/**", "a", false),
            ("a/**", "ab/c.rs", false),
            ("**/tests.rs", "tests.rs", true),
            ("**/tests.rs", "a/b/tests.rs", true),
            ("**/tests/**", "a/tests/b.rs", true),
            ("**/tests/**", "a/tests.rs", false),
            ("a/*/c.rs", "a/b/c.rs", true),
            ("a/*/c.rs", "a/b/b/c.rs", false),
            ("a/x-*.rs", "a/x-y.rs", true),
            ("a/x-*.rs", "a/y.rs", false),
            ("a/b.rs", "a/b.rs.txt", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
