//! Annotations by which a user steers an operator: pause, resume, reconcile, run now.

use std::time::Duration;

use api_errors::{Class, classify};
use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    Session,
    cli::{TargetFlags, WaitFlags},
    events::{self, Event},
    kinds::Kind,
    object::{is_paused, paused_annotation, state},
    text::{one_line, request_error},
};

/// The name under which the API server records the changes.
const MANAGER: &str = "kubectl-operators";
/// How long to wait for the events that follow a request.
const EVENTS: Duration = Duration::from_secs(2);

/// The object that the user names, and its kind.
pub(crate) async fn find<'a>(session: &'a Session, target: &TargetFlags) -> Result<(&'a Kind, DynamicObject), String> {
    let (kind, name) = target.parts()?;
    let kind = session.kinds.find(kind)?;
    if session.all_namespaces {
        return Err("an object is in one namespace: give --namespace instead of --all-namespaces".to_owned());
    }
    match kind.api(session).get(name).await {
        Ok(object) => Ok((kind, object)),
        Err(error) => Err(missing(session, kind, name, &error)),
    }
}

fn missing(session: &Session, kind: &Kind, name: &str, error: &kube::Error) -> String {
    if classify(error) != Class::NotFound {
        return request_error(&format!("cannot read {}", kind.named(name)), error);
    }
    let (place, flag) = if kind.is_namespaced {
        (format!(" in namespace {}", session.namespace), " --all-namespaces")
    } else {
        (String::new(), "")
    };
    let advice = format!("`kubectl operators status {}{flag}` lists what there is", kind.singular);
    format!("there is no {} \"{}\"{place}; {advice}", kind.resource.kind, one_line(name))
}

/// Pauses an object, or resumes it.
pub(crate) async fn pause(session: &Session, target: &TargetFlags, paused: bool) -> Result<String, String> {
    let (kind, object) = find(session, target).await?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let named = kind.named(&name);
    if is_paused(kind, &object) == paused {
        return Ok(format!("{named} is {}\n", if paused { "paused already" } else { "not paused" }));
    }
    let value = if paused { json!("true") } else { Value::Null };
    annotate(session, kind, &object, &paused_annotation(kind), value).await?;
    Ok(if paused {
        format!("{named} is paused: its operator changes nothing until `kubectl operators resume {named}`\n")
    } else {
        format!("{named} is resumed\n")
    })
}

/// Requests a reconcile, and waits until the operator has done it.
pub(crate) async fn reconcile(session: &Session, target: &TargetFlags, wait: &WaitFlags) -> Result<String, String> {
    let (kind, object) = find(session, target).await?;
    let asked = Asked { annotation: "reconcile-requested-at", answer: "lastHandledReconcileAt", done: "reconciled" };
    ask(session, kind, &object, &asked, wait.limit()).await
}

/// Requests a run, and waits until the operator has taken notice of it and said what it does.
pub(crate) async fn run_now(session: &Session, target: &TargetFlags, wait: &WaitFlags) -> Result<String, String> {
    let (kind, object) = find(session, target).await?;
    if !has_runs(session, kind).await? {
        let named = &kind.resource.kind;
        return Err(format!("a {named} has no runs; `kubectl operators reconcile` lets its operator work on it now"));
    }
    if is_paused(kind, &object) {
        let named = kind.named(object.metadata.name.as_deref().unwrap_or_default());
        return Err(format!("{named} is paused; `kubectl operators resume {named}` first"));
    }
    let asked = Asked { annotation: "run-now", answer: "lastRunNow", done: "run requested" };
    let before = events::of(session, &object).await.unwrap_or_default();
    let mut said = ask(session, kind, &object, &asked, wait.limit()).await?;
    if !wait.limit().is_zero() {
        for event in events_after(session, &object, &before).await {
            said += &one_line(&format!("  {}: {}", event.reason, event.message));
            said.push('\n');
        }
    }
    Ok(said)
}

/// Waits a moment for events on the object that are new: they say whether the operator has started a run, or why not. The operator
/// sends them after the answer.
async fn events_after(session: &Session, object: &DynamicObject, before: &[Event]) -> Vec<Event> {
    let deadline = Instant::now() + EVENTS;
    loop {
        let mut events = events::of(session, object).await.unwrap_or_default();
        events.retain(|event| !before.contains(event));
        if !events.is_empty() || Instant::now() >= deadline {
            return events;
        }
        tokio::time::sleep(EVENTS / 10).await;
    }
}

