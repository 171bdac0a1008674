//! Which manifests refer to another one, in registries with and without an API for this question.

use bytes::Bytes;
use images::Digest;
use images::reference::Repository;
use registry_client::{Client, Credentials, Name};
use serde_json::json;

use crate::kit::{Fate, INDEX, MANIFEST, Proxy, Seen, anonymous, content};
use crate::push::push;
use registry::Registry;

/// What clients keep for this registry, which has no such API: the list of what refers to `subject`, with one entry.
async fn keep_list(client: &Client, repository: &Repository, subject: &Digest) -> Digest {
    let content = content(7, 10);
    push(client, repository, &content).await.unwrap();
    let referrer = Digest::of(&content.manifest);
    let entry = json!({"mediaType": MANIFEST, "digest": referrer.to_string(), "size": content.manifest.len()});
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    let tag = Name::of_referrers(subject);
    client.push_manifest(repository, &tag, INDEX, &Bytes::from(list.to_string())).await.unwrap();
    referrer
}

fn asks_for_referrers(request: &Seen) -> bool {
    request.uri.path().contains("/referrers/")
}

#[tokio::test]
async fn list_under_the_tag_counts_if_the_registry_has_no_referrers_api() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let subject = Digest::of(b"subject");
    assert!(client.referrers(&repository, &subject).await.unwrap().is_empty());
    let referrer = keep_list(&client, &repository, &subject).await;
    let unsupported = json!({"errors": [{"code": "UNSUPPORTED", "message": "no"}]}).to_string();
    for answer in [
        Fate::Pass, // 404
        Fate::Answer(400, vec![], unsupported.clone()),
        Fate::Answer(405, vec![], unsupported),
        Fate::status(406),
        Fate::status(501),
    ] {
        let of_api = answer.clone();
        proxy.decide(move |_, request| if asks_for_referrers(request) { of_api.clone() } else { Fate::Pass });
        assert_eq!(
            client.referrers(&repository, &subject).await.unwrap(),
            std::slice::from_ref(&referrer),
            "{answer:?}"
        );
        assert_eq!(proxy.seen().iter().filter(|it| asks_for_referrers(it)).count(), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn list_of_the_referrers_api_counts_if_there_is_one() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let (subject, referrer) = (Digest::of(b"subject"), Digest::of(b"referrer"));
    let entry = json!({"mediaType": MANIFEST, "digest": referrer.to_string(), "size": 8});
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    proxy.decide(
        move |_, request| {
            if asks_for_referrers(request) { Fate::Answer(200, vec![], list.clone()) } else { Fate::Pass }
        },
    );
    assert_eq!(client.referrers(&repository, &subject).await.unwrap(), [referrer]);
}

/// A page of the list with this entry, and with this header `Link`.
fn page(referrer: &Digest, link: Option<String>) -> Fate {
    let entry = json!({"mediaType": MANIFEST, "digest": referrer.to_string(), "size": 8});
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
    Fate::Answer(200, link.map(|link| ("link", link)).into_iter().collect(), list)
}

/// Otherwise a release would sign again what only the second page has.
#[tokio::test]
async fn every_page_of_the_list_counts() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let subject = Digest::of(b"subject");
    let referrers = [Digest::of(b"first"), Digest::of(b"second"), Digest::of(b"third")];
    let (of_rule, path) = (referrers.clone(), format!("/v2/app/referrers/{subject}"));
    proxy.decide(move |_, request| {
        if !asks_for_referrers(request) {
            return Fate::Pass;
        }
        // An absolute path, and one relative to the page.
        match request.uri.query() {
            None => page(&of_rule[0], Some(format!("<{path}?last=1>; rel=\"next\""))),
            Some("last=1") => page(&of_rule[1], Some("<?last=2>; rel=\"next\"".to_owned())),
            Some(_) => page(&of_rule[2], None),
        }
    });
    assert_eq!(client.referrers(&repository, &subject).await.unwrap(), referrers);
    assert_eq!(proxy.seen().iter().filter(|it| asks_for_referrers(it)).count(), 3);
}

