//! The command `smoke-test`: applies one sample of each operator to the real cluster, waits until it is ready, and cleans
//! up. `helm test` runs it; it is useful by hand too.

use std::{fmt::Write as _, io::Write, time::Duration};

use api_errors::chain;
use clap::Args;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ObjectMeta, PostParams},
    runtime::wait::{Condition, await_condition, conditions::is_deleted},
};
use serde_json::Value;

use crate::{
    client,
    operator::Operator,
    settings::{ClusterFlags, duration, selects, unknown_operator},
};

/// The flags of `smoke-test`.
#[derive(Debug, Clone, Args)]
pub(super) struct SmokeTest {
    /// Operators to try, as in `run`.
    #[arg(long, env = "OPERATOR_OPERATORS", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    operators: Vec<String>,

    /// Namespace for the samples, which get fresh names. If not given, the test creates a namespace and deletes it again.
    #[arg(long)]
    namespace: Option<String>,

    /// Labels of the namespace that the test creates, KEY=VALUE,KEY=VALUE: for operators that watch namespaces with these labels.
    #[arg(long, value_delimiter = ',', value_parser = label)]
    namespace_labels: Vec<(String, String)>,

    /// Registry prefix for the images of the samples, as in `run`.
    #[arg(long, env = "OPERATOR_IMAGE_REGISTRY")]
    image_registry: Option<String>,

    /// How long a sample may take to become ready.
    #[arg(long, default_value = "3m", value_parser = duration)]
    timeout: Duration,

    #[command(flatten)]
    cluster: ClusterFlags,
}

/// Tries every chosen operator, one after the other, and reports on standard output.
///
/// After the clean-up, returns an error that names the operators whose sample did not become ready.
pub(super) async fn run(operators: &[&'static dyn Operator], flags: SmokeTest) -> Result<(), String> {
    let known: Vec<&str> = operators.iter().map(|operator| operator.name()).collect();
    if let Some(unknown) = unknown_operator(&flags.operators, &known) {
        return Err(format!("--operators: there is no operator \"{unknown}\"; known are {}", known.join(", ")));
    }
    let client = client::plain(&flags.cluster).await.map_err(|error| chain(&error))?;
    let suffix = format!("{:05x}", fastrand::u32(..1 << 20));
    let scratch = flags.namespace.is_none();
    let namespace = flags.namespace.clone().unwrap_or_else(|| format!("smoke-test-{suffix}"));
    if scratch {
        let labels = flags.namespace_labels.iter().cloned().collect();
        let metadata = ObjectMeta { name: Some(namespace.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let made = Namespace { metadata, ..Namespace::default() };
        Api::all(client.clone())
            .create(&PostParams::default(), &made)
            .await
            .map_err(|error| format!("cannot make namespace {namespace}: {}", chain(&error)))?;
    }
    let mut failures = Vec::new();
    for operator in operators.iter().filter(|operator| selects(&flags.operators, operator.name())) {
        if let Err(error) = attempt(*operator, &client, &namespace, &suffix, &flags).await {
            say(&format!("  {} failed: {error}", operator.name()));
            failures.push(operator.name());
        }
    }
    if scratch {
        let deleted = Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::background()).await;
        deleted.map_err(|error| format!("cannot delete namespace {namespace}: {}", chain(&error)))?;
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("not ready: {}", failures.join(", "))) }
}

async fn attempt(
    operator: &dyn Operator,
    client: &Client,
    namespace: &str,
    suffix: &str,
    flags: &SmokeTest,
) -> Result<(), String> {
    let timeout = flags.timeout;
    let (resource, mut sample) = sample(operator)?;
    if let Some(registry) = &flags.image_registry {
        from_registry(&mut sample, registry);
    }
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let name = format!("smoke-{}-{suffix}", operator.name());
    sample.metadata = ObjectMeta {
        name: Some(name.clone()),
        labels: sample.metadata.labels.take(),
        annotations: sample.metadata.annotations.take(),
        ..ObjectMeta::default()
    };
    say(&format!("{} {namespace}/{name}", resource.kind));
    let created = api.create(&PostParams::default(), &sample).await.map_err(|error| refused(&error))?;
    let started = tokio::time::Instant::now();
    let ready = tokio::time::timeout(timeout, await_condition(api.clone(), &name, is_ready())).await;
    let seconds = started.elapsed().as_secs_f64();
    let verdict = match ready {
        Ok(Ok(_)) => {
            say(&format!("  ready after {seconds:.1} s"));
            Ok(())
        }
        Ok(Err(error)) => Err(chain(&error)),
        Err(_) => Err(format!("not ready after {} s{}", timeout.as_secs(), state(&api, &name).await)),
    };
    api.delete(&name, &DeleteParams::foreground()).await.map_err(|error| chain(&error))?;
    let uid = created.uid().unwrap_or_default();
    let gone = await_condition(api, &name, is_deleted(&uid));
    match tokio::time::timeout(timeout, gone).await {
        Ok(Ok(_)) => verdict,
        Ok(Err(error)) => verdict.and(Err(format!("while it was deleted: {}", chain(&error)))),
        Err(_) => verdict.and(Err(format!("still there {} s after it was deleted", timeout.as_secs()))),
    }
}

/// Why the API server refused a sample, and what to do about it.
fn refused(error: &kube::Error) -> String {
    let advice = match error {
        kube::Error::Api(status) if status.message.contains("failed calling webhook") => {
            ": check that the operator's pods are ready, and that the API server reaches the port of their webhooks"
        }
        kube::Error::Api(status) if status.code == 404 && status.message.contains("page not found") => {
            ": check that the CustomResourceDefinitions of the operator are installed"
        }
        _ => "",
    };
    format!("{}{advice}", chain(error))
}

/// Returns the sample and its resource.
fn sample(operator: &dyn Operator) -> Result<(ApiResource, DynamicObject), String> {
    let broken = |error: &dyn std::fmt::Display| format!("the sample of {} is broken: {error}", operator.name());
    let object: DynamicObject = serde_saphyr::from_str(operator.sample()).map_err(|error| broken(&error))?;
    let types = object.types.clone().ok_or_else(|| broken(&"it has no kind"))?;
    let crds = operator.crds();
    let crd =
        crds.iter().find(|crd| crd.spec.names.kind == types.kind).ok_or_else(|| broken(&"its kind is not ours"))?;
    let (group, version) = types.api_version.split_once('/').ok_or_else(|| broken(&"its apiVersion has no group"))?;
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: types.api_version.clone(),
        kind: types.kind,
        plural: crd.spec.names.plural.clone(),
    };
    Ok((resource, object))
}

