//! Answers the body of a request at a path: the part of the server that is a pure function.

use crate::{
    CONVERT, Conversion, Webhook,
    conversion::convert,
    memory::LONG_REVIEWS,
    review::{Malformed, Outcome, admit},
    weight,
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
/// The body is not a review, its review would need too much memory, or no webhook has this path; the reason.
pub fn answer(webhooks: &[Webhook], path: &str, body: &[u8]) -> Result<Reply, String> {
    weigh(path, body)?;
    let of_path: Vec<Webhook> = webhooks.iter().filter(|webhook| webhook.path() == path).cloned().collect();
    let (review, outcome) = at(&of_path, path, body, |_| ()).map_err(|Malformed(why)| why)?;
    Ok(Reply { review, panicked: outcome == Outcome::Panicked })
}

/// Returns the bytes of memory that the review of a body at this path needs.
///
/// # Errors
///
/// It is more than all long reviews together may need; the reason.
pub(crate) fn weigh(path: &str, body: &[u8]) -> Result<u32, String> {
    let weight = if path == CONVERT { weight::of_conversion(body) } else { weight::of_admission(body) };
    u32::try_from(weight).ok().filter(|_| weight <= LONG_REVIEWS).ok_or_else(|| {
        format!("the review would need {weight} bytes of memory, more than the {LONG_REVIEWS} of all long reviews")
    })
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
