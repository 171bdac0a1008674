//! The wire format of a condition of a Pod or a Job, reduced to the fields that one of their views needs.

use jiff::Timestamp;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Condition {
    pub(crate) r#type: Box<str>,
    pub(crate) status: Box<str>,
    #[serde(default)]
    pub(crate) reason: Box<str>,
    #[serde(default)]
    pub(crate) message: Box<str>,
    #[serde(default)]
    pub(crate) last_transition_time: Option<Timestamp>,
}
