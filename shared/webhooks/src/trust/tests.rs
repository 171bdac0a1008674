use k8s_openapi::api::core::v1::ConfigMap;
use model_apiserver::{Entry, Model, Planned, Verb};

use super::*;
use crate::ValidationResult;

/// The CRD whose conversion is ours.
const DEFINITION: &str = "configmaps.";
const URL: &str = "https://127.0.0.1:9443";

fn webhooks() -> Vec<Webhook> {
    vec![
        Webhook::converting::<ConfigMap>(&["v1"], |object, _| Ok(object)),
        Webhook::validating::<ConfigMap>(|_, _| ValidationResult::none()),
        Webhook::defaulting::<ConfigMap>(|_| ()),
    ]
}

fn trust(model: &Model, endpoint: Endpoint) -> Trust {
    Trust {
        client: model.client(),
        endpoint,
        configuration: "operators".to_owned(),
        webhooks: webhooks(),
        before: Vec::new(),
    }
}

/// The trust of the release in this namespace.
fn released(model: &Model, namespace: &str) -> Trust {
    trust(model, Endpoint::Service { namespace: namespace.to_owned(), name: "webhooks".to_owned() })
}

fn by_url(model: &Model) -> Trust {
    trust(model, Endpoint::Url(URL.to_owned()))
}

/// An API server that serves both kinds of webhook configurations, and merges their entries by name as the real one does.
fn cluster() -> Model {
    let model = Model::new();
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let entry = json!({
            "type": "object", "properties": {"name": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true,
        });
        let entries = json!({
            "type": "array", "items": entry, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        });
        let plural = format!("{}s", kind.to_lowercase());
        model.install(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.admissionregistration.k8s.io")},
            "spec": {
                "group": "admissionregistration.k8s.io", "scope": "Cluster", "names": {"kind": kind, "plural": plural},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"webhooks": entries}}},
                }],
            },
        }));
    }
    model
}

fn service(namespace: &str) -> Value {
    json!({"namespace": namespace, "name": "webhooks", "path": "/any", "port": 443})
}

fn entry(name: &str, namespace: &str) -> Value {
    json!({
        "name": name, "clientConfig": {"service": service(namespace)}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    })
}

fn put_configuration(model: &Model, kind: &str, entries: &[Value]) {
    model.put(json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "operators"}, "webhooks": entries,
    }));
}

fn put_definition(model: &Model, conversion: &Value) {
    model.put(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": DEFINITION},
        "spec": {
            "group": "", "scope": "Namespaced", "names": {"kind": "ConfigMap", "plural": "configmaps"},
            "versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v2", "served": false, "storage": false}],
            "conversion": conversion,
        },
    }));
}

fn converted_by(namespace: &str) -> Value {
    let client = json!({"service": service(namespace)});
    json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
}

/// What the chart of the release in this namespace installs.
fn installed_by(namespace: &str) -> Model {
    let model = cluster();
    put_definition(&model, &converted_by(namespace));
    let [_, validating, defaulting] = webhooks().try_into().unwrap_or_else(|_| panic!("three webhooks"));
    put_configuration(&model, "ValidatingWebhookConfiguration", &[entry(&validating.name(), namespace)]);
    put_configuration(&model, "MutatingWebhookConfiguration", &[entry(&defaulting.name(), namespace)]);
    model
}

fn definition(model: &Model) -> Value {
    model.object("customresourcedefinitions.apiextensions.k8s.io", "", DEFINITION).expect("a definition")
}

/// The webhook configuration of this kind: `validating` or `mutating`.
fn configuration(model: &Model, kind: &str) -> Option<Value> {
    model.object(&format!("{kind}webhookconfigurations.admissionregistration.k8s.io"), "", "operators")
}

/// All that the API server reads a bundle from: the definition and both configurations.
fn stored(model: &Model) -> Vec<Value> {
    let configurations = ["validating", "mutating"].map(|kind| configuration(model, kind).expect("a configuration"));
    [definition(model)].into_iter().chain(configurations).collect()
}

/// The client config of the n-th entry.
fn client_config(configuration: &Value, entry: usize) -> &Value {
    &configuration["webhooks"][entry]["clientConfig"]
}

fn conversion_config(model: &Model) -> Value {
    definition(model)["spec"]["conversion"]["webhook"]["clientConfig"].clone()
}

