//! Passwords, tokens and encryption.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use rcgen::{CertificateParams, Issuer, KeyPair};
use registry_client::{Client, Credentials, Options, PlainHttp};
use serde_json::json;

use crate::kit::{Fate, Proxy, Seen, client, content, login, options, repository};
use crate::push::{assert_complete, push};
use registry::Registry;

/// The password "secret" of `user`, as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

#[tokio::test]
async fn password_opens_the_registry() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("htpasswd");
    fs::write(&file, HTPASSWD).unwrap();
    let registry = Registry::with(&json!({"htpasswd": {"realm": "test", "path": file}}), json!({})).unwrap();
    let (address, content) = (registry.address, content(1, 1000));
    let repository = repository(address, "app");

    let user = client(address, login(folder.path(), address, "user", "secret"));
    push(&user, &repository, &content).await.unwrap();
    assert_complete(&user, &repository, &content).await;

    for refused in [Credentials::Anonymous, login(folder.path(), address, "user", "wrong")] {
        let error = push(&client(address, refused), &repository, &content).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(&format!("`docker login {address}`")), "{error}");
        assert!(!error.contains("wrong"), "{error}");
    }
}

/// A registry that takes tokens of the present generation, and a token server that gives them to a user with a password.
pub(crate) fn token_server(proxy: SocketAddr, generation: Arc<AtomicUsize>) -> impl FnMut(&Seen) -> Fate + Send {
    let challenge = format!("Bearer realm=\"http://{proxy}/token\",service=\"test\"");
    move |request| {
        let token = format!("token-{}", generation.load(Ordering::Relaxed));
        let authorization = request.authorization.as_deref().unwrap_or_default();
        if request.uri.path() == "/token" {
            // "user:secret"
            return if authorization == "Basic dXNlcjpzZWNyZXQ=" {
                Fate::Answer(200, vec![], json!({"token": token}).to_string())
            } else {
                Fate::Answer(401, vec![], "no".to_owned())
            };
        }
        if authorization == format!("Bearer {token}") {
            return Fate::Pass;
        }
        Fate::Answer(401, vec![("www-authenticate", challenge.clone())], String::new())
    }
}

#[tokio::test]
async fn password_buys_tokens_and_an_expired_token_is_renewed() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let generation = Arc::new(AtomicUsize::new(1));
    let (address, repository) = (proxy.address, proxy.repository("team/app"));
    let mut rule = token_server(address, generation.clone());
    proxy.decide(move |_, request| rule(request));
    let (folder, content) = (tempfile::tempdir().unwrap(), content(1, 1000));
    let user = proxy.client(login(folder.path(), address, "user", "secret"));
    push(&user, &repository, &content).await.unwrap();

    let seen = proxy.seen();
    let scopes: Vec<_> = seen.iter().filter(|it| it.uri.path() == "/token").filter_map(|it| it.uri.query()).collect();
    assert!(scopes.iter().any(|it| it.contains("scope=repository%3Ateam%2Fapp%3Apull%2Cpush")), "{scopes:?}");
    assert!(scopes.iter().all(|it| it.contains("service=test")), "{scopes:?}");
    let with_password = |it: &&Seen| it.authorization.as_deref().is_some_and(|it| it.starts_with("Basic"));
    let leaked = seen.iter().filter(with_password).filter(|it| it.uri.path() != "/token").count();
    assert_eq!(leaked, 0, "the registry got the password, which only the token server should get");

    generation.fetch_add(1, Ordering::Relaxed);
    let blob = Bytes::from_static(b"later");
    user.push_blob(&repository, &blob).await.unwrap();

    let other_user = proxy.client(login(folder.path(), address, "user", "wrong"));
    let error = format!("{:#}", other_user.push_blob(&repository, &blob).await.unwrap_err());
    assert!(error.contains("Authentication failure"), "{error}");
}

/// A registry that sends its clients to this token server.
fn sends_to(token_server: &str) -> impl FnMut(&Seen) -> Fate + Send + use<> {
    let challenge = format!("Bearer realm=\"{token_server}\",service=\"test\"");
    move |_| Fate::Answer(401, vec![("www-authenticate", challenge.clone())], String::new())
}

#[tokio::test]
async fn token_server_may_be_in_trouble_for_a_while() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (address, folder) = (proxy.address, tempfile::tempdir().unwrap());
    let user = proxy.client(login(folder.path(), address, "user", "secret"));
    let (mut rule, mut troubles) = (token_server(address, Arc::default()), 0);
    proxy.decide(move |_, request| {
        if request.uri.path() == "/token" && troubles < 3 {
            troubles += 1;
            return Fate::status(503);
        }
        rule(request)
    });
    user.push_blob(&proxy.repository("app"), &Bytes::from_static(b"x")).await.unwrap();
}

