//! Generated passwords and certificates, against a model of the API server in memory and in paused time.

use std::time::Duration;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use memcached_operator::{Memcached, MemcachedOperator};
use serde_json::{Value, json};

const NAME: &str = "cache";
const MINUTE: Duration = Duration::from_mins(1);
/// The API server's answer to a request for which the operator has no permission.
const FORBIDDEN: &str = r#"answer 403 body="{\"kind\":\"Status\",\"status\":\"Failure\",\"reason\":\"Forbidden\",\"message\":\"u cannot create secrets in API group c\",\"code\":403}""#;

async fn apply(memory: &InMemory, spec: Value) {
    let api: Api<Memcached> = Api::namespaced(memory.model.client(), "default");
    let object = json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": NAME}, "spec": spec,
    });
    api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("applied");
}

fn secret(memory: &InMemory, name: &str) -> Option<Value> {
    memory.model.object("secrets", "default", name)
}

/// The values of a Secret, in base64.
fn data(memory: &InMemory, name: &str) -> Value {
    secret(memory, name).unwrap_or_default()["data"].clone()
}

fn deployment(memory: &InMemory) -> Option<Value> {
    memory.model.object("deployments.apps", "default", NAME)
}

fn generation(memory: &InMemory) -> Option<i64> {
    deployment(memory)?["metadata"]["generation"].as_i64()
}

/// The hash of the Secrets that the pods show.
fn hash(memory: &InMemory) -> Option<String> {
    let annotations = deployment(memory)?["spec"]["template"]["metadata"]["annotations"].clone();
    annotations["memcached.cache.example.com/secret-hash"].as_str().map(str::to_owned)
}

fn object(memory: &InMemory) -> Value {
    memory.model.object("memcacheds.memcached.cache.example.com", "default", NAME).expect("a Memcached")
}

fn degraded(memory: &InMemory) -> (Value, Value) {
    let conditions = object(memory)["status"]["conditions"].clone();
    let found = conditions.as_array().into_iter().flatten().find(|it| it["type"] == "Degraded").cloned();
    found.map(|it| (it["reason"].clone(), it["message"].clone())).unwrap_or_default()
}

/// The verbs of all requests about Secrets.
fn verbs(memory: &InMemory) -> Vec<&'static str> {
    let mut verbs: Vec<_> =
        memory.requests().iter().filter(|it| it.resource.starts_with("secrets")).map(|it| it.verb.as_str()).collect();
    verbs.sort_unstable();
    verbs.dedup();
    verbs
}

/// A Memcached that has run for a while with a certificate of its own authority.
async fn with_certificate() -> InMemory {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, json!({"size": 3, "tls": {"generate": true}})).await;
    memory.start();
    memory.until_quiet().await;
    memory
}

/// Asserts that clients get the certificate of the present authority beside the former one, and that the authority signs some minutes
/// later. `first` is the Secret with the certificate and `at_first` the generation of the Deployment before.
async fn assert_signs_later(memory: &mut InMemory, first: &Value, at_first: Option<i64>) {
    memory.pass(3 * MINUTE).await;
    let announced = data(memory, "cache-tls");
    assert_ne!(announced["ca.crt"], first["ca.crt"]);
    assert_ne!(announced["ca.crt"], data(memory, "cache-ca")["ca.crt"], "the former authority is still trusted");
    assert_eq!((&announced["tls.crt"], generation(memory)), (&first["tls.crt"], at_first));

    memory.pass(6 * MINUTE).await;
    let signed = data(memory, "cache-tls");
    assert_ne!(signed["tls.crt"], first["tls.crt"]);
    assert_eq!((&signed["ca.crt"], generation(memory)), (&announced["ca.crt"], at_first.map(|it| it + 1)));
}

