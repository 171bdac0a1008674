//! Decisions without the API server, as pure functions: values in, values out.

mod attributes;
mod config;
mod identity;
mod paths;
mod rules;
mod shape;
mod template;

pub use attributes::{Attributes, Target};
pub use config::{Authorization, Config, ConfigError};
pub use identity::User;
pub use paths::{PathError, Patterns};
pub use shape::Shape;

pub(crate) use identity::{Credentials, credentials, user_of_certificate};
pub(crate) use shape::shape;
