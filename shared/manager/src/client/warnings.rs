//! Warnings in the answers of the API server: a version is deprecated, a field is unknown, a policy objects.

use std::collections::BTreeSet;

use http::{HeaderMap, header::WARNING};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::{events::cut, metrics::Metrics};

/// The number of different warnings to log. A warning may contain the name of an object, and there may be many of these.
const LOGGED: usize = 100;
/// The longest text of a warning in the log, in bytes. The API server cuts its own ones at 4 KiB; those of others have no limit.
const LONGEST: usize = 1_024;
/// What follows the last warning in the log.
const LAST: &str = " (further warnings are only counted, in operator_api_warnings_total)";

/// The hashes of the warnings that were logged.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<BTreeSet<u64>>);

impl Warnings {
    /// Counts the warnings in these headers, and logs each one that was not logged before.
    pub(super) fn report(&self, headers: &HeaderMap, metrics: &Metrics) {
        for text in headers.get_all(WARNING).iter().filter_map(|header| text(header.to_str().ok()?)) {
            metrics.client_warnings.inc();
            if let Some(warning) = self.line(&text) {
                tracing::warn!(warning, "The API server warns");
            }
        }
    }

    /// What to log of a warning; `None` if it was logged before, or if enough others were.
    fn line(&self, text: &str) -> Option<String> {
        let mut logged = self.0.lock();
        let is_new = logged.len() < LOGGED && logged.insert(xxh3_64(text.as_bytes()));
        let end = if logged.len() == LOGGED { LAST } else { "" };
        is_new.then(|| format!("{}{end}", cut(text, LONGEST)))
    }
}

/// Returns the text of a header such as `299 - "v1beta1 is deprecated"`.
fn text(header: &str) -> Option<String> {
    let quoted = header.strip_prefix("299 ")?.split_once('"')?.1;
    let mut text = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some(text),
            '\\' => text.push(characters.next()?),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::metrics::MetricRegistry;

    #[test]
    fn text_of_a_warning_is_read() {
        assert_eq!(text(r#"299 - "v1beta1 is deprecated""#).as_deref(), Some("v1beta1 is deprecated"));
        assert_eq!(
            text(r#"299 api "unknown field \"spec.a\"" "Tue, 24 Nov 2026""#).as_deref(),
            Some(r#"unknown field "spec.a""#)
        );
        for header in ["", "299", "110 - \"stale\"", "299 - \"no end", "299 - \"no end\\"] {
            assert_eq!(text(header), None, "{header}");
        }
    }

    #[test]
    fn each_warning_is_logged_once_and_few_of_many() {
        let warnings = Warnings::default();
        assert_eq!(warnings.line("a").as_deref(), Some("a"));
        assert_eq!((warnings.line("a"), warnings.line("b").as_deref()), (None, Some("b")));
        let long = warnings.line(&"x".repeat(100 * LONGEST)).expect("it is new");
        assert!((LONGEST / 2..=LONGEST).contains(&long.len()), "{}", long.len());
        let lines: Vec<String> = (0..2 * LOGGED).filter_map(|number| warnings.line(&number.to_string())).collect();
        assert_eq!(lines.len(), LOGGED - 3);
        let (last, others) = lines.split_last().expect("lines");
        assert!(last.ends_with(LAST) && !others.iter().any(|line| line.ends_with(LAST)), "{last}");
    }

    #[test]
    fn every_warning_is_counted() {
        let (metrics, warnings) = (Metrics::new(&MetricRegistry::default()), Warnings::default());
        let mut headers = HeaderMap::new();
        headers.append(WARNING, HeaderValue::from_static("299 - \"a\""));
        headers.append(WARNING, HeaderValue::from_static("299 - \"b\""));
        headers.append("other", HeaderValue::from_static("299 - \"c\""));
        warnings.report(&headers, &metrics);
        warnings.report(&headers, &metrics);
        assert_eq!(metrics.client_warnings.get(), 4);
        assert_eq!(warnings.0.lock().len(), 2);
    }
}