/// A request by annotation, which the operator answers in the status.
struct Asked {
    /// The annotation, without the kind's group.
    annotation: &'static str,
    /// The field of the status to which the operator copies the annotation's value.
    answer: &'static str,
    /// What has happened then.
    done: &'static str,
}

async fn ask(
    session: &Session,
    kind: &Kind,
    object: &DynamicObject,
    asked: &Asked,
    limit: Duration,
) -> Result<String, String> {
    let named = kind.named(object.metadata.name.as_deref().unwrap_or_default());
    let token = Timestamp::now().to_string();
    let annotation = format!("{}/{}", kind.resource.group, asked.annotation);
    let begun = Instant::now();
    let written = annotate(session, kind, object, &annotation, json!(token)).await?;
    if limit.is_zero() {
        return Ok(format!("{named}: {annotation} is set\n"));
    }
    match timeout(limit, answered(&kind.api(session), written, asked.answer, &token)).await {
        Ok(Ok(answered)) => {
            let state = state(kind, &answered, session.now);
            let seconds = begun.elapsed().as_secs_f64();
            Ok(one_line(&format!(
                "{named} {} after {seconds:.1} s: Ready={} {}",
                asked.done, state.ready, state.reason
            )) + "\n")
        }
        Ok(Err(why)) => Err(format!("{named}: {why}")),
        Err(_) => Err(format!(
            "{named}: its operator has not answered within {} s. Is it running, and does it watch this namespace? \
             The annotation {annotation} stays, and the operator will see it",
            limit.as_secs()
        )),
    }
}

/// Waits until the status has this value.
async fn answered(
    api: &Api<DynamicObject>,
    mut object: DynamicObject,
    field: &str,
    token: &str,
) -> Result<DynamicObject, String> {
    let (name, uid) = (object.metadata.name.clone().unwrap_or_default(), object.metadata.uid.clone());
    let failed =
        |error: &kube::Error| request_error("its operator has the request, but its answer cannot be read", error);
    let gone = || "the object was deleted".to_owned();
    loop {
        let has_answer = |object: &DynamicObject| object.data["status"][field] == token;
        if has_answer(&object) {
            return Ok(object);
        }
        let parameters = WatchParams::default().fields(&format!("metadata.name={name}"));
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let events = api.watch(&parameters, &version).await.map_err(|error| failed(&error))?;
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event.map_err(|error| failed(&error))? {
                WatchEvent::Added(changed) | WatchEvent::Modified(changed) => {
                    object = changed;
                    if has_answer(&object) {
                        return Ok(object);
                    }
                }
                WatchEvent::Deleted(_) => return Err(gone()),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
            }
        }
        // The watch has ended. Meanwhile the object may have been deleted, and created again without the request.
        let found = api.get_opt(&name).await.map_err(|error| failed(&error))?;
        object = found.filter(|found| found.metadata.uid == uid).ok_or_else(gone)?;
    }
}

async fn annotate(
    session: &Session,
    kind: &Kind,
    object: &DynamicObject,
    annotation: &str,
    value: Value,
) -> Result<DynamicObject, String> {
    let name = object.metadata.name.clone().unwrap_or_default();
    // The uid makes sure that an object that was created again in the meantime stays as it is.
    let patch = json!({"metadata": {"uid": object.metadata.uid, "annotations": {annotation: value}}});
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let written = kind.api(session).patch(&name, &parameters, &Patch::Merge(patch)).await;
    written.map_err(|error| request_error(&format!("cannot change {}", kind.named(&name)), &error))
}

/// Whether the operator of this kind starts runs on request: then its status remembers the last request.
async fn has_runs(session: &Session, kind: &Kind) -> Result<bool, String> {
    let path = format!("/openapi/v3/apis/{}", kind.resource.api_version);
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    let answer = session.client.request_text(request).await;
    let text = answer.map_err(|error| request_error("cannot read the schema of the kind", &error))?;
    let schemas: Value = serde_json::from_str(&text).map_err(|error| format!("the schema is not JSON: {error}"))?;
    let schemas = schemas["components"]["schemas"].as_object();
    let is_of_kind = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        kinds.into_iter().flatten().any(|it| it["kind"] == *kind.resource.kind)
    };
    let schema = schemas.into_iter().flat_map(|all| all.values()).find(is_of_kind);
    Ok(schema.is_some_and(|schema| schema.pointer("/properties/status/properties/lastRunNow").is_some()))
}