fn is_owned_by_us(object: &Value) -> bool {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().any(|entry| entry["manager"] == MANAGER)
}

fn writes(model: &Model) -> Vec<Entry> {
    model.requests().into_iter().filter(|entry| entry.verb.writes()).collect()
}

fn fail(model: &Model, plan: &str) {
    model.set_faults(Planned::new(&plan.parse().expect("a plan")));
}

fn reported(state: &TrustState) -> (bool, Option<&str>, Option<&str>) {
    (state.settled, state.bundle.as_deref(), state.remark.as_deref())
}

#[tokio::test]
async fn bundle_is_written_to_all_objects_without_owning_it_and_then_nothing_is_written() {
    let model = installed_by("ours");
    let mut trust = released(&model, "ours");
    for bundle in ["first", "second"] {
        let state = trust.establish(bundle).await.expect("is established");
        assert_eq!(reported(&state), (false, Some(bundle), None));
        for kind in ["validating", "mutating"] {
            let configuration = configuration(&model, kind).expect("a configuration");
            assert_eq!(client_config(&configuration, 0)["caBundle"], encoded(bundle), "{configuration}");
            assert_eq!(client_config(&configuration, 0)["service"], service("ours"), "{configuration}");
        }
        assert_eq!(conversion_config(&model), json!({"service": service("ours"), "caBundle": encoded(bundle)}));
        assert!(!stored(&model).iter().any(is_owned_by_us), "an upgrade could not remove the entry");

        model.clear_requests();
        let state = trust.establish(bundle).await.expect("is established");
        assert_eq!(reported(&state), (true, Some(bundle), None));
        assert_eq!(writes(&model), []);
    }
}

#[tokio::test]
async fn ownership_that_an_earlier_process_kept_is_given_up() {
    let model = installed_by("ours");
    released(&model, "ours").establish("bundle").await.expect("is established");
    // The earlier process ended after its apply.
    for mut object in stored(&model) {
        let fields = json!({"manager": MANAGER, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}});
        let entries = object["metadata"]["managedFields"].as_array_mut();
        match entries {
            Some(entries) => entries.push(fields),
            None => object["metadata"]["managedFields"] = json!([fields]),
        }
        model.put(object);
    }
    assert!(stored(&model).iter().all(is_owned_by_us));

    let state = released(&model, "ours").establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (true, Some("bundle"), None));
    assert!(!stored(&model).iter().any(is_owned_by_us));
}

/// What a failed release of the ownership of `kind` results in, by the code of the API server's answer.
async fn release_refused_with(code: u16, resource: &str) -> Result<TrustState, Error> {
    let model = installed_by("ours");
    // The first patch of an object is the apply, the second gives up its fields.
    fail(&model, &format!("before patch {resource} #2 -> answer {code}"));
    released(&model, "ours").establish("bundle").await
}

#[tokio::test]
async fn write_in_between_leaves_the_ownership_to_the_next_round_and_another_failure_is_reported() {
    for resource in ["validatingwebhookconfigurations.admissionregistration.k8s.io", "customresourcedefinitions.*"] {
        for code in [409, 422] {
            let state = release_refused_with(code, resource).await.expect("is established");
            assert_eq!(reported(&state), (false, Some("bundle"), None), "{code} {resource}");
        }
        let error = release_refused_with(500, resource).await.expect_err("an error").to_string();
        assert!(error.contains("cannot give up our fields of"), "{error}");
    }
}

#[tokio::test]
async fn entries_of_others_and_of_an_older_chart_are_left_alone() {
    let model = installed_by("ours");
    let ours = webhooks()[1].name();
    let entries = [entry("another.operator", "ours"), entry(&ours, "ours"), entry("third.operator", "theirs")];
    put_configuration(&model, "ValidatingWebhookConfiguration", &entries);
    // This chart does not know our defaulting webhook.
    put_configuration(&model, "MutatingWebhookConfiguration", &[entry("another.operator", "ours")]);
    let mutating = configuration(&model, "mutating");

    let state = released(&model, "ours").establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (false, Some("bundle"), None));
    let validating = configuration(&model, "validating").expect("a configuration");
    let bundles: Vec<&Value> = (0..3).map(|entry| &client_config(&validating, entry)["caBundle"]).collect();
    assert_eq!(bundles, [&Value::Null, &encoded("bundle"), &Value::Null]);
    assert_eq!(configuration(&model, "mutating"), mutating);
}

