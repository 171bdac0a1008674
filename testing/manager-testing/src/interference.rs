//! Interferences: other clients act while an operator works, at every moment of every request.
//!
//! A [`Story`] describes the operator's object and its changes. It runs once undisturbed, to learn which requests the operator
//! sends. Then it runs many times; each time one [`Interference`] happens at one moment of one request: before the API server
//! handles it, between handling and answer, or after the answer but before watches deliver the change. In the end, the operator
//! must have reacted to everything: a new process of it must find nothing to write.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use fault_plan::Plan;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    discovery::ApiResource,
};
use manager::Operator;
use model_apiserver::{Entry, Model, Planned, Verb};
use serde_json::{Value, json};

use crate::{in_memory::InMemory, seed::seed};

const NAMESPACE: &str = "default";
/// Longer than the lag of delayed watches.
const LATE: Duration = Duration::from_mins(2);
/// Interval of progress messages, in real time.
const PROGRESS: Duration = Duration::from_secs(10);
/// A time in which an idle operator has nothing to do.
const IDLE: Duration = Duration::from_mins(5);

/// An operator, its object and the changes of the object. Nothing may become due by the clock alone within some minutes.
pub trait Story {
    /// The operator.
    fn operator(&self) -> &'static dyn Operator;

    /// The primary, as a user creates it in the namespace `default`.
    fn object(&self) -> Value;

    /// Merge patches that a user sends one after the other.
    fn changes(&self) -> Vec<Value>;

    /// A merge patch that another user sends in between. It sets other fields than the changes do.
    fn other_change(&self) -> Value;

    /// Resources of the children, such as `deployments.apps`.
    fn children(&self) -> &'static [&'static str];

    /// A merge patch that breaks a child of this resource; `None` if its kind cannot be changed.
    fn damage(&self, resource: &str) -> Option<Value>;

    /// Plays the other controllers. The default rolls out every Deployment.
    fn play(&self, model: &Model) {
        roll_out(model);
    }

    /// Whether the idle operator reconciles only after a change.
    fn sleeps(&self) -> bool {
        true
    }
}

/// An action of another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interference {
    Change,
    Label,
    Annotate,
    RequestReconcile,
    Delete,
    /// Deletes the object and creates it again with the same name.
    Replace,
    Pause,
    PauseAndResume,
    DamageChildren,
    DeleteChildren,
}

const ALL: [Interference; 10] = [
    Interference::Change,
    Interference::Label,
    Interference::Annotate,
    Interference::RequestReconcile,
    Interference::Delete,
    Interference::Replace,
    Interference::Pause,
    Interference::PauseAndResume,
    Interference::DamageChildren,
    Interference::DeleteChildren,
];

