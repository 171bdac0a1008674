//! Tests with a provider whose certificate the operator issues, as in the chart, and with one whose certificate another authority has
//! issued. The test mounts the Secret, as a kubelet does.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use cluster::{Cluster, Nodes};
use flightticket_operator::{
    FlightTicketOperator,
    api::v1::Phase,
    booking::{Failure, Https, Transport as _, Trust},
};
use k8s_openapi::api::core::v1::Secret;
use manager::shared_certificate_permissions;
use manager_testing::{World, condition};
use serde_json::json;

use crate::{
    desk::{BINARY, Desk, NAME, SAMPLE, quiet_world},
    provider::Provider,
};

const SECRET: &str = "booking-certificate";

/// Writes the certificate of the Secret to the files of the provider. Returns the authorities.
async fn mount(desk: &Desk) -> String {
    let is_there = async || desk.world.get::<Secret>(SECRET).await?.data;
    let data = desk.world.until("the operator makes the Secret", is_there).await;
    let text = |key: &str| String::from_utf8(data[key].0.clone()).expect("text");
    write(&desk.provider.path(""), &text("tls.crt"), &text("tls.key"));
    text("ca.crt")
}

fn write(folder: &Path, certificate: &str, key: &str) {
    for (name, text) in [("tls.crt", certificate), ("tls.key", key)] {
        fs::write(folder.join(name), text).expect("written");
    }
}

/// Sends a request that needs no token. Returns the class of the failure, if it fails.
async fn request(url: &str, trust: Trust) -> Result<u16, Failure> {
    let request = http::Request::get(format!("{url}/v1/bookings")).body(bytes::Bytes::new()).expect("a request");
    Ok(Https::new(trust, Duration::from_secs(10)).send(request).await?.status().as_u16())
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_issues_the_providers_certificate_and_trusts_only_its_own_authority() {
    let Some(world) = quiet_world().await else { return };
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let provider = Provider::with(|options, folder| {
        write(folder, &other.cert.pem(), &other.signing_key.serialize_pem());
        options.tls = Some((folder.join("tls.crt"), folder.join("tls.key")));
    })
    .await;
    let mut desk = Desk { world, provider };
    desk.world.allow("provider", &shared_certificate_permissions(SECRET)).await;
    let flags = [
        format!("--booking-url={}", desk.provider.url),
        format!("--booking-certificate-secret={SECRET}"),
        format!("--leader-election-namespace={}", desk.world.namespace),
        "--booking-poll-interval=1s".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    desk.world.run(&flags);

    // A server with another certificate gets no request, and so no token either.
    desk.world.apply(SAMPLE).await;
    let refusal = desk.until(NAME, "Unknown", "ProviderUnavailable").await;
    assert_eq!(refusal.phase, Phase::Pending);
    let ticket = desk.get(NAME).await;
    let why = condition(&ticket, "Ready").expect("a condition").message.clone();
    assert!(why.contains("certificate"), "{why}");
    assert_eq!(desk.provider.audit().journal, 0);

    let first = mount(&desk).await;
    desk.until_booked(NAME).await;

    // A client that does not know the authority refuses the provider.
    let refused = request(&desk.provider.url, Trust::System).await.expect_err("an unknown authority").to_string();
    assert!(refused.contains("certificate"), "{refused}");
    let authorities = desk.provider.path("ca.crt");
    fs::write(&authorities, &first).expect("written");
    assert_eq!(request(&desk.provider.url, Trust::File(authorities)).await.expect("an answer"), 200);

    // Any order of restarts: the operator finds its Secret again, and books at once.
    desk.world.run(&flags);
    desk.apply("after-restart", &json!({})).await;
    desk.until_booked("after-restart").await;
    assert_eq!(
        desk.world.get::<Secret>(SECRET).await.and_then(|it| it.data).map(|it| it["ca.crt"].0.clone()),
        Some(first.clone().into_bytes())
    );

    // Who deletes the Secret gets another one. The provider's old certificate stays trusted until it has the new one.
    desk.world.delete::<Secret>(SECRET).await;
    let second = mount(&desk).await;
    assert!(second.contains(&first) && second != first, "{second}");
    desk.apply("after-deletion", &json!({})).await;
    desk.until_booked("after-deletion").await;
    assert!(desk.world.requests().forbidden().is_empty(), "{:?}", desk.world.requests());
}

/// A script that runs the operator with this value of `SSL_CERT_FILE`, as the chart's value `caBundle` does.
fn operator_that_trusts(authorities: &Path, folder: &Path) -> PathBuf {
    let script = folder.join("operator");
    let run = format!("SSL_CERT_FILE='{}' exec '{BINARY}' \"$@\"", authorities.display());
    fs::write(&script, format!("#!/bin/sh\nunset SSL_CERT_DIR\n{run}\n")).expect("written");
    fs::set_permissions(&script, Permissions::from_mode(0o755)).expect("executable");
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_with_a_certificate_of_a_trusted_authority_gets_requests() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let provider = Provider::with(|options, folder| {
        write(folder, &own.cert.pem(), &own.signing_key.serialize_pem());
        options.tls = Some((folder.join("tls.crt"), folder.join("tls.key")));
    })
    .await;
    let authorities = provider.path("ca.crt");
    let operator = operator_that_trusts(&authorities, &provider.path(""));
    let shared = || Cluster::shared(Nodes::None);
    let Some(world) = World::prepare(&FlightTicketOperator, operator, shared).await else { return };
    let mut desk = Desk { world, provider };
    desk.run("1s");

    // The image has no authorities.
    desk.world.apply(SAMPLE).await;
    desk.until(NAME, "Unknown", "ProviderUnavailable").await;
    let ticket = desk.get(NAME).await;
    let why = condition(&ticket, "Ready").expect("a condition").message.clone();
    assert!(why.contains("set SSL_CERT_FILE (in the chart: caBundle)"), "{why}");

    fs::write(&authorities, own.cert.pem()).expect("written");
    desk.until_booked(NAME).await;
}