#[tokio::test]
async fn missing_objects_are_not_created_and_the_first_is_named() {
    let model = cluster();
    let (configurations, definition) = (
        "ValidatingWebhookConfiguration operators is not installed: the API server calls no webhook",
        "crd configmaps. not installed",
    );
    let state = released(&model, "ours").establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (true, None, Some(configurations)));

    let mut converts = released(&model, "ours");
    converts.webhooks.truncate(1);
    let state = converts.establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (true, None, Some(definition)));
    assert_eq!(writes(&model), []);
}

#[tokio::test]
async fn definition_without_a_conversion_by_webhook_needs_no_bundle() {
    for conversion in [Value::Null, json!({"strategy": "None"})] {
        let model = cluster();
        put_definition(&model, &conversion);
        let mut trust = released(&model, "ours");
        trust.webhooks.truncate(1);
        let state = trust.establish("bundle").await.expect("is established");
        assert_eq!(reported(&state), (true, None, None));
        assert_eq!(writes(&model), []);
    }
}

#[tokio::test]
async fn bundle_of_a_configuration_alone_is_reported() {
    let model = cluster();
    put_configuration(&model, "ValidatingWebhookConfiguration", &[entry(&webhooks()[1].name(), "ours")]);
    let mut trust = released(&model, "ours");
    trust.webhooks = vec![webhooks().remove(1)];
    for settled in [false, true] {
        let state = trust.establish("bundle").await.expect("is established");
        assert_eq!(reported(&state), (settled, Some("bundle"), None));
    }
}

