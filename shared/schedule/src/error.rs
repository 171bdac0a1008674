//! What is wrong with an expression, where, and what is right.

use std::fmt::{Display, Formatter, Result, Write};
use std::ops::Range;

use crate::field::Field;

/// Why a text is no schedule.
///
/// [`Display`] gives one line for conditions, events and webhooks, [`Error::why`] that line without its beginning, and
/// [`Error::pointed`] a picture for the terminal:
///
/// ```
/// let error = "0 9 * * mon-7".parse::<schedule::Schedule>().unwrap_err();
/// assert_eq!(error.why(), "day of week, character 13: 7 is too large; use 0 for Sunday");
/// assert_eq!(error.to_string(), format!("invalid cronSpec \"0 9 * * mon-7\": {}", error.why()));
/// assert_eq!(
///     error.pointed(),
///     "\
/// error: day of week: 7 is too large
///   |
///   | 0 9 * * mon-7
///   |             ^ use 0 for Sunday
/// "
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    field: Option<Field>,
    /// The bytes of the text that are wrong.
    span: Range<usize>,
    what: String,
    advice: String,
}

impl Error {
    pub(crate) fn new(
        text: &str,
        field: Option<Field>,
        span: Range<usize>,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        // What is wrong may repeat the text.
        Self { text: text.to_owned(), field, span, what: shown(&what.into()), advice: advice.into() }
    }

    /// The field that is wrong, if it is one of the five.
    pub fn field(&self) -> Option<Field> {
        self.field
    }

    /// Where the mistake is: the number of its first character, counted from one.
    pub fn position(&self) -> usize {
        self.text[..self.span.start].chars().count() + 1
    }

    /// The reason alone, in one line.
    pub fn why(&self) -> String {
        let mut why = String::new();
        if let Some(field) = self.field {
            let _infallible = write!(why, "{}, character {}: ", field.name(), self.position());
        }
        why + &self.what + "; " + &self.advice
    }

    /// Several lines for the terminal: what is wrong, the text, and an arrow with what would be right.
    pub fn pointed(&self) -> String {
        let field = self.field.map(|field| format!("{}: ", field.name())).unwrap_or_default();
        let mut arrows = " ".repeat(shown(&self.text[..self.span.start]).chars().count());
        arrows.push_str(&"^".repeat(shown(&self.text[self.span.clone()]).chars().count().max(1)));
        format!("error: {field}{}\n  |\n  | {}\n  | {arrows} {}\n", self.what, shown(&self.text), self.advice)
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "invalid cronSpec \"{}\": {}", shown(&self.text), self.why())
    }
}

impl std::error::Error for Error {}

/// The text without what would move the cursor or end the line.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
