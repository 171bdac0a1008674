//! A registry and a network in trouble.

use std::sync::Arc;

use registry_client::Credentials;

use crate::access::token_server;
use crate::kit::{Fate, Proxy, Seen, anonymous, content, login};
use crate::push::{assert_complete, push};
use registry::Registry;

const FAULTS: [fn() -> Fate; 3] = [|| Fate::status(503), || Fate::BreakBefore, || Fate::BreakAfter];

/// Every request of a push fails once, in every way. The push still succeeds, and what it leaves is complete.
#[tokio::test]
async fn push_survives_a_fault_of_any_request() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::before(&registry).await;
    survives(&proxy, &Credentials::Anonymous, || Box::new(|_| Fate::Pass)).await;
}

/// The same with a token server, whose requests fail too.
#[tokio::test]
async fn push_with_tokens_survives_a_fault_of_any_request() {
    let registry = Registry::start().unwrap();
    let (proxy, folder) = (Proxy::before(&registry).await, tempfile::tempdir().unwrap());
    let user = login(folder.path(), proxy.address, "user", "secret");
    let address = proxy.address;
    survives(&proxy, &user, || Box::new(token_server(address, Arc::default()))).await;
}

/// Pushes once undisturbed, and then once for each kind of fault and each request. `otherwise` decides about the other requests.
async fn survives(proxy: &Proxy, user: &Credentials, otherwise: impl Fn() -> Box<dyn FnMut(&Seen) -> Fate + Send>) {
    let content = content(1, 20_000);
    let mut rule = otherwise();
    proxy.decide(move |_, request| rule(request));
    push(&proxy.client(user.clone()), &proxy.repository("whole"), &content).await.unwrap();
    let requests = proxy.seen().len();
    assert!(requests > 8, "{requests}");
    for (kind, fault) in FAULTS.iter().enumerate() {
        for disturbed in 0..requests {
            let repository = proxy.repository(&format!("fault/{kind}-{disturbed}"));
            let mut rule = otherwise();
            proxy.decide(move |number, request| if number == disturbed { fault() } else { rule(request) });
            // A new client each time, so that also the first request of a connection is disturbed.
            let client = proxy.client(user.clone());
            let pushed = push(&client, &repository, &content).await;
            pushed.unwrap_or_else(|error| panic!("{:?} at request {disturbed}: {error:#}", fault()));
            assert!(proxy.seen().len() > disturbed, "request {disturbed} was not disturbed");
            assert_complete(&client, &repository, &content).await;
        }
    }
}

/// The upload was complete, and only its answer was lost.
#[tokio::test]
async fn finished_upload_is_not_repeated() {
    let (_registry, proxy, client, repository) = anonymous().await;
    proxy.decide(|_, request| if request.method == "PUT" { Fate::BreakAfter } else { Fate::Pass });
    client.push_blob(&repository, &vec![3; 50_000].into()).await.unwrap();
    let sent: usize = proxy.seen().iter().map(|request| request.sent).sum();
    assert_eq!(sent, 50_000);
}

#[tokio::test]
async fn lasting_trouble_is_reported_after_some_attempts() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let blob = vec![3; 50].into();
    for (fault, expected) in [(Fate::status(503), "503"), (Fate::BreakBefore, "connection closed")] {
        let fault_again = fault.clone();
        proxy.decide(move |_, request| if request.method == "POST" { fault_again.clone() } else { Fate::Pass });
        let error = format!("{:#}", client.push_blob(&repository, &blob).await.unwrap_err());
        assert!(error.contains(expected) && error.contains(&repository.to_string()), "{error}");
        let attempts = proxy.seen().iter().filter(|request| request.method == "POST").count();
        assert_eq!(attempts, 4, "{fault:?}");
    }
}

#[tokio::test]
async fn refusal_is_reported_at_once() {
    let (_registry, proxy, client, repository) = anonymous().await;
    for status in [400, 403, 404, 405, 507] {
        // 507 is not temporary for its user, but every 5xx is retried.
        let attempts = if status < 500 { 1 } else { 4 };
        proxy.decide(move |_, request| if request.method == "POST" { Fate::status(status) } else { Fate::Pass });
        let error = format!("{:#}", client.push_blob(&repository, &vec![3; 50].into()).await.unwrap_err());
        assert!(error.contains(&status.to_string()), "{error}");
        assert_eq!(proxy.seen().iter().filter(|request| request.method == "POST").count(), attempts, "{status}");
    }
}

#[tokio::test]
async fn push_that_the_registry_forbids_is_found_without_a_push() {
    let (_registry, proxy, client, repository) = anonymous().await;
    for (status, attempts) in [(403, 1), (404, 1), (503, 4)] {
        let answer = Fate::Answer(status, vec![], "why".to_owned());
        proxy.decide(move |_, request| if request.method == "POST" { answer.clone() } else { Fate::Pass });
        let error = format!("{:#}", client.check_push(&repository).await.unwrap_err());
        assert!(error.contains(&format!("upload to {repository}")), "{error}");
        assert!(error.contains(&status.to_string()) && error.contains("why"), "{error}");
        let seen = proxy.seen();
        assert_eq!(seen.iter().filter(|request| request.method == "POST").count(), attempts, "{status}");
    }
}