#[tokio::test]
async fn failure_to_read_or_write_names_the_object() {
    for (plan, message) in [
        (
            "before get validatingwebhookconfigurations.* -> answer 500",
            "cannot read ValidatingWebhookConfiguration operators",
        ),
        (
            "before patch mutatingwebhookconfigurations.* -> answer 403",
            "cannot write MutatingWebhookConfiguration operators",
        ),
        ("before get customresourcedefinitions.* -> answer 500", "cannot read CustomResourceDefinition configmaps."),
        (
            "before patch customresourcedefinitions.* -> answer 403",
            "cannot write the conversion of CustomResourceDefinition configmaps.",
        ),
    ] {
        for by_url_too in [false, true] {
            let model = installed_by("ours");
            fail(&model, plan);
            let mut trust = if by_url_too { by_url(&model) } else { released(&model, "ours") };
            let error = trust.establish("bundle").await.expect_err("an error").to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}

#[tokio::test]
async fn objects_of_another_release_keep_their_ca_bundle_and_a_remark_names_the_release() {
    let model = installed_by("first");
    let owner = released(&model, "first").establish("ours").await.expect("is established");
    assert_eq!(reported(&owner), (false, Some("ours"), None));
    let before = stored(&model);

    for _ in 0..3 {
        let state = released(&model, "second").establish("theirs").await.expect("is established");
        let remark = state.remark.expect("a remark");
        assert!(remark.contains("calls the Service first/webhooks of another release"), "{remark}");
        assert!(state.settled);
    }
    let mut converts = released(&model, "second");
    converts.webhooks.truncate(1);
    let state = converts.establish("theirs").await.expect("is established");
    assert_eq!((state.settled, state.bundle), (true, None));
    let remark = state.remark.expect("a remark");
    assert!(remark.contains("is converted by the Service first/webhooks of another release"), "{remark}");
    assert_eq!(stored(&model), before, "the releases would fight over the objects");
}

#[tokio::test]
async fn url_is_written_as_a_whole_and_repaired_when_it_is_changed() {
    let model = cluster();
    put_definition(&model, &json!({"strategy": "None"}));
    let mut trust = by_url(&model);
    let state = trust.establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (false, Some("bundle"), None));
    let written = stored(&model);
    let url = |path: &str| json!({"url": format!("{URL}{path}"), "caBundle": encoded("bundle")});
    assert_eq!(conversion_config(&model), url("/convert"));
    assert_eq!(client_config(&written[1], 0), &url("/validate--v1-configmap"));
    assert_eq!(client_config(&written[2], 0), &url("/mutate--v1-configmap"));
    let served = |object: &Value| [0, 1].map(|version| object["spec"]["versions"][version]["served"].clone());
    assert_eq!(served(&written[0]), [true, true], "a version that is not served cannot be converted");

    model.clear_requests();
    let state = trust.establish("bundle").await.expect("is established");
    assert_eq!(reported(&state), (true, Some("bundle"), None));
    assert_eq!(writes(&model), []);

    let edits: [fn(&mut [Value]); 5] = [
        |all| all[0]["spec"]["versions"][1]["served"] = json!(false),
        |all| all[0]["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = encoded("other"),
        |all| all[0]["spec"]["conversion"]["webhook"]["clientConfig"]["url"] = json!("https://127.0.0.1:1/convert"),
        |all| all[1]["webhooks"][0]["clientConfig"]["url"] = json!("https://127.0.0.1:1/validate"),
        |all| all[2]["webhooks"] = json!([]),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut edited = stored(&model);
        edit(&mut edited);
        for object in edited {
            model.put(object);
        }
        let state = trust.establish("bundle").await.expect("is established");
        assert_eq!(reported(&state), (false, Some("bundle"), None), "edit {number}");
        let now = stored(&model);
        for (written, now) in written.iter().zip(&now) {
            assert_eq!((&written["spec"], &written["webhooks"]), (&now["spec"], &now["webhooks"]), "edit {number}");
        }
    }
}

#[tokio::test]
async fn end_of_a_process_with_a_url_restores_what_was_there_before() {
    let model = cluster();
    put_definition(&model, &converted_by("ours"));
    let original = definition(&model)["spec"].clone();
    let mut trust = by_url(&model);
    for bundle in ["first", "second"] {
        trust.establish(bundle).await.expect("is established");
    }
    assert_ne!(definition(&model)["spec"], original);

    assert!(trust.restore().await.is_empty());
    assert_eq!(definition(&model)["spec"], original);
    assert_eq!(["validating", "mutating"].map(|kind| configuration(&model, kind)), [None, None]);

    model.clear_requests();
    assert!(trust.restore().await.is_empty(), "what is gone is no failure");
    assert!(writes(&model).iter().all(|write| write.verb == Verb::Delete), "the definition was restored already");
}

#[tokio::test]
async fn conversion_that_an_earlier_process_left_is_not_restored() {
    let model = cluster();
    put_definition(&model, &json!({"strategy": "None"}));
    by_url(&model).establish("first").await.expect("is established");
    let mut next = by_url(&model);
    next.establish("second").await.expect("is established");
    assert!(next.restore().await.is_empty());
    assert_eq!(conversion_config(&model), Value::Null, "nothing answers at the URL any more");
}

#[tokio::test]
async fn what_cannot_be_removed_is_reported_and_the_rest_is_removed() {
    let model = cluster();
    put_definition(&model, &json!({"strategy": "None"}));
    let mut trust = by_url(&model);
    trust.establish("bundle").await.expect("is established");
    fail(&model, "before delete validatingwebhookconfigurations.* -> answer 403");
    let failures: Vec<String> = trust.restore().await.iter().map(ToString::to_string).collect();
    let [failure] = failures.as_slice() else { panic!("one failure: {failures:?}") };
    assert!(failure.contains("cannot remove the webhook configurations"), "{failure}");
    assert_eq!(configuration(&model, "mutating"), None);
    assert_eq!(conversion_config(&model), Value::Null);

    let model = cluster();
    put_definition(&model, &json!({"strategy": "None"}));
    let mut trust = by_url(&model);
    trust.establish("bundle").await.expect("is established");
    fail(&model, "before patch customresourcedefinitions.* -> answer 403");
    let failures: Vec<String> = trust.restore().await.iter().map(ToString::to_string).collect();
    let [failure] = failures.as_slice() else { panic!("one failure: {failures:?}") };
    assert!(failure.contains("cannot restore the conversion"), "{failure}");
}

#[tokio::test]
async fn end_of_a_process_in_a_cluster_removes_nothing() {
    let model = installed_by("ours");
    let mut trust = released(&model, "ours");
    trust.establish("bundle").await.expect("is established");
    model.clear_requests();
    assert!(trust.restore().await.is_empty());
    assert_eq!(model.requests(), []);
}
