//! Who knows what we do not.

use futures::future::BoxFuture;

use crate::policy::{Attributes, User};

/// Knows who has a token, and who may do what.
pub trait Reviewer: Send + Sync + 'static {
    /// Whose token it is, if anybody's who may use it here.
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>>;

    /// Whether the user may do it.
    fn access<'a>(&'a self, user: &'a User, to: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>>;
}

/// What a reviewer thinks of a user's wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may be.
    pub allowed: bool,
    /// Why, in words.
    pub reason: String,
}

/// Nobody could be asked, or there was no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReviewError(pub String);