#[tokio::test]
async fn list_without_its_later_pages_is_an_error() {
    let registry = Registry::start().unwrap();
    let (proxy, elsewhere) = (Proxy::before(&registry).await, Proxy::before(&registry).await);
    let (client, repository) = (proxy.client(Credentials::Anonymous), proxy.repository("app"));
    let subject = Digest::of(b"subject");
    keep_list(&client, &repository, &subject).await;
    let other_host = format!("http://{}/v2/app/referrers/{subject}?last=1", elsewhere.address);
    let endless = format!("/v2/app/referrers/{subject}");
    for (link, says) in [("?last=1", "404"), (other_host.as_str(), "page 2"), (endless.as_str(), "page 1001")] {
        let link = format!("<{link}>; rel=\"next\"");
        proxy.decide(move |_, request| match request.uri.query() {
            Some("last=1") => Fate::status(404),
            _ if asks_for_referrers(request) => page(&Digest::of(b"first"), Some(link.clone())),
            _ => Fate::Pass,
        });
        let error = format!("{:#}", client.referrers(&repository, &subject).await.unwrap_err());
        assert!(error.contains(says) && error.contains(&subject.to_string()), "{says}: {error}");
    }
    assert_eq!(elsewhere.seen().len(), 0);
}

#[tokio::test]
async fn registry_in_trouble_may_have_a_referrers_api() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let subject = Digest::of(b"subject");
    let referrer = keep_list(&client, &repository, &subject).await;
    for status in [429, 503] {
        let mut first = true;
        proxy.decide(move |_, request| {
            let is_disturbed = asks_for_referrers(request) && std::mem::take(&mut first);
            if is_disturbed { Fate::status(status) } else { Fate::Pass }
        });
        assert_eq!(client.referrers(&repository, &subject).await.unwrap(), std::slice::from_ref(&referrer), "{status}");
    }
    for (status, attempts) in [(429, 4), (503, 4), (403, 1)] {
        proxy.decide(move |_, request| if asks_for_referrers(request) { Fate::status(status) } else { Fate::Pass });
        let error = format!("{:#}", client.referrers(&repository, &subject).await.unwrap_err());
        assert!(error.contains(&status.to_string()) && error.contains(&subject.to_string()), "{error}");
        assert_eq!(proxy.seen().iter().filter(|it| asks_for_referrers(it)).count(), attempts, "{status}");
    }
}

/// Otherwise a release would sign everything again.
#[tokio::test]
async fn list_that_the_registry_does_not_give_is_not_empty() {
    let (_registry, proxy, client, repository) = anonymous().await;
    let subject = Digest::of(b"subject");
    keep_list(&client, &repository, &subject).await;
    let too_many = json!({"errors": [{"code": "TOOMANYREQUESTS", "message": "slow down"}]}).to_string();
    proxy.decide(move |_, request| {
        let is_list = request.uri.path().contains("/manifests/sha256-");
        if is_list { Fate::Answer(429, vec![], too_many.clone()) } else { Fate::Pass }
    });
    let error = format!("{:#}", client.referrers(&repository, &subject).await.unwrap_err());
    assert!(error.contains("slow down"), "{error}");
}

/// As GHCR does.
#[tokio::test]
async fn registry_that_sends_clients_elsewhere_has_no_referrers_api() {
    let registry = Registry::start().unwrap();
    let (proxy, site) = (Proxy::before(&registry).await, Proxy::before(&registry).await);
    let (client, repository) = (proxy.client(Credentials::Anonymous), proxy.repository("app"));
    let subject = Digest::of(b"subject");
    let referrer = keep_list(&client, &repository, &subject).await;
    let place = format!("http://{}/packages", site.repository("app").registry);
    proxy.decide(move |_, request| {
        let elsewhere = Fate::Answer(303, vec![("location", place.clone())], String::new());
        if asks_for_referrers(request) { elsewhere } else { Fate::Pass }
    });
    for answer in [Fate::status(429), Fate::Answer(200, vec![], "<html>".to_owned())] {
        site.decide(move |_, _| answer.clone());
        assert_eq!(client.referrers(&repository, &subject).await.unwrap(), std::slice::from_ref(&referrer));
        assert_eq!(site.seen().len(), 1);
    }
}

/// As GitLab does.
#[tokio::test]
async fn subject_in_place_of_the_list_is_no_list() {
    let (_registry, _proxy, client, repository) = anonymous().await;
    let content = content(7, 10);
    push(&client, &repository, &content).await.unwrap();
    let subject = Digest::of(&content.manifest);
    let tag = Name::of_referrers(&subject);
    client.push_manifest(&repository, &tag, MANIFEST, &content.manifest).await.unwrap();
    assert!(client.referrers(&repository, &subject).await.unwrap().is_empty());
}
