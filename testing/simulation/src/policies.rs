//! Admission policies of the cluster, which change the children that clients write.
//!
//! The operator accepts what a policy has made of its fields, because no write can change that. It does not notice that the
//! policy ends: it looks at such a child again when one of its own fields changes, or after a restart. So another client changes
//! these children when the policy has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use model_apiserver::{Change, Model};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::{
    disturbance::{Act, Phase},
    network::{Network, OPERATOR},
    objects::text,
    subjects::{Cast, Role},
    trace::Trace,
};

/// The label that a policy sets. The operator must leave it alone.
const LABEL: &str = "policy.example.com/checked";
/// How many writes of one child may follow from one thing that happens while a policy rewrites the child. The operator creates
/// it, and changes it twice: by a patch, and by an apply because the answer to the patch was not what it had sent. A reconcile
/// that was under way may do the same. More mean that the operator writes the child again and again, because no answer is what
/// it has sent.
const MOST_WRITES: u64 = 6;

/// The admission policies of one world.
pub(crate) struct Policies {
    model: Model,
    cast: Cast,
    trace: Trace,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Until then, a policy rewrites children.
    rewriting_until: Duration,
    /// The children that a policy has rewritten, and that no other client has changed after its end.
    rewritten: BTreeSet<Child>,
    /// All children that were ever rewritten: a restored backup may contain them.
    ever: BTreeSet<Child>,
    /// The number of the newest policy.
    newest: u32,
    /// The number of writes that the newest policy has seen.
    writes: BTreeMap<Child, u64>,
    /// How often something has happened since that policy began after which clients may write children.
    causes: u64,
    /// All changes up to this version are among them.
    version: u64,
    /// How often requests and watch events had met a trouble when the policy began.
    suffered: u64,
}

/// The place of a child.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Child {
    pub(crate) resource: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Child {
    pub(crate) fn of(resource: &'static str, object: &Value) -> Self {
        let metadata = &object["metadata"];
        Self { resource, namespace: text(&metadata["namespace"]), name: text(&metadata["name"]) }
    }
}

impl Policies {
    pub(crate) fn new(model: &Model, cast: &Cast, trace: &Trace) -> Self {
        Self { model: model.clone(), cast: cast.clone(), trace: trace.clone(), state: Arc::default() }
    }

    /// Begins a policy that labels children until then.
    pub(crate) fn label(&self, until: Duration, network: &Arc<Network>) {
        for resource in self.cast.children() {
            let (trace, network) = (self.trace.clone(), network.clone());
            self.model.mutate(resource, move |object| {
                if trace.now() < until && object["metadata"]["labels"][LABEL] != "yes" {
                    object["metadata"]["labels"][LABEL] = "yes".into();
                    network.count(Act::Policy, Phase::AnyTime);
                }
            });
        }
    }

    /// Begins a policy that rewrites children until then. `rng` draws how.
    pub(crate) fn rewrite(&self, until: Duration, network: &Arc<Network>, rng: &mut Rng) {
        let children = self.cast.children();
        if children.is_empty() {
            return;
        }
        let mut state = self.state();
        state.rewriting_until = state.rewriting_until.max(until);
        state.newest += 1;
        state.writes.clear();
        (state.causes, state.version, state.suffered) = (0, self.model.version(), network.suffered());
        let number = state.newest;
        drop(state);
        for resource in children {
            let rewrite = Rewrite::draw(rng, &self.cast, resource);
            let (trace, network, state) = (self.trace.clone(), network.clone(), self.state.clone());
            self.model.mutate(resource, move |object| {
                if trace.now() >= until {
                    return;
                }
                let (child, before) = (Child::of(resource, object), object.clone());
                rewrite.apply(object);
                let mut state = state.lock();
                if number == state.newest {
                    *state.writes.entry(child.clone()).or_default() += 1;
                }
                if *object != before {
                    state.rewritten.insert(child.clone());
                    state.ever.insert(child);
                    network.count(Act::RewritingPolicy, Phase::AnyTime);
                }
            });
        }
    }

    /// Ends all policies.
    pub(crate) fn end(&self) {
        self.model.mutate_no_more();
        self.state().rewriting_until = Duration::ZERO;
    }

    /// Takes in that the cluster was restored.
    pub(crate) fn restored(&self) {
        let mut state = self.state();
        let ever = state.ever.clone();
        state.rewritten = ever;
        state.writes.clear();
        state.version = self.model.version();
    }

    /// Takes in that something has happened after which clients may write children: a process has started, or another controller
    /// contests a field.
    pub(crate) fn disturb(&self) {
        self.state().causes += 1;
    }

