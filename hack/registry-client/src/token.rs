//! Tokens, which a registry's token server gives for the user's password. The library has this exchange too, but its errors do not
//! tell a refusal from a server in trouble, and it sends the password wherever the registry says.

use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use http_auth::parse_challenges;
use oci_client::RegistryOperation;
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::{RegistryToken, RegistryTokenType};
use reqwest::Url;

use crate::PlainHttp;
use crate::error::Error;
use crate::retry::is_temporary;

/// What a registry wants from its clients.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    /// Nothing.
    Open,
    /// The password in each request.
    Password,
    /// A token from this server.
    Token { server: String, service: Option<String> },
}

/// The credentials for requests to this repository; `None` if the registry wants none, or the user has none.
///
/// `registry` is its address, such as `https://ghcr.io`.
pub(crate) async fn token(
    http: &reqwest::Client,
    registry: &str,
    repository: &str,
    operation: RegistryOperation,
    credentials: &RegistryAuth,
    plain_http: PlainHttp,
) -> Result<Option<RegistryTokenType>, Error> {
    let url = format!("{registry}/v2/");
    let answer = http.get(&url).send().await.map_err(OciDistributionError::from)?;
    if is_temporary(answer.status()) {
        let (code, message) = (answer.status().as_u16(), "the registry is in trouble".to_owned());
        return Err(OciDistributionError::ServerError { code, url, message }.into());
    }
    let headers = answer.headers().get_all(WWW_AUTHENTICATE).iter();
    let wanted = challenge(headers.filter_map(|header| header.to_str().ok()));
    match (wanted, credentials) {
        (Challenge::Token { server, service }, _) => {
            let scope = scope(repository, operation);
            let token = ask(http, server, service.as_deref(), &scope, credentials, plain_http).await?;
            Ok(Some(RegistryTokenType::Bearer(token)))
        }
        (Challenge::Password, RegistryAuth::Basic(user, password)) => {
            Ok(Some(RegistryTokenType::Basic(user.clone(), password.clone())))
        }
        (Challenge::Password | Challenge::Open, _) => Ok(None),
    }
}

/// Gets a token from the server.
async fn ask(
    http: &reqwest::Client,
    server: String,
    service: Option<&str>,
    scope: &str,
    credentials: &RegistryAuth,
    plain_http: PlainHttp,
) -> Result<RegistryToken, Error> {
    let url = Url::parse(&server).map_err(|error| OciDistributionError::UrlParseError(format!("{server}: {error}")))?;
    let mut query = vec![("scope", scope)];
    query.extend(service.map(|service| ("service", service)));
    let mut request = http.get(url.clone()).query(&query);
    if let RegistryAuth::Basic(user, password) = credentials {
        if !may_get_password(&url, plain_http) {
            return Err(Error::Unencrypted { server });
        }
        request = request.basic_auth(user, Some(password));
    }
    let answer = match request.send().await {
        Ok(answer) => answer,
        Err(source) => return Err(Error::NoTokenServer { server, source }),
    };
    let status = answer.status();
    let text = match answer.text().await {
        Ok(text) => text,
        Err(source) => return Err(Error::NoTokenServer { server, source }),
    };
    match status {
        StatusCode::OK => serde_json::from_str(&text)
            .map_err(|error| OciDistributionError::RegistryTokenDecodeError(error.to_string()).into()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Err(OciDistributionError::AuthenticationFailure(text).into())
        }
        status => Err(Error::TokenServer { server, status, text }),
    }
}

/// Whether a password on its way to this server cannot be read by others, or the user allows that.
fn may_get_password(server: &Url, plain_http: PlainHttp) -> bool {
    server.scheme() == "https" || plain_http.allows(server.host_str().unwrap_or_default())
}

fn scope(repository: &str, operation: RegistryOperation) -> String {
    let actions = match operation {
        RegistryOperation::Pull => "pull",
        RegistryOperation::Push => "pull,push",
    };
    format!("repository:{repository}:{actions}")
}

/// The challenge in these headers. A registry may offer several; a token keeps the password away from it.
fn challenge<'a>(headers: impl Iterator<Item = &'a str>) -> Challenge {
    let mut found = Challenge::Open;
    for header in headers {
        if let Some((server, service)) = token_server(header) {
            return Challenge::Token { server, service };
        }
        found = Challenge::Password;
    }
    found
}

/// The address and the name of the service in a challenge for tokens.
fn token_server(header: &str) -> Option<(String, Option<String>)> {
    let challenges = parse_challenges(header).ok()?;
    let mut tokens = challenges.iter().filter(|challenge| challenge.scheme.eq_ignore_ascii_case("Bearer"));
    tokens.find_map(|challenge| {
        let named = |name: &str| {
            let found = challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.to_unescaped())
        };
        Some((named("realm")?, named("service")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_goes_only_to_servers_where_others_cannot_read_it() {
        let may = |server: &str, plain_http| may_get_password(&Url::parse(server).unwrap(), plain_http);
        for server in ["http://localhost:5000/token", "http://127.0.0.1:5000/token", "http://[::1]/token"] {
            assert!(may(server, PlainHttp::Loopback), "{server}");
            assert!(!may(server, PlainHttp::Never), "{server}");
        }
        for server in ["http://example.com/token", "http://10.0.0.1/token", "http://127.0.0.1.example.com/token"] {
            assert!(!may(server, PlainHttp::Loopback), "{server}");
            assert!(may(server, PlainHttp::Allowed), "{server}");
        }
        assert!(may("https://example.com/token", PlainHttp::Never));
    }

    #[test]
    fn token_is_preferred_to_a_password_in_each_request() {
        let of = |headers: &[&'static str]| challenge(headers.iter().copied());
        let server = "https://example.com/token".to_owned();
        let with_service = Challenge::Token { server: server.clone(), service: Some("a b".to_owned()) };
        let bearer = "bearer Realm=\"https://example.com/token\",service=\"a b\"";
        assert_eq!(of(&[]), Challenge::Open);
        assert_eq!(of(&["Basic realm=\"test\""]), Challenge::Password);
        assert_eq!(of(&[bearer]), with_service);
        assert_eq!(of(&["Basic realm=\"test\"", bearer]), with_service);
        let both = "Basic realm=\"test\", Bearer realm=\"https://example.com/token\"";
        assert_eq!(of(&[both]), Challenge::Token { server, service: None });
        assert_eq!(of(&["Bearer service=\"no server\""]), Challenge::Password);
    }
}
