//! The sketches against a model of the API server, in simulated time.

use std::{sync::Arc, time::Duration};

use certificates::{Certificate, Pair, Validity};
use jiff::SignedDuration;
use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use manager::{Operator, harness::Harness, normalize};
use model_apiserver::{Model, NoFaults, Planned};
use serde_json::{Value, json};
use sketches::{certificates::Certificates, cron_jobs::CronJobs};
use tokio::time::sleep;

const MOMENT: Duration = Duration::from_secs(1);

/// A cluster with the definitions of `operator`, which runs.
fn start(operator: &dyn Operator) -> (Model, Harness) {
    let model = Model::new();
    model.set_time("2026-01-01T00:00:30Z".parse().expect("a time"));
    for crd in operator.crds() {
        model.install(&normalize(&crd));
    }
    let clock = model.clone();
    let client = model.client_named(operator.name());
    let harness = Harness::start(operator, &["--resync-interval=10000h"], client, move || clock.now());
    (model, harness)
}

async fn put(model: &Model, kind: &str, name: &str, spec: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("sketches.example.com", "v1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(model.client(), "default", &resource);
    let object = json!({
        "apiVersion": "sketches.example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    api.patch(name, &PatchParams::apply("user").force(), &Patch::Apply(object)).await.expect("the object is accepted");
    sleep(MOMENT).await;
}

/// The status, the reason and the message of `Ready`.
fn ready(model: &Model, resource: &str, name: &str) -> String {
    let object = model.object(&format!("{resource}.sketches.example.com"), "default", name).expect("it exists");
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.into_iter().find(|it| it["type"] == "Ready").expect("it is reconciled");
    let text = |field: &str| ready[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

/// A `CronJob` that runs once a minute.
fn every_minute() -> Value {
    let container = json!({"name": "a", "image": "a:1"});
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    json!({"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template})
}

/// The annotation with the time of a Job's run.
fn scheduled_at(job: &Value) -> String {
    job["metadata"]["annotations"]["sketches.example.com/scheduled-at"].as_str().unwrap_or_default().to_owned()
}

/// The times of the runs whose Jobs exist.
fn minutes(model: &Model) -> Vec<String> {
    model.objects("jobs.batch").iter().map(scheduled_at).collect()
}

/// Completes the Job of the run of this time.
async fn complete(model: &Model, minute: &str) {
    let job = model.objects("jobs.batch").into_iter().find(|job| scheduled_at(job) == minute).expect("a Job");
    let time = model.now().to_string();
    let condition = json!({"type": "Complete", "status": "True"});
    let patch = Patch::Merge(json!({"status": {"startTime": time, "completionTime": time, "conditions": [condition]}}));
    let name = job["metadata"]["name"].as_str().expect("a name");
    let jobs: Api<Job> = Api::namespaced(model.client(), "default");
    jobs.patch_status(name, &PatchParams::default(), &patch).await.expect("it is accepted");
    sleep(MOMENT).await;
}

#[tokio::test(start_paused = true)]
async fn cron_job_runs_at_its_times_and_keeps_some_jobs() {
    let (model, _harness) = start(&CronJobs);
    let mut spec = every_minute();
    spec["successfulJobsHistoryLimit"] = 1.into();
    put(&model, "CronJob", "tick", spec.clone()).await;
    assert_eq!(model.objects("jobs.batch"), Vec::<Value>::new());
    sleep(150 * MOMENT).await;
    assert_eq!(minutes(&model), ["2026-01-01T00:01:00Z"], "the next one waits for its end");
    assert_eq!(ready(&model, "cronjobs", "tick"), "True JobsActive: 1 Jobs are active");
    complete(&model, "2026-01-01T00:01:00Z").await;
    assert_eq!(minutes(&model), ["2026-01-01T00:01:00Z", "2026-01-01T00:03:00Z"]);
    complete(&model, "2026-01-01T00:03:00Z").await;
    assert_eq!(minutes(&model), ["2026-01-01T00:03:00Z"], "only one completed Job stays");
    spec["suspend"] = true.into();
    put(&model, "CronJob", "tick", spec).await;
    sleep(600 * MOMENT).await;
    assert_eq!(minutes(&model), ["2026-01-01T00:03:00Z"]);
    assert_eq!(ready(&model, "cronjobs", "tick"), "False Suspended: no further runs start");
}

#[tokio::test(start_paused = true)]
async fn refused_deletion_of_an_old_job_is_reported_in_the_status() {
    let (model, _harness) = start(&CronJobs);
    let mut spec = every_minute();
    spec["successfulJobsHistoryLimit"] = 0.into();
    put(&model, "CronJob", "tick", spec).await;
    sleep(40 * MOMENT).await;
    let faults = Arc::new(Planned::new(&"before delete jobs.batch -> answer 403".parse().expect("a plan")));
    model.set_shared_faults(faults.clone());
    complete(&model, "2026-01-01T00:01:00Z").await;
    assert!(faults.unused().is_empty(), "a deletion was refused");
    assert_eq!(minutes(&model), ["2026-01-01T00:01:00Z"]);
    let told = ready(&model, "cronjobs", "tick");
    assert!(told.starts_with("False ChildRejected"), "{told}");
    model.set_faults(NoFaults);
    sleep(10 * MOMENT).await;
    assert_eq!(minutes(&model), [""; 0]);
    assert_eq!(ready(&model, "cronjobs", "tick"), "True AllJobsCompleted: all Jobs have completed");
}

#[tokio::test(start_paused = true)]
async fn cron_job_with_a_wrong_schedule_says_so() {
    let (model, _harness) = start(&CronJobs);
    put(&model, "CronJob", "tick", json!({"schedule": "61 * * * *", "jobTemplate": {}})).await;
    assert!(ready(&model, "cronjobs", "tick").starts_with("False InvalidSpec: spec.schedule"));
}

/// Creates the Secret of an authority.
async fn put_authority(model: &Model) -> Pair {
    let validity = Validity { from: model.now(), lifetime: SignedDuration::from_hours(100) };
    let authority = Pair::authority("own", None, validity).expect("an authority");
    let secrets: Api<Secret> = Api::namespaced(model.client(), "default");
    let data = json!({"tls.crt": authority.certificate, "tls.key": authority.key});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "authority"}, "stringData": data});
    secrets.patch("authority", &PatchParams::apply("user"), &Patch::Apply(secret)).await.expect("it is accepted");
    authority
}

#[tokio::test(start_paused = true)]
async fn certificate_is_signed_by_its_issuer_and_renewed_in_time() {
    let (model, _harness) = start(&Certificates);
    let names = ["shop.example.com".to_owned()];
    let spec = json!({
        "secretName": "shop", "issuer": "own", "dnsNames": names, "durationHours": 10, "renewBeforeHours": 2,
    });
    put(&model, "Certificate", "shop", spec).await;
    assert_eq!(ready(&model, "certificates", "shop"), "False NoIssuer: Issuer \"own\" is not there");
    put(&model, "Issuer", "own", json!({"secretName": "authority"})).await;
    assert!(ready(&model, "certificates", "shop").starts_with("False SecretNotFound"));

    let authority = put_authority(&model).await;
    sleep(60 * MOMENT).await;
    assert_eq!(ready(&model, "certificates", "shop"), "True Ready: the certificate is valid");
    let signer = Certificate::read(&authority.certificate).expect("a certificate");
    let secrets: Api<Secret> = Api::namespaced(model.client(), "default");
    let stored = async || {
        let data = secrets.get("shop").await.expect("a Secret").data.expect("data");
        let text = |key: &str| String::from_utf8(data[key].0.clone()).expect("a text");
        let pair = Pair { certificate: text("tls.crt"), key: text("tls.key") };
        let certificate = pair.read().expect("a certificate with its key");
        assert!(certificate.covers(&names) && certificate.is_of(&signer));
        certificate.not_after
    };
    let first = stored().await;
    sleep(7 * 3600 * MOMENT).await;
    assert_eq!(stored().await, first);
    sleep(3600 * MOMENT).await;
    assert!(stored().await > first);
}

/// Each attempt signs another certificate.
#[tokio::test(start_paused = true)]
async fn refused_renewal_keeps_the_end_of_the_certificate_in_the_secret() {
    let (model, _harness) = start(&Certificates);
    put_authority(&model).await;
    put(&model, "Issuer", "own", json!({"secretName": "authority"})).await;
    let spec = json!({
        "secretName": "shop", "issuer": "own", "dnsNames": ["shop.example.com"], "durationHours": 10, "renewBeforeHours": 2,
    });
    put(&model, "Certificate", "shop", spec).await;
    let end = || {
        let certificate = model.object("certificates.sketches.example.com", "default", "shop").expect("it exists");
        certificate["status"]["notAfter"].clone()
    };
    let first = end();
    assert!(first.is_string(), "{first}");
    let faults = Arc::new(Planned::new(&"before patch secrets.core -> answer 422".parse().expect("a plan")));
    model.set_shared_faults(faults.clone());
    sleep(9 * 3600 * MOMENT).await;
    assert!(faults.unused().is_empty(), "a renewal was refused");
    assert_eq!(end(), first);
    model.set_faults(NoFaults);
    sleep(600 * MOMENT).await;
    assert_ne!(end(), first);
}

#[tokio::test(start_paused = true)]
async fn certificate_that_would_be_renewed_without_end_is_invalid() {
    let (model, _harness) = start(&Certificates);
    let spec = json!({
        "secretName": "shop", "issuer": "own", "dnsNames": ["a.example.com"], "durationHours": 2, "renewBeforeHours": 2,
    });
    put(&model, "Certificate", "shop", spec).await;
    assert!(ready(&model, "certificates", "shop").starts_with("False InvalidSpec: "));
}
