//! The operation of a request, as metrics, faults and the status page name it.

use http::Method;

/// One operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// `POST /v1/bookings`
    Create,
    /// `GET /v1/bookings`
    List,
    /// `GET /v1/bookings/{id}`
    Get,
    /// `PATCH /v1/bookings/{id}`
    Modify,
    /// `DELETE` of a booking or a reference
    Cancel,
    /// `PUT /v1/bookings/{id}/reference`
    Adopt,
    /// `GET /v1/references/{reference}`
    Lookup,
}

impl Op {
    /// Every operation.
    pub const ALL: [Self; 7] =
        [Self::Create, Self::List, Self::Get, Self::Modify, Self::Cancel, Self::Adopt, Self::Lookup];

    /// Its name in metrics, in faults and on the status page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::List => "list",
            Self::Get => "get",
            Self::Modify => "modify",
            Self::Cancel => "cancel",
            Self::Adopt => "adopt",
            Self::Lookup => "lookup",
        }
    }

    /// The operation with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }

    /// The operation of a request, and the id or reference in its path. `None` if the request is not one of the API's.
    pub fn of<'a>(method: &Method, path: &'a str) -> Option<(Self, Option<&'a str>)> {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (op, subject) = match (method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "bookings"]) => (Self::Create, None),
            ("GET" | "HEAD", ["v1", "bookings"]) => (Self::List, None),
            ("GET" | "HEAD", ["v1", "bookings", id]) => (Self::Get, Some(*id)),
            ("PATCH", ["v1", "bookings", id]) => (Self::Modify, Some(*id)),
            ("DELETE", ["v1", "bookings" | "references", subject]) => (Self::Cancel, Some(*subject)),
            ("PUT", ["v1", "bookings", id, "reference"]) => (Self::Adopt, Some(*id)),
            ("GET" | "HEAD", ["v1", "references", reference]) => (Self::Lookup, Some(*reference)),
            _ => return None,
        };
        Some((op, subject))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_is_derived_from_method_and_path() {
        let of = |method: &Method, path| Op::of(method, path);
        assert_eq!(of(&Method::POST, "/v1/bookings"), Some((Op::Create, None)));
        assert_eq!(of(&Method::GET, "/v1/bookings"), Some((Op::List, None)));
        assert_eq!(of(&Method::GET, "/v1/bookings/BK-1"), Some((Op::Get, Some("BK-1"))));
        assert_eq!(of(&Method::PATCH, "/v1/bookings/BK-1"), Some((Op::Modify, Some("BK-1"))));
        assert_eq!(of(&Method::DELETE, "/v1/bookings/BK-1"), Some((Op::Cancel, Some("BK-1"))));
        assert_eq!(of(&Method::DELETE, "/v1/references/r"), Some((Op::Cancel, Some("r"))));
        assert_eq!(of(&Method::GET, "/v1/references/r"), Some((Op::Lookup, Some("r"))));
        assert_eq!(of(&Method::PUT, "/v1/bookings/BK-1/reference"), Some((Op::Adopt, Some("BK-1"))));
        assert_eq!(of(&Method::PUT, "/v1/bookings"), None);
        assert_eq!(of(&Method::GET, "/"), None);
    }

    #[test]
    fn operation_names_round_trip() {
        assert!(Op::ALL.into_iter().all(|op| Op::parse(op.name()) == Some(op)));
    }
}
