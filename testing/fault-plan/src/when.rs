//! The moments of a request at which a rule can apply.

use std::fmt;

/// The point at which a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// The runner has not yet forwarded the request.
    Before,
    /// The server has handled the request, and the client has no answer yet.
    After,
    /// The client has the answer.
    Delivered,
    /// The runner is about to forward an event of a watch.
    Frame,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Delivered => "delivered",
            Self::Frame => "frame",
        })
    }
}
