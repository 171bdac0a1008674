//! Answers the body of a request at a path: the part of the server that is a pure function.

use crate::{
    CONVERT, Conversion, Webhook,
    conversion::convert,
    review::{Malformed, Outcome, admit},
};

/// The answer to a review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The review with its response, as JSON.
    pub review: String,
    /// Whether the operator's function panicked. Then the review refuses.
    pub panicked: bool,
}

/// Answers the body of a request at this path as the server does, without a server: for tests of an operator's functions.
///
/// # Errors
///
/// The body is not a review, or no webhook has this path; the reason.
pub fn answer(webhooks: &[Webhook], path: &str, body: &[u8]) -> Result<Reply, String> {
    let of_path: Vec<Webhook> = webhooks.iter().filter(|webhook| webhook.path() == path).cloned().collect();
    let (review, outcome) = at(&of_path, path, body, |_| ()).map_err(|Malformed(why)| why)?;
    Ok(Reply { review, panicked: outcome == Outcome::Panicked })
}

/// Answers with the webhooks of one path.
pub(crate) fn at(
    webhooks: &[Webhook],
    path: &str,
    body: &[u8],
    report: impl Fn(&Conversion<'_>),
) -> Result<(String, Outcome), Malformed> {
    match webhooks {
        webhooks if path == CONVERT => convert(webhooks, body, report),
        [webhook] => admit(webhook, body),
        _ => Err(Malformed("nothing is served here".to_owned())),
    }
}