#[tokio::test(start_paused = true)]
async fn password_is_generated_once_and_belongs_to_the_object() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, json!({"auth": {"generate": true}})).await;
    memory.start();
    memory.until_quiet().await;
    let made = secret(&memory, "cache-auth").expect("a Secret");
    assert_eq!(made["type"], "kubernetes.io/basic-auth");
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], object(&memory)["metadata"]["uid"]);
    let volumes = deployment(&memory).expect("a Deployment")["spec"]["template"]["spec"]["volumes"].clone();
    assert_eq!(volumes[0]["secret"]["secretName"], "cache-auth");

    let (first, at_first) = (data(&memory, "cache-auth"), generation(&memory));
    memory.pass(10 * MINUTE).await;
    memory.restart().await;
    assert!(memory.until_quiet().await.is_empty(), "a new process keeps the password");
    assert_eq!((data(&memory, "cache-auth"), generation(&memory)), (first.clone(), at_first));
    assert_eq!(verbs(&memory), ["create", "get"]);

    // Who deletes the Secret gets another password, and a rolling update.
    memory.model.take("secrets", "default", "cache-auth");
    memory.pass(2 * MINUTE).await;
    assert_ne!(data(&memory, "cache-auth")["password"], first["password"]);
    assert_eq!(generation(&memory), at_first.map(|it| it + 1));
    let text = object(&memory).to_string() + &format!("{:?}", memory.model.objects("events.events.k8s.io"));
    assert!(!text.contains(first["password"].as_str().expect("a password")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn secret_of_a_user_is_never_taken_over() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    let theirs = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cache-auth", "namespace": "default"},
        "data": {"password": "bWluZQ=="},
    });
    memory.model.put(theirs);
    apply(&memory, json!({"auth": {"generate": true}})).await;
    memory.start();
    memory.until_quiet().await;
    let (reason, message) = degraded(&memory);
    assert_eq!(reason, "ResourceConflict", "{message}");
    let words = "Secret \"cache-auth\" already exists and is not managed by Memcached; delete this Secret if it is not needed, or \
                 use another name";
    assert_eq!(message, words);
    assert_eq!(deployment(&memory), None, "no pod starts without its password");
    assert_eq!(data(&memory, "cache-auth"), json!({"password": "bWluZQ=="}));

    memory.model.take("secrets", "default", "cache-auth");
    memory.pass(2 * MINUTE).await;
    assert_eq!(degraded(&memory).0, "AsExpected");
    assert!(deployment(&memory).is_some());
}

/// A reader of Deployments who guesses the values cannot confirm them: the hash does not follow from the values alone.
#[tokio::test(start_paused = true)]
async fn hash_differs_for_another_secret_with_the_same_values() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    let users = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users", "namespace": "default"},
        "data": {"password-file": "dXNlcjpwYXNzd29yZAo="},
    });
    memory.model.put(users.clone());
    apply(&memory, json!({"auth": {"secretName": "users"}})).await;
    memory.start();
    memory.until_quiet().await;
    let (first, at_first) = (hash(&memory), generation(&memory));
    assert_eq!(first.as_ref().map(String::len), Some(64));

    // As when a backup is restored.
    memory.model.take("secrets", "default", "users");
    memory.model.put(users);
    memory.pass(2 * MINUTE).await;
    let second = hash(&memory);
    assert_ne!(second, first);
    assert_eq!(generation(&memory), at_first.map(|it| it + 1), "one rolling update");
    memory.pass(10 * MINUTE).await;
    memory.restart().await;
    memory.pass(2 * MINUTE).await;
    assert_eq!((hash(&memory), generation(&memory)), (second, at_first.map(|it| it + 1)));
}