#[tokio::test]
async fn lasting_trouble_of_the_token_server_is_no_refusal() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let (address, folder) = (proxy.address, tempfile::tempdir().unwrap());
    let user = proxy.client(login(folder.path(), address, "user", "secret"));
    let (repository, blob) = (proxy.repository("app"), Bytes::from_static(b"x"));
    let token_server = format!("http://{address}/token");
    for (trouble, says) in [(Fate::status(503), "answers 503"), (Fate::BreakBefore, "does not answer")] {
        let mut rule = sends_to(&token_server);
        proxy.decide(move |_, request| if request.uri.path() == "/token" { trouble.clone() } else { rule(request) });
        let error = format!("{:#}", user.push_blob(&repository, &blob).await.unwrap_err());
        assert!(error.contains(&format!("the token server {token_server} {says}")), "{error}");
        assert!(!error.contains("docker login"), "{error}");
        let asked = proxy.seen().iter().filter(|request| request.uri.path() == "/token").count();
        assert!(asked >= 4, "it asked only {asked} times");
    }

    // A server that is not there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let token_server = format!("http://{}/token", listener.local_addr().unwrap());
    drop(listener);
    let mut rule = sends_to(&token_server);
    proxy.decide(move |_, request| rule(request));
    let error = format!("{:#}", user.push_blob(&repository, &blob).await.unwrap_err());
    assert!(error.contains(&format!("the token server {token_server} does not answer")), "{error}");
    assert!(!error.contains("docker login"), "{error}");
    assert_eq!(proxy.seen().len(), 4, "one question to the registry for each attempt");
}

#[tokio::test]
async fn no_password_goes_to_a_token_server_without_encryption() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    let folder = tempfile::tempdir().unwrap();
    let user = proxy.client(login(folder.path(), proxy.address, "user", "secret"));
    let mut rule = sends_to("http://token.invalid/token");
    proxy.decide(move |_, request| rule(request));
    let pushed = user.push_blob(&proxy.repository("app"), &Bytes::from_static(b"x")).await;
    let error = format!("{:#}", pushed.unwrap_err());
    assert!(error.contains("http://token.invalid/token, which has no encryption"), "{error}");
    assert_eq!(proxy.seen().len(), 1, "it tried again");
}

/// The upload goes to a host of the registry's choice, which must not see the user's password.
#[tokio::test]
async fn upload_elsewhere_carries_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::start().unwrap();
    let (proxy, elsewhere) = (Proxy::before(&registry).await, Proxy::before(&registry).await);
    let repository = proxy.repository("app");
    let target = format!("http://{}/upload?state=1", elsewhere.address);
    proxy.decide(move |_, request| match (request.method.as_str(), request.uri.path()) {
        ("GET", "/v2/") => {
            Fate::Answer(401, vec![("www-authenticate", "Basic realm=\"test\"".to_owned())], String::new())
        }
        ("POST", _) => Fate::Answer(202, vec![("location", target.clone())], String::new()),
        _ => Fate::Pass,
    });
    elsewhere.decide(|_, _| Fate::Answer(201, vec![("location", "/v2/app/blobs/x".to_owned())], String::new()));
    let user = proxy.client(login(folder.path(), proxy.address, "user", "secret"));
    user.push_blob(&repository, &Bytes::from_static(b"content")).await.unwrap();
    let (seen, elsewhere) = (proxy.seen(), elsewhere.seen());
    assert!(seen.iter().any(|request| request.authorization.is_some()));
    assert_eq!(elsewhere.len(), 1);
    assert_eq!(elsewhere[0].authorization, None);
}

#[tokio::test]
async fn encrypted_registry_needs_a_trusted_authority() {
    let folder = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let (params, key) = (CertificateParams::new(["localhost".to_owned()]).unwrap(), KeyPair::generate().unwrap());
    let certificate = params.signed_by(&key, &Issuer::from_params(&authority, &authority_key)).unwrap();
    let (certificate_file, key_file) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    fs::write(&certificate_file, certificate.pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let tls = json!({"tls": {"certificate": certificate_file, "key": key_file}});
    let registry = Registry::with(&json!({}), tls).unwrap();

    let host = format!("localhost:{}", registry.address.port());
    let trusting = |authorities| {
        let options = Options { authorities, plain_http: PlainHttp::Never, ..options(Credentials::Anonymous) };
        Client::new(&host, options).unwrap()
    };
    let repository = images::reference::Repository::parse(&format!("{host}/app")).unwrap();
    let error = trusting(None).push_blob(&repository, &Bytes::from_static(b"x")).await.unwrap_err();
    assert!(format!("{error:#}").contains("certificate"), "{error:#}");
    let pushed = trusting(Some(authority_pem.into_bytes())).push_blob(&repository, &Bytes::from_static(b"x")).await;
    pushed.unwrap();
}