impl Interference {
    /// The name of the signal in plans.
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Runs the story with interferences. The variable `INTERFERENCES` selects them: `all`, or the line of one plan. By default,
/// `sample` of them run, drawn with [`seed`].
///
/// # Panics
///
/// The operator misses a change. The message has the line that repeats the run.
pub async fn interfere(story: impl Story + Send + Sync + 'static, sample: usize) {
    let story: Arc<dyn Story + Send + Sync> = Arc::new(story);
    let begun = Instant::now();
    let record = undisturbed(&story).await;
    let mut plans = plans(&story, &record);
    let total = plans.len();
    let asked = std::env::var("INTERFERENCES").unwrap_or_default();
    match asked.as_str() {
        "all" => {}
        "" => {
            plans = fault_plan::enumerate::sample(plans, sample, seed());
        }
        line => plans = vec![line.to_owned()],
    }
    let (count, mut idle, mut failed) = (plans.len(), 0, Vec::new());
    let mut shown = Instant::now();
    for (number, line) in plans.into_iter().enumerate() {
        if shown.elapsed() > PROGRESS {
            shown = Instant::now();
            eprintln!("{number} of {count}, {} failed; now {line}", failed.len());
        }
        match play(&story, &line).await {
            Ok(true) => {}
            Ok(false) => idle += 1,
            Err(why) => failed.push(format!("INTERFERENCES='{line}'\n    {why}")),
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let name = story.operator().name();
    eprintln!(
        "{name}: {count} of {total} interferences in {seconds:.1} s, {idle} never applied, {} failed",
        failed.len()
    );
    assert!(failed.is_empty(), "{} of {count} failed; each line repeats one:\n{}", failed.len(), failed.join("\n"));
    assert!(idle * 3 <= count, "{idle} of {count} interferences never applied");
}

/// Runs the story undisturbed and returns the operator's requests. Watches deliver the operator's own writes late; these must
/// cause no reconcile.
async fn undisturbed(story: &Arc<dyn Story + Send + Sync>) -> Vec<Entry> {
    let mut run = Run::begin(story);
    run.memory.plan(&"frame * * own -> delay 100s".parse().expect("a plan"));
    for step in 0..run.steps() {
        run.act(step).await;
        run.memory.until_quiet().await;
        let reconciles = run.memory.reconciles();
        run.memory.pass(IDLE).await;
        if story.sleeps() {
            assert_eq!(run.memory.reconciles(), reconciles, "step {step}: an own write's echo causes a reconcile");
        }
        run.settle().await;
        run.memory.pass(IDLE).await; // until all delayed events have arrived
    }
    run.memory.requests()
}

/// Makes the plans: every moment of every request, with every interference and every combination of lagging watches.
fn plans(story: &Arc<dyn Story + Send + Sync>, record: &[Entry]) -> Vec<String> {
    let mut lags = vec![String::new(), "; frame * * -> delay 2s".to_owned()];
    let resource = resource(&story.object(), story.operator());
    lags.extend([&*resource].iter().chain(story.children()).map(|it| format!("; frame * {it} -> delay 2s")));
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut plans = Vec::new();
    for entry in record.iter().filter(|entry| entry.verb != Verb::Watch && !entry.resource.starts_with("events")) {
        let resource =
            if entry.resource.contains('.') { entry.resource.clone() } else { format!("{}.core", entry.resource) };
        let subresource = if entry.subresource.is_empty() { String::new() } else { format!("/{}", entry.subresource) };
        let name = if entry.name.is_empty() { "*" } else { &entry.name };
        let request = format!("{} {resource}{subresource} */{name} as operator", entry.verb.as_str());
        let number = seen.entry(request.clone()).and_modify(|number| *number += 1).or_insert(1);
        if entry.verb == Verb::List && *number > 1 {
            continue; // a repeated list, because a kind is not installed
        }
        for moment in ["before", "after", "delivered"] {
            for interference in ALL {
                for lag in &lags {
                    plans.push(format!("{moment} {request} #{number} -> signal {}{lag}", interference.name()));
                }
            }
        }
    }
    plans
}

/// Runs the story until the plan has applied. Returns whether it did, or what the operator missed.
async fn play(story: &Arc<dyn Story + Send + Sync>, line: &str) -> Result<bool, String> {
    let plan: Plan = line.parse().map_err(|error| format!("{error}"))?;
    let mut run = Run::begin(story);
    let (acting, model) = (story.clone(), run.memory.model.clone());
    let planned = Arc::new(Planned::with_signals(&plan, move |name| {
        let interference = ALL.into_iter().find(|it| it.name() == name).expect("an interference");
        let (acting, model) = (acting.clone(), model.clone());
        Box::pin(async move { User::of(&model, &*acting).act(interference).await })
    }));
    run.memory.model.set_shared_faults(planned.clone());
    let acted = || planned.unused().iter().all(|rule| !rule.actions().iter().any(is_signal));
    for step in 0..run.steps() {
        run.act(step).await;
        for _ in 0..3 {
            run.memory.until_quiet().await;
            if acted() {
                // Play no other controller now: its events would cause a reconcile, and so hide a missed change.
                run.memory.pass(LATE).await;
                run.memory.until_quiet().await;
                return run.check().await.map(|()| true);
            }
            story.play(&run.memory.model);
        }
    }
    Ok(false)
}

fn is_signal(action: &fault_plan::Action) -> bool {
    matches!(action, fault_plan::Action::Signal(_))
}

/// One run of a story.
pub(crate) struct Run {
    pub(crate) story: Arc<dyn Story + Send + Sync>,
    pub(crate) memory: InMemory,
    pub(crate) user: User,
}

impl Run {
    pub(crate) fn begin(story: &Arc<dyn Story + Send + Sync>) -> Self {
        let memory = InMemory::new(story.operator(), &["--resync-interval=10000h"]);
        let user = User::of(&memory.model, &**story);
        Self { story: story.clone(), memory, user }
    }

    /// The number of steps: the create, the changes and the delete.
    fn steps(&self) -> usize {
        self.story.changes().len() + 2
    }

    /// Does the user's part of a step.
    pub(crate) async fn act(&mut self, step: usize) {
        let changes = self.story.changes();
        if step == 0 {
            self.user.create().await;
            self.memory.start();
        } else if let Some(change) = changes.get(step - 1) {
            self.user.patch(change).await;
        } else {
            self.user.delete().await;
        }
    }

    /// Lets the operator and the other controllers finish, also with delayed watches.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..2 {
            self.memory.pass(LATE).await;
            self.memory.until_quiet().await;
            self.story.play(&self.memory.model);
        }
        self.memory.until_quiet().await;
    }

    /// Checks that the operator has reacted to everything.
    async fn check(&mut self) -> Result<(), String> {
        self.check_reaction().await?;
        self.memory.no_plan();
        self.memory.until_quiet().await;
        self.check_restart().await
    }

    /// Checks that the object reports what was last required of it, and that the operator rests.
    pub(crate) async fn check_reaction(&mut self) -> Result<(), String> {
        if let Some(object) = self.user.object() {
            let (metadata, status) = (&object["metadata"], &object["status"]);
            let group = self.user.group();
            if metadata["deletionTimestamp"].is_null() && status["observedGeneration"] != metadata["generation"] {
                return Err(format!("observed {} instead of {}", status["observedGeneration"], metadata["generation"]));
            }
            let asked = &metadata["annotations"][format!("{group}/reconcile-requested-at")];
            if status["lastHandledReconcileAt"] != *asked {
                return Err(format!("handled {} instead of {asked}", status["lastHandledReconcileAt"]));
            }
            let conditions = status["conditions"].as_array();
            let ready = conditions.and_then(|all| all.iter().find(|it| it["type"] == "Ready")).unwrap_or(&Value::Null);
            let paused = metadata["annotations"][format!("{group}/paused")] == "true";
            if paused != (ready["reason"] == "Paused") {
                return Err(format!("paused is {paused}, but Ready has {}", ready["reason"]));
            }
        } else {
            for resource in self.story.children() {
                if let Some(left) = self.memory.model.objects(resource).first() {
                    return Err(format!("{resource} {} is left", left["metadata"]["name"]));
                }
            }
        }
        let reconciles = self.memory.reconciles();
        self.memory.pass(IDLE).await;
        if self.story.sleeps() && self.memory.reconciles() != reconciles {
            return Err("reconciles without a cause".to_owned());
        }
        Ok(())
    }

    /// Checks that a new process of the operator finds nothing to write.
    pub(crate) async fn check_restart(&mut self) -> Result<(), String> {
        self.memory.restart().await;
        let writes = self.memory.until_quiet().await;
        let late: Vec<String> = writes
            .iter()
            .filter(|entry| !entry.resource.starts_with("events"))
            .map(|entry| format!("{} {}/{} {:?}", entry.verb.as_str(), entry.resource, entry.subresource, entry.body))
            .collect();
        if late.is_empty() { Ok(()) } else { Err(format!("a new process still writes: {}", late.join(", "))) }
    }
}

/// The user and other clients that change the object and its children.
pub(crate) struct User {
    model: Model,
    object: Value,
    change: Value,
    children: Vec<(&'static str, Option<Value>)>,
    resource: ApiResource,
}

impl User {
    fn of(model: &Model, story: &(dyn Story + Send + Sync)) -> Self {
        let object = story.object();
        let resource = api_resource(&object, story.operator());
        let children = story.children().iter().map(|child| (*child, story.damage(child))).collect();
        Self { model: model.clone(), object, change: story.other_change(), children, resource }
    }