    /// Whether children may differ from what the operator wants because it has accepted what a policy has made of them.
    pub(crate) fn may_have_changed_children(&self) -> bool {
        let state = self.state();
        self.trace.now() < state.rewriting_until || !state.rewritten.is_empty()
    }

    /// Takes the children that have to be changed, because the policy that has rewritten them has ended.
    pub(crate) fn take_left_over(&self) -> BTreeSet<Child> {
        let mut state = self.state();
        if self.trace.now() < state.rewriting_until { BTreeSet::new() } else { std::mem::take(&mut state.rewritten) }
    }

    /// Checks that the operator does not write a child again and again while a policy rewrites it: only as often as changes by
    /// other clients, effects of troubles, contests and starts of processes explain.
    pub(crate) fn check(&self, network: &Network) -> Result<(), String> {
        let mut state = self.state();
        if state.writes.is_empty() {
            return Ok(());
        }
        let changes = self.model.changes_after(state.version);
        state.version = self.model.version();
        state.causes += changes.iter().map(|change| u64::from(is_cause(change))).sum::<u64>();
        let causes = state.causes + network.suffered() - state.suffered;
        match state.writes.iter().find(|(_, count)| **count > MOST_WRITES * (1 + causes)) {
            Some((Child { resource, name, .. }, count)) => Err(format!(
                "{resource} {name} was written {count} times while a policy rewrites it, after {causes} causes"
            )),
            None => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Whether the operator may have to write a child after this change: another client has made it, or the operator begins to
/// watch a namespace or a kind. The controllers of the cluster cause no write of a child.
fn is_cause(change: &Change) -> bool {
    let is_by_client = !change.writer.is_empty() && !change.writer.starts_with(OPERATOR);
    is_by_client || *change.resource == *"namespaces" || change.resource.starts_with("customresourcedefinitions.")
}

/// What a policy does to each child of a kind.
#[derive(Debug, Clone, PartialEq)]
enum Rewrite {
    /// It changes a field that an operator sets: in the children of owners of this kind, or in all.
    Merge(Option<&'static str>, Value),
    /// It sets `imagePullPolicy`, as the admission plugin `AlwaysPullImages` does.
    PullPolicy,
    /// It adds a toleration.
    Toleration,
    /// It changes the memory limit of containers that have one.
    MemoryLimit,
    /// It changes the values of annotations.
    Annotations,
}

impl Rewrite {
    fn draw(rng: &mut Rng, cast: &Cast, resource: &str) -> Self {
        match rng.u8(..8) {
            0 => Self::PullPolicy,
            1 => Self::Toleration,
            2 => Self::MemoryLimit,
            3 => Self::Annotations,
            _ => {
                let is_maker = |role: &&Role| role.subject.children().contains(&resource);
                let makers: Vec<&Role> = cast.all().iter().filter(is_maker).collect();
                let (maker, owner) = match &makers[..] {
                    [] => return Self::Merge(None, json!({})),
                    [maker] => (*maker, None),
                    // What one operator sets makes no sense in the children of another, such as the name of a container.
                    several => {
                        let maker = several[rng.usize(..several.len())];
                        (maker, Some(maker.subject.kind().1))
                    }
                };
                Self::Merge(owner, maker.subject.damage(resource, rng).unwrap_or_else(|| json!({})))
            }
        }
    }

    fn apply(&self, object: &mut Value) {
        // The API server refuses a change of the pods of a Job that exists.
        let is_fixed = object["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"].is_string();
        match self {
            Self::Merge(owner, patch) => {
                let kind = &object["metadata"]["ownerReferences"][0]["kind"];
                if owner.is_none_or(|owner| *kind == *owner) {
                    json_patch::merge(object, patch);
                }
            }
            Self::Annotations => {
                let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
                // Keys with a prefix belong to operators, which read them.
                for (_, value) in annotations.into_iter().flatten().filter(|(key, _)| !key.contains('/')) {
                    *value = "rewritten".into();
                }
            }
            Self::PullPolicy | Self::Toleration | Self::MemoryLimit => {
                if let Some(pod) = object.pointer_mut("/spec/template/spec").filter(|_| !is_fixed) {
                    self.apply_to_pod(pod);
                }
            }
        }
    }

    fn apply_to_pod(&self, pod: &mut Value) {
        if *self == Self::Toleration {
            let toleration = json!({"key": "dedicated", "operator": "Exists"});
            match pod["tolerations"].as_array_mut() {
                Some(all) if all.contains(&toleration) => {}
                Some(all) => all.push(toleration),
                None => pod["tolerations"] = json!([toleration]),
            }
            return;
        }
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            if *self == Self::PullPolicy {
                container["imagePullPolicy"] = "Always".into();
            } else if let Some(limit) = container.pointer_mut("/resources/limits/memory") {
                *limit = "3Gi".into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::{
        Api,
        api::{Patch, PatchParams, PostParams},
    };
    use model_apiserver::Signalled;

    use super::*;
    use crate::{network::Perform, toy};

    /// Writes the size of the Deployment `a`, as this client.
    async fn scale(model: &Model, client: &str, size: u64) {
        let api: Api<Deployment> = Api::namespaced(model.client_named(client), "default");
        let patch = Patch::Merge(json!({"spec": {"replicas": size}}));
        api.patch("a", &PatchParams::default(), &patch).await.expect("it is accepted");
    }

    #[tokio::test(start_paused = true)]
    async fn child_is_written_only_as_often_as_something_has_happened() {
        let (model, trace) = (Model::new(), Trace::new());
        let perform: Arc<Perform> = Arc::new(|_, _| Box::pin(async {}) as Signalled);
        let network = Arc::new(Network::new(0, trace.clone(), &perform));
        let policies = Policies::new(&model, &toy::cast(false), &trace);
        policies.rewrite(Duration::MAX, &network, &mut Rng::with_seed(0));
        let labels = json!({"app": "a"});
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
            },
        }))
        .expect("a Deployment");
        let api: Api<Deployment> = Api::namespaced(model.client_named("operator-0"), "default");
        api.create(&PostParams::default(), &deployment).await.expect("it is accepted");
        for size in 1..MOST_WRITES {
            scale(&model, "operator-0", size).await;
        }
        assert_eq!(policies.check(&network), Ok(()));
        scale(&model, "operator-0", 0).await;
        let found = policies.check(&network).expect_err("one write too many");
        assert!(found.contains("7 times"), "{found}");

        scale(&model, "user", 9).await;
        assert_eq!(policies.check(&network), Ok(()), "a user explains as many writes again");
        for size in 1..MOST_WRITES {
            scale(&model, "operator-0", size).await;
        }
        assert!(policies.check(&network).is_err());
        policies.disturb();
        assert_eq!(policies.check(&network), Ok(()), "the start of a process does too");
        network.count(Act::Conflicts, Phase::AnyTime);
        for size in 0..MOST_WRITES {
            scale(&model, "operator-0", size).await;
        }
        assert_eq!(policies.check(&network), Ok(()), "and so does a conflict");
    }

    fn deployment() -> Value {
        let container = json!({"name": "a", "resources": {"limits": {"memory": "64Mi"}}});
        json!({
            "metadata": {"name": "a", "annotations": {"zone": "0", "example.com/own": "0"}},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}},
        })
    }

