//! The identity of a client: the credentials in its request, and the user.

use std::collections::BTreeMap;

use http::{HeaderMap, header::AUTHORIZATION};
use serde::Serialize;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A user, as Kubernetes describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct User {
    /// Such as `system:serviceaccount:monitoring:prometheus`.
    pub name: String,
    /// Empty if the authenticator gives none.
    pub uid: String,
    /// Such as `system:authenticated`.
    pub groups: Vec<String>,
    /// Extra fields from the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The credentials in the headers of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Credentials<'a> {
    /// A well-formed token.
    Token(&'a str),
    /// No token, or a malformed one.
    None,
}

/// Longest accepted token, in bytes. Longer ones are refused without a review.
const LONGEST_TOKEN: usize = 16 * 1024;

/// Reads the token of a request: exactly one header, with one token of the characters that RFC 6750 allows.
pub(crate) fn credentials(headers: &HeaderMap) -> Credentials<'_> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Credentials::None };
    let Some((scheme, token)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else {
        return Credentials::None;
    };
    let token = token.trim_matches(' ');
    let text = token.trim_end_matches('=');
    let is_token = !text.is_empty() && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._~+/".contains(&it));
    if scheme.eq_ignore_ascii_case("bearer") && is_token && token.len() <= LONGEST_TOKEN {
        Credentials::Token(token)
    } else {
        Credentials::None
    }
}

/// Reads a certificate as Kubernetes does: the last common name is the user, organisations are groups. `None` if there is no name.
pub(crate) fn user_of_certificate(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().last()?.as_str().ok()?.to_owned();
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().map(|it| it.as_str().map(str::to_owned));
    let groups = groups.chain([Ok("system:authenticated".to_owned())]).collect::<Result<_, _>>().ok()?;
    Some(User { name, groups, ..User::default() })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token(values: &[&[u8]]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        match credentials(&headers) {
            Credentials::Token(token) => Some(token.to_owned()),
            Credentials::None => None,
        }
    }

    #[test]
    fn only_well_formed_bearer_token_is_accepted() {
        for (value, expected) in [
            ("Bearer abc", "abc"),
            ("bearer abc", "abc"),
            ("BEARER  abc ", "abc"),
            ("Bearer a.b-c_d~e+f/g==", "a.b-c_d~e+f/g=="),
        ] {
            assert_eq!(token(&[value.as_bytes()]).as_deref(), Some(expected), "{value}");
        }
        let long = format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1));
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer =",
            "Basic YTpi",
            "Bearer a,b",
            "Bearer a b",
            "Bearer a,Bearer b",
            "Token abc",
            "Bearer\tabc",
            "abc",
            "Bearer a=b",
            &long,
        ] {
            assert_eq!(token(&[value.as_bytes()]), None, "{value:?}");
        }
        assert_eq!(token(&[b"Bearer \xe4"]), None);
        assert_eq!(token(&[b"Bearer a", b"Bearer a"]), None, "two headers");
        assert_eq!(token(&[]), None);
    }

    fn certificate(common_name: Option<&str>, organisations: &[&str]) -> Vec<u8> {
        use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        for organisation in organisations {
            params.distinguished_name.push(DnType::OrganizationName, *organisation);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn certificate_subject_gives_user_and_groups() {
        let user = user_of_certificate(&certificate(Some("prometheus"), &["monitoring"])).unwrap();
        assert_eq!(user.name, "prometheus");
        assert_eq!(user.groups, ["monitoring", "system:authenticated"]);
        assert_eq!(user_of_certificate(&certificate(None, &["monitoring"])), None);
        assert_eq!(user_of_certificate(&certificate(Some(""), &[])), None);
        assert_eq!(user_of_certificate(b"nothing"), None);
    }

    #[test]
    fn last_common_name_counts_as_in_go() {
        let names = ["viewer", "admin"];
        let mut der = certificate(Some(names[0]), &[]);
        assert_eq!(user_of_certificate(&der).unwrap().name, "viewer");
        // `rcgen` writes one common name only: turn the organisation into a second one.
        der = certificate(Some(names[0]), &names[1..]);
        let (organisation, common_name) = ([0x06, 3, 0x55, 4, 10], [0x06, 3, 0x55, 4, 3]);
        for at in 0..der.len() - 5 {
            if der[at..at + 5] == organisation {
                der[at..at + 5].copy_from_slice(&common_name);
            }
        }
        let expected =
            User { name: "admin".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() };
        assert_eq!(user_of_certificate(&der), Some(expected));
    }
}
