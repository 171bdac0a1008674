//! Errors as text.

use std::{any::Any, error::Error as StdError};

use kube::core::Status;

/// Returns an error and its causes, joined by `: `. Control characters become spaces, so that a message can neither forge a log
/// line nor command a terminal.
pub fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = message(error);
    let mut source = cause(error);
    while let Some(error) = source {
        let next = message(error);
        if !text.ends_with(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause(error);
    }
    text.replace(char::is_control, " ")
}

fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    if answer(error).is_some() { None } else { error.source() }
}

fn message(error: &(dyn StdError + 'static)) -> String {
    match answer(error) {
        Some(status) => format!("{} (code {})", sentence(status), status.code),
        None => error.to_string(),
    }
}

/// Returns the API server's answer, if the error holds one. kube would print it twice, the second time as Rust code.
fn answer<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Status> {
    let boxed = || error.downcast_ref::<Box<kube::Error>>().map(|error| &**error);
    match error.downcast_ref().or_else(boxed) {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// The reason that kube sets for an answer that is not a `Status`, but a page of a proxy or a load balancer.
pub const NO_STATUS: &str = "Failed to parse error data";
/// How many characters of such a page go into the message.
const LONGEST: usize = 200;

/// Returns the server's message or, for a page, its first line without the markup.
pub fn sentence(status: &Status) -> String {
    if status.reason != NO_STATUS {
        return status.message.clone();
    }
    let mut inside = false;
    let text: String = status
        .message
        .chars()
        .filter_map(|character| match character {
            '<' => {
                inside = true;
                Some('\n')
            }
            '>' if inside => {
                inside = false;
                None
            }
            _ => (!inside).then_some(character),
        })
        .collect();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("an empty answer");
    let shortened: String = line.chars().take(LONGEST).collect();
    if shortened.len() < line.len() { shortened + "…" } else { shortened }
}

/// Returns the message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, reason: reason.into(), message: message.into(), ..Status::default() }))
    }

    #[test]
    fn control_characters_become_spaces() {
        let error = api(422, "Invalid", "a\u{1b}[31m\r\nlevel=error\tb\u{9b}c\u{7f}é");
        assert_eq!(chain(&error), "a [31m  level=error b c é (code 422)");
    }

    #[test]
    fn a7_load_balancer_page_is_shortened_to_one_line() {
        let long = "x".repeat(5_000);
        let cut = format!("{}…", "x".repeat(LONGEST));
        for (page, told) in [
            (
                "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>Sorry</h1></body></html>",
                "502 Bad Gateway",
            ),
            ("404 page not found", "404 page not found"),
            ("", "an empty answer"),
            ("<html", "an empty answer"),
            ("a > b\nc", "a > b"),
            (&long, &cut),
        ] {
            assert_eq!(chain(&api(502, NO_STATUS, page)), format!("{told} (code 502)"), "{page}");
        }
        assert_eq!(chain(&api(422, "Invalid", "spec.a: must be < 3")), "spec.a: must be < 3 (code 422)");
    }
}
