//! Parts of the text of a schedule.

use std::ops::Range;

use crate::error::Error;
use crate::field::Field;

/// A part of the text, with its position.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) whole: &'a str,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) field: Option<Field>,
}

impl<'a> Part<'a> {
    pub(crate) fn all(whole: &'a str) -> Self {
        Self { whole, start: 0, end: whole.len(), field: None }
    }

    pub(crate) fn text(&self) -> &'a str {
        &self.whole[self.start..self.end]
    }

    /// Returns a part of this part.
    pub(crate) fn slice(self, range: Range<usize>) -> Self {
        Self { start: self.start + range.start, end: self.start + range.end, ..self }
    }

    pub(crate) fn error(&self, what: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::new(self.whole, self.field, self.start..self.end, what, advice)
    }

    /// Splits at separators. Returns at least one part; parts may be empty.
    pub(crate) fn split(self, separator: fn(char) -> bool) -> impl Iterator<Item = Self> {
        let text = self.text();
        let ends = text.match_indices(separator).map(|(at, it)| (at, at + it.len())).chain([(text.len(), text.len())]);
        ends.scan(0, move |start, (end, next)| {
            let part = self.slice(*start..end);
            *start = next;
            Some(part)
        })
    }

    pub(crate) fn words(self) -> Vec<Self> {
        self.split(char::is_whitespace).filter(|word| !word.text().is_empty()).collect()
    }
}
