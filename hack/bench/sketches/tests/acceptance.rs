//! The sketches on a real API server.

use certificates::{Certificate as Parsed, Pair, Validity};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use kube::ResourceExt;
use manager::Operator;
use manager_testing::{FOR_ADOPTION, Namespaced, PAST_THE_CACHE, World};
use serde_json::{Value, json};
use sketches::{
    certificates::{Certificate, Certificates},
    cron_jobs::{CronJob, CronJobs},
};

fn object(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "sketches.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

fn status(object: &impl Namespaced) -> Value {
    serde_json::to_value(object).expect("JSON")["status"].clone()
}

/// Deletes an object, and waits until it is gone.
async fn delete<K: Namespaced>(world: &World, name: &str) {
    world.delete::<K>(name).await;
    world.until("it is deleted", async || world.get::<K>(name).await.is_none().then_some(())).await;
}

/// Acts as the Job controller: the Job has completed.
async fn complete(world: &World, name: &str, time: &str) {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": "CompletionsReached", "message": "", "lastProbeTime": time,
            "lastTransitionTime": time,
        })
    };
    let (met, completed) = (condition("SuccessCriteriaMet"), condition("Complete"));
    world.patch_status::<Job>(name, json!({"startTime": time, "active": 0, "conditions": [met]})).await;
    let ended = json!({"completionTime": time, "succeeded": 1, "conditions": [met, completed]});
    world.patch_status::<Job>(name, ended).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cron_job_runs_a_job_at_its_time_and_deletes_it_after_its_end() {
    let Some(world) = World::start(&CronJobs, env!("CARGO_BIN_EXE_sketch-cron-jobs")).await else { return };
    world.apply(CronJobs.sample()).await;
    world.until_condition::<CronJob>("tick", "Ready", "False", "Suspended").await;
    assert!(world.list::<Job>().await.is_empty());

    // The clock of the API server sets the time of the creation. Two minutes later, a run is due.
    let now = Timestamp::from_second(Timestamp::now().as_second() + 120).expect("a time");
    world.set_clock(now);
    let container = json!({"name": "a", "image": "a:1"});
    let spec = json!({
        "schedule": "* * * * *", "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0,
        "jobTemplate": {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
    });
    world.apply(&object("CronJob", "tick", &spec)).await;
    let active = world.until_condition::<CronJob>("tick", "Ready", "True", "JobsActive").await;
    let jobs = world.list::<Job>().await;
    let names: Vec<String> = jobs.iter().map(ResourceExt::name_any).collect();
    assert_eq!((names.len(), &status(&active)["active"]), (1, &json!(names)));
    let owner = &jobs[0].owner_references()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("CronJob", active.metadata.uid.as_ref()));

    complete(&world, &names[0], &now.to_string()).await;
    world.until("the completed Job is deleted", async || world.list::<Job>().await.is_empty().then_some(())).await;
    world.until_condition::<CronJob>("tick", "Ready", "True", "AllJobsCompleted").await;
    let read = ["get cronjobs.sketches.example.com", "get jobs.batch"];
    let never_changed = "a run is created once, and never changed";
    world.assert_permitted(&CronJobs, &[(PAST_THE_CACHE, &read), (never_changed, &["patch jobs.batch"])]);
    delete::<CronJob>(&world, "tick").await;
}

/// The certificate in the Secret `shop`, if its key belongs to it.
async fn stored(world: &World) -> Option<Parsed> {
    let data = world.get::<Secret>("shop").await?.data?;
    let [certificate, key] =
        ["tls.crt", "tls.key"].map(|key| String::from_utf8(data[key].0.clone()).expect("the text of a key"));
    Pair { certificate, key }.read()
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_is_signed_by_its_issuer_and_again_when_its_secret_is_spoiled() {
    let Some(world) = World::start(&Certificates, env!("CARGO_BIN_EXE_sketch-certificates")).await else { return };
    let validity = Validity { from: Timestamp::now(), lifetime: SignedDuration::from_hours(100) };
    let authority = Pair::authority("own", None, validity).expect("an authority");
    let data = json!({"tls.crt": authority.certificate, "tls.key": authority.key});
    world.create::<Secret>(json!({"metadata": {"name": "authority"}, "stringData": data})).await;
    world.apply(Certificates.sample()).await;
    world.until_condition::<Certificate>("shop", "Ready", "False", "NoIssuer").await;
    assert!(world.get::<Secret>("shop").await.is_none());

    world.apply(&object("Issuer", "own", &json!({"secretName": "authority"}))).await;
    let ready = world.until_condition::<Certificate>("shop", "Ready", "True", "Ready").await;
    let (names, signer) = (["shop.example.com".to_owned()], authority.read().expect("a certificate"));
    let first = stored(&world).await.expect("a certificate with its key");
    assert!(first.covers(&names) && first.is_of(&signer));
    assert_eq!(status(&ready)["notAfter"], json!(first.not_after));

    world.patch::<Secret>("shop", json!({"data": {"tls.key": ""}})).await;
    let again = world.until("another pair is signed", async || stored(&world).await).await;
    assert!(again.covers(&names) && again.is_of(&signer));
    let read = ["get certificates.sketches.example.com"];
    world.assert_permitted(&Certificates, &[(PAST_THE_CACHE, &read), (FOR_ADOPTION, &["delete secrets"])]);
    delete::<Certificate>(&world, "shop").await;
}
