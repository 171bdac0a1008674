//! A minimal lexer for Rust, which blanks comments and strings, so that the rules look only at names in code.

/// The text with spaces in place of comments and strings. All line breaks stay, and so do line numbers.
pub(super) fn code(text: &str) -> String {
    blank(text, |_| true)
}

/// The text with spaces in place of comments.
pub(crate) fn without_comments(text: &str) -> String {
    blank(text, |part| part == Part::Comment)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Comment,
    String,
}

fn blank(text: &str, blanks: impl Fn(Part) -> bool) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (length, part) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Part::Comment)
        } else if rest.starts_with("/*") {
            (block_comment(rest), Part::Comment)
        } else if let Some(length) = string(rest, code.chars().next_back()) {
            (length, Part::String)
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let is_blanked = blanks(part);
        code.extend(rest[..length].chars().map(|c| if is_blanked && c != '\n' { ' ' } else { c }));
        rest = &rest[length..];
    }
    code
}

/// The length of the block comment at the start, with its nested comments.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the string or character literal at the start, if there is one.
fn string(text: &str, before: Option<char>) -> Option<usize> {
    let inside_a_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| !inside_a_name && text.starts_with(prefix));
    if let Some(after) = prefix.map(|prefix| &text[prefix.len()..]) {
        let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
        if after[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = text.len() - after.len() + hashes + 1;
            return Some(text[open..].find(&close).map_or(text.len(), |end| open + end + close.len()));
        }
    }
    if text.starts_with('"') {
        return Some(quoted(text, '"'));
    }
    // 'a' and '\n' are characters, 'a is a lifetime.
    let mut characters = text.chars();
    let is_character = characters.next() == Some('\'') && (characters.next()? == '\\' || characters.next()? == '\'');
    is_character.then(|| quoted(text, '\''))
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether the line contains this word, and not only as a part of a longer word.
pub(crate) fn names(line: &str, word: &str) -> bool {
    let in_a_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(in_a_word) && !line[at + word.len()..].starts_with(in_a_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked() {
        for (text, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */\n*/ d", "a             \n   d"),
            (r#"f("a \" // b") // c"#, "f(           )     "),
            ("r#\"a \" b\"# c", "           c"),
            ("'\"' + '\\'' + b", "    +      + b"),
            ("<'a> \"b\" 'c: loop", "<'a>     'c: loop"),
            ("for\"a\"", "for   "),
            ("br\"\\\" rr", "      rr"),
        ] {
            assert_eq!(code(text), expected, "{text}");
        }
    }

    #[test]
    fn only_whole_words_match() {
        assert!(names("use kube::{Api, Client};", "Client"));
        assert!(names("manager::Error", "manager"));
        assert!(!names("BookingClient, Clients", "Client"));
        assert!(!names("controller_manager::run", "manager"));
    }
}
