//! Faults between the operator and the API server: another client's change in the middle of a write, lasting refusals, silence.

use std::time::Duration;

use fault_plan::Plan;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::{Api, ResourceExt, api::DeleteParams};
use manager_testing::{Proxied, World};
use memcached_operator::Memcached;
use serde_json::json;
use tokio::time::Instant;

use crate::kit::{NAME, SAMPLE, children, condition, deployment, memcached, quiet_world, uid, until_condition};

fn plan(line: &str) -> Plan {
    line.parse().unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Whether to run the parts that take minutes too.
fn everything() -> bool {
    std::env::var("FAULT_PLANS").is_ok_and(|asked| asked == "all")
}

/// Replaces our Deployment by one of another client, while the request that the plan names waits.
fn replace_deployment_on_signal(world: &World, operator: &Proxied) {
    let deployments: Api<Deployment> = world.api();
    operator.proxy().on_signal(move |_| {
        let deployments = deployments.clone();
        async move {
            let ours = deployments.get_opt(NAME).await.expect("an answer");
            if ours.is_some() {
                drop(deployments.delete(NAME, &DeleteParams::background()).await.expect("deleted"));
                while deployments.get_opt(NAME).await.expect("an answer").is_some() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            // With our selector. Another selector would protect this Deployment in any case, because a selector is immutable.
            let labels = json!({"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": NAME});
            let foreign = serde_json::from_value(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "labels": {"whose": "mine"}},
                "spec": {"replicas": 7, "selector": {"matchLabels": labels}, "template": {
                    "metadata": {"labels": labels}, "spec": {"containers": [{"name": "x", "image": "x"}]}}},
            }));
            let parameters =
                kube::api::PostParams { field_manager: Some("another-manager".to_owned()), ..Default::default() };
            deployments.create(&parameters, &foreign.expect("a Deployment")).await.expect("created");
        }
    });
}

