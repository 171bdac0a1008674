//! Tests of the webhooks with a real API server, which calls the binary in a process of its own.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::{
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use cluster::Port;
use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

mod conversion;
mod migration;
mod world;

use world::{Manager, NAMESPACE, World, cache, message, refused, until};

fn bundle_of(configuration: &ValidatingWebhookConfiguration) -> String {
    let webhook = &configuration.webhooks.as_ref().unwrap()[0];
    String::from_utf8(webhook.client_config.ca_bundle.clone().unwrap().0).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_rejects_new_errors_and_accepts_stored_ones() {
    let Some(world) = World::new().await else { return };
    world.create("older", &refused()).await.expect("no webhook yet");
    let mut manager = world.by_url(&[]).await;

    let error = world.create("a", &refused()).await.expect_err("is refused");
    let expected = "admission webhook \"vmemcached-v1.memcached.cache.example.com\" denied the request: \
                    Memcached.memcached.cache.example.com \"a\" is invalid: spec.config.extraArgs[0]: \"-p\"";
    assert!(message(&error).starts_with(expected), "{error}");

    let kubectl = world
        .cluster
        .kubectl(["create", "--namespace", NAMESPACE, "--filename", "-", "--dry-run=server"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|mut child| {
            let moving = serde_json::to_string(&cache("b", &json!({"image": "memcached:latest"})))?;
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), moving.as_bytes())?;
            child.wait_with_output()
        })
        .unwrap();
    let said = String::from_utf8_lossy(&kubectl.stderr);
    assert!(said.contains("Warning: spec.image: \"memcached:latest\" has no fixed tag"), "{said}");

    let scaled = json!({"spec": {"size": 2}});
    world.caches().patch("older", &PatchParams::default(), &Patch::Merge(&scaled)).await.expect("another field");
    let worse = json!({"spec": {"config": {"extraArgs": ["-p 2"]}}});
    world.caches().patch("older", &PatchParams::default(), &Patch::Merge(&worse)).await.expect_err("the same field");
    world.caches().delete("older", &DeleteParams::default()).await.expect("deleted");

    // At its end, the manager removes the webhook configuration that it has created for its URL.
    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(manager.child.wait().unwrap().success());
    assert!(world.configurations().get_opt("controller-manager").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn h1_h4_unanswered_webhook_applies_the_failure_policy() {
    let Some(world) = World::new().await else { return };
    let manager = world.by_url(&[]).await;
    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let error = world.create("a", &json!({})).await.expect_err("the webhook does not answer");
    assert!(message(&error).contains("failed calling webhook"), "{error}");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    world.create("a", &json!({})).await.expect("the webhook answers again");
    until("the operator's own writes pass", async || {
        world.caches().get("a").await.unwrap().data["status"]["observedGeneration"] == 1
    })
    .await;

    drop(manager); // kills the process, so the webhook configuration stays
    let error = world.create("b", &json!({})).await.expect_err("the webhook is gone");
    // The API server finds a closed port, or one of its connections closed.
    assert!(message(&error).contains("failed calling webhook"), "{error}");
    let status = json!({"status": {"nodes": []}});
    let patched = world.caches().patch_status("a", &PatchParams::default(), &Patch::Merge(&status)).await;
    patched.expect("status writes need no webhook");
}

#[tokio::test(flavor = "multi_thread")]
async fn h3_certificate_renewal_fails_no_request() {
    let Some(world) = World::new().await else { return };
    // An authority is valid four times as long as a certificate. It is replaced after two thirds of that time: after 24 s.
    let _manager = world.by_url(&["--webhook-cert-lifetime", "9s"]).await;
    let first = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let asking: Vec<_> = (0..4)
        .map(|index| {
            let (stop, sent, api) = (stop.clone(), sent.clone(), world.caches());
            tokio::spawn(async move {
                let parameters = PostParams { dry_run: true, ..PostParams::default() };
                let mut ticks = tokio::time::interval(Duration::from_millis(40)); // 25 a second, four times
                while !stop.load(Ordering::Relaxed) {
                    ticks.tick().await;
                    let asked = api.create(&parameters, &cache(&format!("a{index}"), &refused())).await;
                    let error = asked.expect_err("is refused");
                    assert!(message(&error).contains("denied the request"), "{error}");
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    until("a new authority signs", async || {
        let bundle = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
        let signs = bundle.split("-----END CERTIFICATE-----").next().unwrap().to_owned();
        !first.contains(&signs)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in asking {
        task.await.expect("no request failed");
    }
    assert!(sent.load(Ordering::Relaxed) > 100, "{} requests", sent.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_certificate_and_leave_other_webhooks_alone() {
    let Some(world) = World::new().await else { return };
    let mut configuration: ValidatingWebhookConfiguration = serde_json::from_value(
        manager::webhook_configurations(controller_manager::OPERATORS, "controller-manager", NAMESPACE, "hooks")
            .remove(0),
    )
    .unwrap();
    let webhooks = configuration.webhooks.as_mut().unwrap();
    let mut foreign = webhooks[0].clone();
    foreign.name = "other.example.com".to_owned();
    webhooks.insert(0, foreign);
    // No server answers at the Service here: this test checks only which authority each webhook trusts.
    for webhook in webhooks.iter_mut() {
        webhook.failure_policy = Some("Ignore".to_owned());
    }
    apply_as_helm(&world, &configuration).await;

    let service = format!("{NAMESPACE}/hooks");
    let replicas: Vec<Manager> =
        (0..3).map(|_| world.start(Port::reserve().unwrap(), &["--webhook-service", &service])).collect();
    for replica in &replicas {
        replica.until_ready().await;
    }
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let secret = secrets.get("webhook-server-cert").await.unwrap();
    let value = |key: &str| String::from_utf8(secret.data.as_ref().unwrap()[key].0.clone()).unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(value("ca.crt").matches("BEGIN CERTIFICATE").count(), 1, "the replicas create one authority");
    let stored = world.configurations().get("controller-manager").await.unwrap();
    for webhook in stored.webhooks.iter().flatten() {
        let trusted = webhook.client_config.ca_bundle.as_ref().map(|bundle| bundle.0.clone());
        let ours = webhook.name.starts_with("vmemcached-"); // the only operator that runs here
        assert_eq!(trusted, ours.then(|| value("ca.crt").into_bytes()), "{}", webhook.name);
        assert!(webhook.rules.is_some() && webhook.client_config.service.is_some(), "only the bundle is ours");
    }
    // Helm 4 must be able to remove our webhook. If our field manager owned its bundle, an entry with only the bundle would stay.
    let mut without = configuration.clone();
    without.metadata.managed_fields = None;
    without.webhooks.as_mut().unwrap().retain(|webhook| !webhook.name.starts_with("vmemcached-"));
    let stored = apply_as_helm(&world, &without).await;
    assert!(stored.webhooks.iter().flatten().all(|webhook| !webhook.name.starts_with("vmemcached-")));
}

/// Applies a configuration, as Helm 4 does in an installation and in an upgrade.
async fn apply_as_helm(
    world: &World,
    configuration: &ValidatingWebhookConfiguration,
) -> ValidatingWebhookConfiguration {
    let parameters = PatchParams::apply("helm");
    let api = world.configurations();
    api.patch("controller-manager", &parameters, &Patch::Apply(configuration)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn h2_readiness_reports_an_untrusted_certificate() {
    let Some(world) = World::new().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let authority = |name: &str| {
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        (pem.clone(), rcgen::Issuer::from_ca_cert_pem(&pem, key).unwrap())
    };
    let ((right, signs), (wrong, _)) = (authority("right"), authority("wrong"));
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec![format!("hooks.{NAMESPACE}.svc")];
    let certificate = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &signs).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("ca.crt", &wrong);

    let flags = ["--webhook-service", &format!("{NAMESPACE}/hooks"), "--webhook-cert-dir", path(folder.path())];
    let manager = world.start(Port::reserve().unwrap(), &flags);
    until("the folder is empty", async || manager.readiness().await.contains("[-]webhooks failed: --webhook-cert-dir"))
        .await;
    write("tls.crt", &certificate.pem());
    write("tls.key", &key.serialize_pem());
    let told = "[-]webhooks failed: the API server would not trust our certificate for hooks.webhooks.svc";
    until("readiness reports the untrusted certificate", async || manager.readiness().await.contains(told)).await;
    write("ca.crt", &right);
    manager.until_ready().await;
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_malformed_request_gets_an_error_status() {
    let Some(world) = World::new().await else { return };
    let manager = world.by_url(&[]).await;
    let bundle = bundle_of(&world.configurations().get("controller-manager").await.unwrap());
    let validate = "/validate-memcached-cache-example-com-v1-memcached";
    let post = |path: &str, kind: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let deep = format!("{}{}", "{\"a\":".repeat(20_000), "}".repeat(20_000));
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20));
    for (what, request, status) in [
        ("a GET", format!("GET {validate} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "405"),
        ("another path", post("/validate-other", "application/json", "{}"), "404"),
        ("no body", post(validate, "application/json", ""), "400"),
        ("another type", post(validate, "text/plain", "{}"), "400"),
        ("not JSON", post(validate, "application/json", "{"), "400"),
        ("nested deeply", post(validate, "application/json", &deep), "400"),
        ("3 MiB", post(validate, "application/json", &huge), "400"),
    ] {
        let answer = manager.send(&bundle, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer:.200}");
    }
    let over = format!(
        "POST {validate} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9000000\r\n\r\n"
    );
    let answer = manager.send(&bundle, over.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:.200}");
    world.create("a", &json!({})).await.expect("it still serves");
}

/// While a rollout enables an operator, the API server may still call a pod of the old release, which does not run it.
#[tokio::test(flavor = "multi_thread")]
async fn operator_that_does_not_run_has_its_webhooks_answered() {
    let Some(world) = World::new().await else { return };
    let manager = world.by_url(&[]).await; // runs Memcached only
    let configuration = world.configurations().get("controller-manager").await.unwrap();
    let names: Vec<&str> = configuration.webhooks.iter().flatten().map(|webhook| webhook.name.as_str()).collect();
    assert_eq!(names, ["vmemcached-v1.memcached.cache.example.com"], "the API server is not asked to call the others");

    let kind = json!({"group": "stable.example.com", "version": "v1", "kind": "CronTab"});
    let object = |schedule: &str| {
        json!({"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "a"},
               "spec": {"cronSpec": schedule, "image": "busybox:1.37"}})
    };
    for (schedule, allowed) in [("* * * * */5", true), ("every day", false)] {
        let request = json!({"uid": "1", "kind": kind, "operation": "CREATE", "object": object(schedule)});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let review = review.to_string();
        let request = format!(
            "POST /validate-stable-example-com-v1-crontab HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{review}",
            review.len()
        );
        let answer = manager.send(&bundle_of(&configuration), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.300}");
        assert!(answer.contains(&format!("\"allowed\":{allowed}")), "{schedule}: {answer:.600}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_webhooks_serve_and_write_nothing() {
    let Some(world) = World::new().await else { return };
    let port = Port::reserve().unwrap();
    let address = format!("127.0.0.1:{}", port.number());
    let url = format!("https://{address}");
    let manager = world.start(port, &["--enable-webhooks=false", "--webhook-client-url", &url]);
    manager.until_ready().await;
    assert!(!manager.readiness().await.contains("webhooks"), "{}", manager.readiness().await);
    assert!(std::net::TcpStream::connect(address).is_err());
    assert!(world.configurations().get_opt("controller-manager").await.unwrap().is_none());
    world.create("a", &refused()).await.expect("is stored");
    until("the controller reports the same error", async || {
        let conditions = world.caches().get("a").await.unwrap().data["status"]["conditions"].clone();
        conditions.as_array().into_iter().flatten().any(|it| it["type"] == "Ready" && it["reason"] == "InvalidSpec")
    })
    .await;
}
