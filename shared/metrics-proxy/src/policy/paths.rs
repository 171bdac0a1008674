//! Patterns of paths, with the syntax of Go's `path.Match`: `*` and `?` do not match a `/`.

/// A list of patterns, such as that of `--allow-paths`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patterns {
    patterns: Vec<Vec<Piece>>,
}

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pattern:?} is not a pattern for paths: {problem}")]
pub struct PathError {
    pattern: String,
    problem: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Char(char),
    /// Any character but `/`.
    One,
    /// Any number of characters but `/`.
    Many,
    /// `[^a-z]`: whether negated, and the ranges.
    Class(bool, Vec<(char, char)>),
}

impl Patterns {
    /// Parses patterns, and refuses those that can never match.
    pub fn parse<T: AsRef<str>>(patterns: &[T]) -> Result<Self, PathError> {
        let patterns = patterns.iter().map(|pattern| parse(pattern.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Whether a pattern matches the whole path.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<char> = path.chars().collect();
        self.patterns.iter().any(|pattern| matches(pattern, &path))
    }
}

fn parse(pattern: &str) -> Result<Vec<Piece>, PathError> {
    let refuse = |problem| PathError { pattern: pattern.to_owned(), problem };
    if !pattern.starts_with('/') {
        return Err(refuse("it must begin with /"));
    }
    let mut pieces = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(first) = chars.next() {
        pieces.push(match first {
            '*' => Piece::Many,
            '?' => Piece::One,
            '\\' => Piece::Char(chars.next().ok_or_else(|| refuse("nothing follows \\"))?),
            '[' => {
                let negated = chars.next_if_eq(&'^').is_some();
                let mut ranges = Vec::new();
                let end = || refuse("[ without ]");
                while chars.next_if_eq(&']').is_none() || ranges.is_empty() {
                    let low = class_char(&mut chars).ok_or_else(end)?;
                    let is_range = chars.next_if_eq(&'-').is_some();
                    let high = if is_range { class_char(&mut chars).ok_or_else(end)? } else { low };
                    ranges.push((low, high));
                }
                Piece::Class(negated, ranges)
            }
            other => Piece::Char(other),
        });
    }
    Ok(pieces)
}

fn class_char(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match chars.next()? {
        '\\' => chars.next(),
        '-' | ']' => None,
        other => Some(other),
    }
}

/// Matches without recursion, so that no pattern takes long: after a mismatch, only the last `*` matches one more character.
fn matches(pattern: &[Piece], path: &[char]) -> bool {
    let (mut p, mut at) = (0, 0);
    let mut star = None;
    loop {
        if let Some(Piece::Many) = pattern.get(p) {
            star = Some((p, at));
            p += 1;
        } else if p == pattern.len() && at == path.len() {
            return true;
        } else if let (Some(piece), Some(c)) = (pattern.get(p), path.get(at))
            && piece.fits(*c)
        {
            (p, at) = (p + 1, at + 1);
        } else {
            let Some((many, from)) = star.filter(|(_, from)| path.get(*from).is_some_and(|c| *c != '/')) else {
                return false;
            };
            star = Some((many, from + 1));
            (p, at) = (many + 1, from + 1);
        }
    }
}

impl Piece {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Char(it) => *it == c,
            Self::One => c != '/',
            Self::Many => false,
            Self::Class(negated, ranges) => {
                c != '/' && ranges.iter().any(|(low, high)| (low..=high).contains(&&c)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, path, expected) in [
            ("/metrics", "/metrics", true),
            ("/metrics", "/metrics/", false),
            ("/metrics", "/Metrics", false),
            ("/", "/", true),
            ("/*", "/", true),
            ("/*", "/metrics", true),
            ("/*", "/a/b", false),
            ("/api/v1/label/*/values", "/api/v1/label/job/values", true),
            ("/api/v1/label/*/values", "/api/v1/label/name", false),
            ("/api/v1/label/*/values", "/api/v1/label/a/b/values", false),
            ("/api/v1/label/*/values", "/api/v1/label//values", true),
            ("/a*b*c", "/axbxxbyc", true),
            ("/a*b*c", "/axbxxby/c", false),
            ("/a*/b", "/abc/b", true),
            ("/?", "/a", true),
            ("/?", "/", false),
            ("/a?b", "/a/b", false),
            ("/[a-c]x", "/bx", true),
            ("/[^a-c]x", "/bx", false),
            ("/[^a-c]x", "/dx", true),
            ("/[^a]b", "//b", false),
            ("/\\*", "/*", true),
            ("/\\*", "/a", false),
            ("/ä*", "/äö", true),
        ] {
            let patterns = Patterns::parse(&[pattern]).unwrap();
            assert_eq!(patterns.matches(path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn any_pattern_may_match_and_empty_list_matches_nothing() {
        let patterns = Patterns::parse(&["/metrics", "/api/*"]).unwrap();
        assert!(patterns.matches("/api/x") && patterns.matches("/metrics") && !patterns.matches("/other"));
        assert!(!Patterns::default().matches("/metrics"));
    }

    #[test]
    fn broken_patterns_are_refused() {
        for pattern in ["metrics", "", "*", "/[", "/[a", "/[]", "/[a-]", "/[-a]", "/a\\", "/[a-\\"] {
            assert!(Patterns::parse(&[pattern]).is_err(), "{pattern:?}");
        }
        let error = Patterns::parse(&["/ok", "/[a"]).unwrap_err();
        assert_eq!(error.to_string(), "\"/[a\" is not a pattern for paths: [ without ]");
    }

    #[test]
    fn pathological_pattern_does_not_stall_matching() {
        let pattern = format!("/{}b", "*a".repeat(50));
        let path = format!("/{}", "a".repeat(5_000));
        let since = std::time::Instant::now();
        assert!(!Patterns::parse(&[&pattern]).unwrap().matches(&path));
        assert!(since.elapsed().as_secs() < 5);
    }
}