/// Asserts that the other client's Deployment is unchanged, and that event and condition report the conflict.
async fn assert_unowned_deployment_is_left_alone(world: &World) {
    let note = world.until_event(NAME, "Warning", "ErrResourceExists").await;
    assert_eq!(note, format!("Resource \"{NAME}\" already exists and is not managed by Memcached"));
    until_condition(world, NAME, "Ready", "False", "ResourceConflict").await;
    let theirs: Deployment = world.get(NAME).await.expect("the other client's Deployment");
    assert_eq!(theirs.spec.as_ref().and_then(|spec| spec.replicas), Some(7));
    assert_eq!(theirs.metadata.generation, Some(1));
    assert_eq!(theirs.labels().get("whose").map(String::as_str), Some("mine"));
    let managers: Vec<_> = theirs.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert_eq!(managers, ["another-manager"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn t23_unowned_deployment_made_during_a_write_is_left_alone() {
    // The write before which the other client acts, and the change that makes the operator send it.
    for (line, changed) in [
        ("before create deployments.apps #1 -> signal interfere", None),
        // A plain field: the operator sends one JSON patch, based on its cache.
        ("before patch deployments.apps #1 -> signal interfere", Some(json!({"size": 4}))),
        // A list: the operator reads the object, turns the field manager entry of its create into one of an apply, and applies.
        ("before patch deployments.apps #2 -> signal interfere", Some(json!({"size": 3, "config": {"memoryMB": 128}}))),
    ] {
        let Some(world) = quiet_world().await else { return };
        let operator = Proxied::start(&world, &Plan::default(), &[]).await;
        replace_deployment_on_signal(&world, &operator);
        if let Some(spec) = changed {
            world.apply(SAMPLE).await;
            children(&world).await;
            operator.until_quiet().await;
            operator.proxy().set_plan(&plan(line));
            world.apply(&memcached(NAME, &spec)).await;
        } else {
            operator.proxy().set_plan(&plan(line));
            world.apply(SAMPLE).await;
        }
        assert_unowned_deployment_is_left_alone(&world).await;
        assert!(operator.proxy().unused().is_empty(), "{line}: {}", operator.proxy().trace());
        assert!(world.get::<Service>(NAME).await.is_some(), "the operator creates the other children");
    }
}

/// Returns the times between the attempts at a write.
fn gaps(operator: &Proxied, verb: &str, resource: &str, name: &str) -> Vec<Duration> {
    let trace = operator.proxy().trace();
    let matching = |it: &&fault_proxy::Exchange| {
        (it.request.verb.as_str(), it.request.resource.as_str(), it.request.name.as_str()) == (verb, resource, name)
    };
    let times: Vec<Instant> = trace.exchanges.iter().filter(matching).map(|it| it.at).collect();
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

// ANCHOR: failing
#[tokio::test(flavor = "multi_thread")]
async fn a5_failing_object_backs_off_and_delays_no_other() {
    for answer in ["409", "500", "503 html"] {
        let Some(world) = quiet_world().await else { return };
        let faults = plan(&format!("before write deployments.apps */poor -> answer {answer}"));
        let operator = Proxied::start(&world, &faults, &[]).await;
        world.apply(&memcached("poor", &json!({"size": 1}))).await;
        world
            .until("nine attempts", async || {
                (gaps(&operator, "create", "deployments", "poor").len() >= 8).then_some(())
            })
            .await;
        let begun = Instant::now();
        world.apply(&memcached("rich", &json!({"size": 1}))).await;
        deployment(&world, "rich", 1).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{answer}: {:?}", begun.elapsed());
        let gaps = gaps(&operator, "create", "deployments", "poor");
        // The back-off doubles, with ± 20 %. Other events of the object may cause some of the first attempts.
        assert!(gaps[7] > gaps[4] && gaps[7] > Duration::from_millis(150), "{answer}: {gaps:?}");
        operator.proxy().set_plan(&Plan::default());
        deployment(&world, "poor", 1).await;
    }
}
// ANCHOR_END: failing

#[tokio::test(flavor = "multi_thread")]
async fn a5_conflicts_on_status_and_deletion_are_retried() {
    let Some(world) = quiet_world().await else { return };
    let faults = plan(
        "before patch memcacheds.memcached.cache.example.com/status #1..2 -> answer 409; \
         before delete poddisruptionbudgets.policy #1..2 -> answer 409",
    );
    let operator = Proxied::start(&world, &faults, &[]).await;
    world.apply(SAMPLE).await;
    children(&world).await;
    until_condition(&world, NAME, "Ready", "False", "RollingOut").await;
    world.apply(&memcached(NAME, &json!({"size": 0}))).await;
    let gone = async || world.get::<PodDisruptionBudget>(NAME).await.is_none().then_some(());
    world.until("no budget", gone).await;
    assert!(operator.proxy().unused().is_empty(), "{:?}", operator.proxy().unused());
}

#[tokio::test(flavor = "multi_thread")]
async fn a6_retry_after_is_respected() {
    // The response of the API server's flow control: a header, and a body that is not a Status.
    for (header, least) in [
        (" retry-after=\"2\"", Duration::from_secs(2)),
        ("", Duration::ZERO),
        (" retry-after=\"soon\"", Duration::ZERO),
        (" retry-after=\"Wed, 21 Oct 2099 07:28:00 GMT\"", Duration::ZERO),
    ] {
        let Some(world) = quiet_world().await else { return };
        let body = " content-type=\"text/plain\" body=\"Too many requests, please try again later.\"";
        let faults = plan(&format!("before create services.core #1..2 -> answer 429{header}{body}"));
        let operator = Proxied::start(&world, &faults, &[]).await;
        world.apply(SAMPLE).await;
        children(&world).await;
        let gaps = gaps(&operator, "create", "services", NAME);
        assert_eq!(gaps.len(), 2, "{header}: {gaps:?}");
        // Another event of the object may end the first wait early: the operator has just created its other children.
        assert!(gaps[1] >= least && gaps.iter().all(|gap| *gap < least + Duration::from_secs(3)), "{header}: {gaps:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_forbidden_write_is_reported_and_backs_off() {
    let Some(world) = quiet_world().await else { return };
    let says = "services is forbidden: User \\\"u\\\" cannot create resource \\\"services\\\" in API group \\\"\\\" in the namespace \\\"n\\\"";
    let status = format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\"message\":\"{says}\",\"reason\":\"Forbidden\",\"code\":403}}"
    );
    let quoted = status.replace('\\', "\\\\").replace('"', "\\\"");
    let faults = plan(&format!("before create services.core -> answer 403 body=\"{quoted}\""));
    let operator = Proxied::start(&world, &faults, &[]).await;
    world.apply(SAMPLE).await;
    let told = until_condition(&world, NAME, "Degraded", "True", "Forbidden").await;
    let message = &condition(&told, "Degraded").expect("Degraded").message;
    assert!(message.contains("cannot create resource \"services\""), "{message}");
    deployment(&world, NAME, 3).await;
    operator.until_quiet().await;
    let attempts = gaps(&operator, "create", "services", NAME).len() + 1;
    assert!(attempts <= 5, "{attempts} attempts: {}", operator.proxy().trace());
    operator.proxy().set_plan(&Plan::default());
    if everything() {
        // The operator tries again within a minute.
        world.within(Duration::from_secs(70), "the Service", async || world.get::<Service>(NAME).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a14_rejected_token_is_read_again() {
    let Some(world) = quiet_world().await else { return };
    let operator = Proxied::start(&world, &Plan::default(), &[]).await;
    let file = world.cluster.state_dir().join(format!("{}.token", world.namespace));
    std::fs::write(&file, "first").expect("a token");
    operator.restart_with(&operator.proxy().kubeconfig_with_token(&file).expect("a kubeconfig"));
    world.apply(SAMPLE).await;
    children(&world).await;
    operator.proxy().set_plan(&plan("before * * as first -> answer 401"));
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    // Without a valid token, the process neither ends nor loops without pause.
    tokio::time::sleep(Duration::from_secs(2)).await; // the fault itself
    assert!(operator.is_running());
    let asked = operator.proxy().trace().exchanges.iter().filter(|it| it.told == Some(401)).count();
    assert!((1..60).contains(&asked), "{asked} requests with a bad token in two seconds");
    if everything() {
        std::fs::write(&file, "second").expect("a token");
        // The client reads the token again within a minute. By then the back-off of the object is up to a minute and a half.
        world
            .within(Duration::from_secs(150), "four replicas", async || {
                (world.get::<Deployment>(NAME).await?.spec?.replicas? == 4).then_some(())
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_slow_api_server_costs_neither_lease_nor_liveness() {
    let Some(world) = quiet_world().await else { return };
    // All requests except those for the lease take longer than the renew deadline.
    let times =
        ["--leader-elect-lease-duration=9s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=1s"];
    let flags = [&["--leader-elect", "--leader-election-namespace", &world.namespace][..], &times].concat();
    let slow = plan("before * *.core -> delay 7s; before * *.apps -> delay 7s; before * memcacheds.* -> delay 7s");
    let operator = Proxied::start(&world, &slow, &flags).await;
    world.until("it leads", async || operator.log().contains("\"msg\":\"Became leader\"").then_some(())).await;
    world.apply(SAMPLE).await;
    let live = async {
        loop {
            let probe = operator.probe("/healthz?verbose");
            assert!(probe.as_ref().is_none_or(|(code, _)| *code == 200), "{probe:?}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        _ = children(&world) => {}
        () = live => {}
    }
    assert!(!operator.log().contains("\"msg\":\"Stopped leading\""), "{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn w7_object_replaced_during_a_lost_watch_is_a_new_one() {
    let Some(world) = quiet_world().await else { return };
    let operator = Proxied::start(&world, &Plan::default(), &[]).await;
    world.apply(SAMPLE).await;
    let (before, ..) = children(&world).await;
    operator.until_quiet().await;
    // The watch expires instead of delivering the deletion. The list that follows is late, so it contains only the new object.
    operator.proxy().set_plan(&plan("frame DELETED memcacheds.* #1 -> gone; before list * -> delay 500ms"));
    let old = world.get::<Memcached>(NAME).await.expect("a Memcached");
    world.delete::<Memcached>(NAME).await;
    world.until("it is gone", async || world.get::<Memcached>(NAME).await.is_none().then_some(())).await;
    world.apply(SAMPLE).await;
    let new = world.get::<Memcached>(NAME).await.expect("a Memcached");
    assert_ne!(uid(&old), uid(&new));
    let after = world
        .until("a Deployment of the new one", async || {
            let found: Deployment = world.get(NAME).await?;
            found.owner_references().iter().any(|owner| owner.uid == uid(&new)).then_some(found)
        })
        .await;
    assert_ne!(uid(&before), uid(&after));
}

#[tokio::test(flavor = "multi_thread")]
async fn a17_w12_silent_requests_and_watches_time_out() {
    if !everything() {
        // The client gives up requests after 20 s, and watches after four minutes.
        return skip::unasked("takes minutes: set FAULT_PLANS=all");
    }
    let Some(world) = quiet_world().await else { return };
    let faults = plan("before create services.core #1 -> stall; frame MODIFIED memcacheds.* -> stall");
    let operator = Proxied::start(&world, &faults, &["--resync-interval", "30s"]).await;
    world.apply(SAMPLE).await;
    let begun = Instant::now();
    world.within(Duration::from_secs(40), "the Service", async || world.get::<Service>(NAME).await).await;
    assert!(begun.elapsed() > Duration::from_secs(15), "the stall has happened");
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    operator.proxy().set_plan(&Plan::default());
    world
        .within(Duration::from_mins(5), "four replicas", async || {
            (world.get::<Deployment>(NAME).await?.spec?.replicas? == 4).then_some(())
        })
        .await;
    eprintln!("the client gave up a silent watch after {:?}", begun.elapsed());
}
