//! The error of an invalid expression: what is wrong, where, and the correction.

use std::fmt::{Display, Formatter, Result};
use std::ops::Range;

use crate::field::Field;

/// Why a text is not a valid schedule.
///
/// [`Display`] gives one line for conditions, events and webhooks, [`Error::why`] the same line without its beginning, and
/// [`Error::pointed`] several lines for the terminal:
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
    /// The number of the expression with the mistake, from 1, if there are several.
    expression: Option<usize>,
    field: Option<Field>,
    /// The byte range of the mistake.
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
        // `what` may quote the text, so control characters must go.
        Self { text: text.to_owned(), expression: None, field, span, what: shown(&what.into()), advice: advice.into() }
    }

    /// Says which of several expressions has the mistake, counted from 1.
    pub(crate) fn in_expression(self, number: usize) -> Self {
        Self { expression: Some(number), ..self }
    }

    /// Returns the field with the mistake, if it is in one of the five.
    pub fn field(&self) -> Option<Field> {
        self.field
    }

    /// Returns the position of the mistake: the number of its first character, counted from 1.
    pub fn position(&self) -> usize {
        self.text[..self.span.start].chars().count() + 1
    }

    /// Returns only the reason, in one line.
    pub fn why(&self) -> String {
        let expression = self.expression.map(|n| format!("expression {n}"));
        let field = self.field.map(|field| format!("{}, character {}", field.name(), self.position()));
        let places: Vec<_> = expression.into_iter().chain(field).collect();
        let place = if places.is_empty() { String::new() } else { places.join(", ") + ": " };
        place + &self.what + "; " + &self.advice
    }

    /// Returns several lines for the terminal: the mistake, the text, and an arrow with the correction.
    pub fn pointed(&self) -> String {
        let expression = self.expression.map(|n| format!("expression {n}: ")).unwrap_or_default();
        let field = self.field.map(|field| format!("{}: ", field.name())).unwrap_or_default();
        let mut arrows = " ".repeat(shown(&self.text[..self.span.start]).chars().count());
        arrows.push_str(&"^".repeat(shown(&self.text[self.span.clone()]).chars().count().max(1)));
        format!(
            "error: {expression}{field}{}\n  |\n  | {}\n  | {arrows} {}\n",
            self.what,
            shown(&self.text),
            self.advice
        )
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "invalid cronSpec \"{}\": {}", shown(&self.text), self.why())
    }
}

impl std::error::Error for Error {}

/// Replaces all characters of the text that would move the cursor or end the line.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
