//! The interface to the system that authenticates tokens and authorises users.

use futures::future::BoxFuture;

use crate::policy::{Attributes, User};

/// Authenticates tokens and authorises users. [`crate::ApiServer`] does it in production.
pub trait Reviewer: Send + Sync + 'static {
    /// Returns the user of a token; `None` if the token is invalid, or not for this audience.
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>>;

    /// Decides whether the user has this access.
    fn access<'a>(&'a self, user: &'a User, to: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>>;
}

/// The answer to an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the user has access.
    pub allowed: bool,
    /// The reason, as text for the log.
    pub reason: String,
}

/// The reviewer is not reachable, or gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);