    pub(crate) fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.model.client_named("user"), NAMESPACE, &self.resource)
    }

    pub(crate) fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().expect("a name")
    }

    fn group(&self) -> &str {
        &self.resource.group
    }

    pub(crate) fn object(&self) -> Option<Value> {
        let resource = format!("{}.{}", self.resource.plural, self.resource.group);
        self.model.object(&resource, NAMESPACE, self.name())
    }

    pub(crate) async fn create(&self) {
        let apply = Patch::Apply(&self.object);
        self.api().patch(self.name(), &PatchParams::apply("user").force(), &apply).await.expect("it is created");
    }

    /// Sends a merge patch. The object may have been deleted.
    pub(crate) async fn patch(&self, patch: &Value) {
        let sent = self.api().patch(self.name(), &PatchParams::default(), &Patch::Merge(patch)).await;
        if let Err(error) = sent {
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 404), "{error}");
        }
    }

    async fn delete(&self) {
        drop(self.api().delete(self.name(), &DeleteParams::default()).await);
    }

    async fn annotate(&self, name: &str, value: Value) {
        self.patch(&json!({"metadata": {"annotations": {name: value}}})).await;
    }

    async fn act(&self, interference: Interference) {
        let paused = format!("{}/paused", self.group());
        match interference {
            Interference::Change => self.patch(&self.change).await,
            Interference::Label => self.patch(&json!({"metadata": {"labels": {"team": "other"}}})).await,
            Interference::Annotate => self.annotate("note", json!("other")).await,
            Interference::RequestReconcile => {
                self.annotate(&format!("{}/reconcile-requested-at", self.group()), json!("now")).await;
            }
            Interference::Delete => self.delete().await,
            Interference::Replace => {
                self.delete().await;
                self.create().await; // if a finalizer still holds the old object, this changes nothing
            }
            Interference::Pause => self.annotate(&paused, json!("true")).await,
            Interference::PauseAndResume => {
                self.annotate(&paused, json!("true")).await;
                self.patch(&self.change).await;
                self.annotate(&paused, Value::Null).await;
            }
            Interference::DamageChildren => {
                for (resource, damage) in &self.children {
                    for child in damage.iter().flat_map(|_| self.model.objects(resource)) {
                        self.damage(&child, damage.as_ref().unwrap_or(&Value::Null)).await;
                    }
                }
            }
            Interference::DeleteChildren => {
                for (resource, _) in &self.children {
                    for child in self.model.objects(resource) {
                        let (namespace, name) = (&child["metadata"]["namespace"], &child["metadata"]["name"]);
                        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                        self.model.take(resource, &text(namespace), &text(name));
                    }
                }
            }
        }
    }

    async fn damage(&self, child: &Value, damage: &Value) {
        let (api_version, kind) = (&child["apiVersion"], &child["kind"]);
        let resource = plain(api_version.as_str().expect("a version"), kind.as_str().expect("a kind"));
        let client: Client = self.model.client_named("user");
        let api: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &resource);
        let name = child["metadata"]["name"].as_str().expect("a name");
        api.patch(name, &PatchParams::default(), &Patch::Merge(damage)).await.expect("it is damaged");
    }
}

fn resource(object: &Value, operator: &dyn Operator) -> String {
    let resource = api_resource(object, operator);
    format!("{}.{}", resource.plural, resource.group)
}

/// The API resource of the object, with the plural of the operator's CRD.
fn api_resource(object: &Value, operator: &dyn Operator) -> ApiResource {
    let kind = object["kind"].as_str().expect("a kind");
    let mut resource = plain(object["apiVersion"].as_str().expect("a version"), kind);
    let definitions = operator.crds();
    let names = definitions.iter().map(|definition| &definition.spec.names).find(|names| names.kind == kind);
    resource.plural.clone_from(&names.expect("its CRD").plural);
    resource
}

fn plain(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

/// Completes the rollout of every Deployment.
fn roll_out(model: &Model) {
    for mut deployment in model.objects("deployments.apps") {
        let (replicas, generation) =
            (deployment["spec"]["replicas"].clone(), deployment["metadata"]["generation"].clone());
        let status = json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}],
        });
        if deployment["status"] != status {
            deployment["status"] = status;
            model.put(deployment);
        }
    }
}