#[tokio::test(start_paused = true)]
async fn certificate_is_renewed_before_its_end_by_one_rolling_update() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, json!({"size": 3, "tls": {"generate": true, "validityDays": 2, "renewalDays": 1}})).await;
    memory.start();
    memory.until_quiet().await;
    let (authority, first, at_first) = (data(&memory, "cache-ca"), data(&memory, "cache-tls"), generation(&memory));
    assert_eq!(secret(&memory, "cache-tls").expect("a Secret")["type"], "kubernetes.io/tls");
    assert_eq!(first["ca.crt"], authority["ca.crt"]);
    memory.pass(23 * 60 * MINUTE).await;
    assert_eq!((data(&memory, "cache-tls"), generation(&memory)), (first.clone(), at_first));

    memory.pass(2 * 60 * MINUTE).await;
    let renewed = data(&memory, "cache-tls");
    assert_ne!(renewed["tls.crt"], first["tls.crt"]);
    assert_eq!(
        (&data(&memory, "cache-ca"), &renewed["ca.crt"]),
        (&authority, &first["ca.crt"]),
        "clients trust it already"
    );
    assert_eq!(generation(&memory), at_first.map(|it| it + 1));
    let strategy = deployment(&memory).expect("a Deployment")["spec"]["strategy"].clone();
    assert_eq!(strategy["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    assert_eq!(verbs(&memory), ["create", "get", "patch"]);
}

/// Clients that mount `ca.crt` get the next authority before a node shows a certificate of it.
#[tokio::test(start_paused = true)]
async fn authority_that_replaces_a_lost_one_signs_later() {
    let mut memory = with_certificate().await;
    let (first, at_first) = (data(&memory, "cache-tls"), generation(&memory));
    memory.model.take("secrets", "default", "cache-ca");
    assert_signs_later(&mut memory, &first, at_first).await;
}

/// A user restores the authority from a backup. Its age does not matter: clients do not have its certificate.
#[tokio::test(start_paused = true)]
async fn restored_authority_that_clients_do_not_have_signs_later() {
    let mut memory = with_certificate().await;
    let old = data(&memory, "cache-ca");
    for name in ["cache-ca", "cache-tls"] {
        memory.model.take("secrets", "default", name);
    }
    memory.pass(60 * MINUTE).await;
    let (first, at_first) = (data(&memory, "cache-tls"), generation(&memory));
    assert_ne!(first["ca.crt"], old["ca.crt"], "clients have only the certificate of another authority");

    let mut restored = secret(&memory, "cache-ca").expect("a Secret");
    restored["data"] = old.clone();
    memory.model.put(restored);
    assert_signs_later(&mut memory, &first, at_first).await;
    assert_eq!(data(&memory, "cache-ca"), old, "what the user has restored stays");
}

/// The operator makes an authority, and for a while it cannot give its certificate to clients.
#[tokio::test(start_paused = true)]
async fn authority_whose_certificate_reaches_clients_late_signs_later() {
    let mut memory = with_certificate().await;
    let (first, at_first) = (data(&memory, "cache-tls"), generation(&memory));
    memory.plan(&format!("before patch secrets.core -> {FORBIDDEN}").parse().expect("a plan"));
    memory.model.take("secrets", "default", "cache-ca");
    memory.pass(20 * MINUTE).await;
    assert_eq!(data(&memory, "cache-tls"), first);
    assert!(secret(&memory, "cache-ca").is_some() && object(&memory)["status"].to_string().contains("Forbidden"));

    memory.no_plan();
    assert_signs_later(&mut memory, &first, at_first).await;
}

/// An earlier version has not noted the time either.
#[tokio::test(start_paused = true)]
async fn authority_waits_again_if_the_note_about_clients_is_lost() {
    let mut memory = with_certificate().await;
    let first = data(&memory, "cache-tls");
    memory.model.take("secrets", "default", "cache-ca");
    memory.pass(3 * MINUTE).await;
    let mut announced = secret(&memory, "cache-tls").expect("a Secret");
    assert_ne!(announced["data"]["ca.crt"], first["ca.crt"]);
    announced["metadata"]["annotations"] = json!({});
    memory.model.put(announced);

    memory.pass(2 * MINUTE).await;
    let note = |memory: &InMemory| {
        let annotations = secret(memory, "cache-tls").expect("a Secret")["metadata"]["annotations"].clone();
        annotations["memcached.cache.example.com/authority-trusted-since"].as_str().map(str::to_owned)
    };
    let noted = note(&memory);
    assert!(noted.is_some());
    memory.pass(2 * MINUTE).await;
    assert_eq!((&data(&memory, "cache-tls")["tls.crt"], note(&memory)), (&first["tls.crt"], noted.clone()));
    memory.pass(6 * MINUTE).await;
    assert_ne!(data(&memory, "cache-tls")["tls.crt"], first["tls.crt"]);
    assert_eq!(note(&memory), noted, "it is noted once");
}

#[tokio::test(start_paused = true)]
async fn withheld_permissions_are_reported_and_the_service_stays() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, json!({"auth": {"generate": true}})).await;
    let refusal = format!("before create secrets.core -> {FORBIDDEN}");
    memory.plan(&refusal.parse().expect("a plan"));
    memory.start();
    memory.until_quiet().await;
    assert_eq!(degraded(&memory).0, "Forbidden");
    assert_eq!((deployment(&memory), memory.model.objects("services").len()), (None, 1));
    memory.no_plan();
    memory.pass(2 * MINUTE).await;
    assert_eq!(degraded(&memory).0, "AsExpected");
}
