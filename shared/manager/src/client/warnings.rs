//! Warnings in the answers of the API server: a version is deprecated, a field is unknown, a policy objects.

use std::collections::BTreeSet;

use http::{HeaderMap, header::WARNING};
use parking_lot::Mutex;

use crate::metrics::Metrics;

/// The number of different warnings to log. A warning may contain the name of an object, and there may be many of these.
const LOGGED: usize = 100;

/// The warnings that were logged.
#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<BTreeSet<String>>);

impl Warnings {
    /// Counts the warnings in these headers, and logs each one that was not logged before.
    pub(super) fn report(&self, headers: &HeaderMap, metrics: &Metrics) {
        for text in headers.get_all(WARNING).iter().filter_map(|header| text(header.to_str().ok()?)) {
            metrics.client_warnings.inc();
            let mut logged = self.0.lock();
            if logged.len() < LOGGED && logged.insert(text.clone()) {
                tracing::warn!(warning = text, "The API server warns");
            }
        }
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
    fn every_warning_is_counted_and_logged_once() {
        let (metrics, warnings) = (Metrics::new(&MetricRegistry::default()), Warnings::default());
        let mut headers = HeaderMap::new();
        headers.append(WARNING, HeaderValue::from_static("299 - \"a\""));
        headers.append(WARNING, HeaderValue::from_static("299 - \"b\""));
        headers.append("other", HeaderValue::from_static("299 - \"c\""));
        warnings.report(&headers, &metrics);
        warnings.report(&headers, &metrics);
        assert_eq!(metrics.client_warnings.get(), 4);
        assert!(warnings.0.lock().iter().eq(["a", "b"]));
        for number in 0..2 * LOGGED {
            let value = HeaderValue::from_str(&format!("299 - \"{number}\"")).expect("a header");
            warnings.report(&HeaderMap::from_iter([(WARNING, value)]), &metrics);
        }
        assert_eq!(warnings.0.lock().len(), LOGGED);
    }
}