    #[test]
    fn each_rewrite_changes_one_field_and_nothing_the_second_time() {
        let own = json!("0");
        for (rewrite, place, wanted) in [
            (Rewrite::Merge(None, json!({"spec": {"replicas": 7}})), "/spec/replicas", json!(7)),
            (Rewrite::PullPolicy, "/spec/template/spec/containers/0/imagePullPolicy", json!("Always")),
            (Rewrite::Toleration, "/spec/template/spec/tolerations/0/key", json!("dedicated")),
            (Rewrite::MemoryLimit, "/spec/template/spec/containers/0/resources/limits/memory", json!("3Gi")),
            (Rewrite::Annotations, "/metadata/annotations/zone", json!("rewritten")),
        ] {
            let mut object = deployment();
            rewrite.apply(&mut object);
            assert_eq!(object.pointer(place), Some(&wanted), "{rewrite:?}");
            assert_eq!(object.pointer("/metadata/annotations/example.com~1own"), Some(&own), "{rewrite:?}");
            let once = object.clone();
            rewrite.apply(&mut object);
            assert_eq!(object, once, "{rewrite:?}");
        }
    }

    #[test]
    fn children_of_another_operator_are_left_alone() {
        let rewrite = Rewrite::Merge(Some("Job"), json!({"spec": {"replicas": 7}}));
        for (kind, size) in [("Job", 7), ("CronJob", 1)] {
            let mut object = deployment();
            object["metadata"]["ownerReferences"] = json!([{"kind": kind}]);
            rewrite.apply(&mut object);
            assert_eq!(object["spec"]["replicas"], size, "{kind}");
        }
    }

    #[test]
    fn pods_of_a_job_that_exists_are_left_alone() {
        let mut job = deployment();
        job["spec"]["template"]["metadata"] = json!({"labels": {"batch.kubernetes.io/job-name": "a"}});
        let before = job.clone();
        Rewrite::PullPolicy.apply(&mut job);
        assert_eq!(job, before);
    }
}