/// The image that the sample of the operator names, if it names one.
pub(super) fn image_of_sample(operator: &dyn Operator) -> Option<String> {
    let (_, sample) = sample(operator).ok()?;
    Some(sample.data.pointer("/spec/image")?.as_str()?.to_owned())
}

/// Lets the sample take its image from a mirror.
fn from_registry(sample: &mut DynamicObject, registry: &str) {
    if let Some(image) = sample.data.pointer_mut("/spec/image")
        && let Some(name) = image.as_str()
    {
        *image = Value::from(format!("{}/{name}", registry.trim_end_matches('/')));
    }
}

fn is_ready() -> impl Condition<DynamicObject> {
    |object: Option<&DynamicObject>| {
        object.is_some_and(|object| {
            let generation = object.metadata.generation;
            conditions(object).any(|condition| {
                condition["type"] == "Ready"
                    && condition["status"] == "True"
                    && condition["observedGeneration"].as_i64() == generation
            })
        })
    }
}

fn conditions(object: &DynamicObject) -> impl Iterator<Item = &Value> {
    object.data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the object's conditions as text, for the message of a failure.
async fn state(api: &Api<DynamicObject>, name: &str) -> String {
    let mut text = String::new();
    if let Ok(object) = api.get(name).await {
        for condition in conditions(&object) {
            let word = |key: &str| condition[key].as_str().unwrap_or("-");
            let _ = write!(text, "; {}={} {}: {}", word("type"), word("status"), word("reason"), word("message"));
        }
    }
    if text.is_empty() { "; it has no status: is its operator running?".to_owned() } else { text }
}

fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn refusal_says_what_to_do() {
        let refusal = |code, message: &str| {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            refused(&kube::Error::Api(Box::new(status)))
        };
        let webhook = refusal(500, "Internal error occurred: failed calling webhook \"a\": connection refused");
        assert!(
            webhook.contains("connection refused") && webhook.contains("check that the operator's pods"),
            "{webhook}"
        );
        let kind = refusal(404, "404 page not found");
        assert!(kind.contains("check that the CustomResourceDefinitions"), "{kind}");
        let denied = refusal(403, "admission webhook \"a\" denied the request: size is too large");
        assert!(denied.contains("size is too large") && !denied.contains("check that"), "{denied}");
    }
}
