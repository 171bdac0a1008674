//! The controllers of the cluster besides the operator. They give pods to Deployments and Jobs, make pods ready, count the servers
//! of `DaemonSets`, and collect children without an owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use fastrand::Rng;
use jiff::Timestamp;
use model_apiserver::Model;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use self::progress::{Counts, Rollout};
use crate::{
    disturbance::Act,
    objects::{is_about_leadership, text},
};

mod daemon_sets;
mod progress;

pub(crate) const DEPLOYMENTS: &str = "deployments.apps";
const JOBS: &str = "jobs.batch";
/// How many pods a Deployment may have beyond its replicas during a rollout.
const SURGE: usize = 1;

/// Deployment, `DaemonSet` and Job controller, scheduler, kubelet and garbage collector in one.
pub(crate) struct Controllers {
    model: Model,
    /// How long a new pod takes to become ready.
    pace: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Until then, new pods take ten times as long to become ready.
    slow_until: Duration,
    /// Until then, new pods do not start, for this reason.
    not_starting: (Duration, Option<Obstacle>),
    /// Until when pods are not ready, by name.
    failing: BTreeMap<String, Duration>,
    /// When each pod, Job or `DaemonSet` was first observed, by uid.
    made: BTreeMap<String, Duration>,
    /// The resource version of the cluster at the last tick.
    seen: u64,
    /// Whether the passing of time alone can make something due. If not, only changes do.
    is_restless: bool,
    /// How many pods have been created. The next pod gets its name and its address from this number.
    pods: u32,
    /// What the Deployment controller remembers of each Deployment, by uid.
    rollouts: BTreeMap<String, Rollout>,
    /// When each Job with a TTL was first observed to be finished, by uid.
    finished: BTreeMap<String, Duration>,
    /// When the TTL of the next of them ends.
    expires: Option<Duration>,
    /// Troubles of pods that have begun and have had no effect yet.
    unfelt: BTreeSet<Act>,
    /// Troubles of pods that have had their first effect since the last call of [`Controllers::take_felt`].
    felt: Vec<Act>,
}

impl State {
    /// Records that a trouble keeps a pod from what it would do otherwise.
    fn feel(&mut self, act: Act) {
        if self.unfelt.remove(&act) {
            self.felt.push(act);
        }
    }
}

/// Why a pod does not start.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    Image,
    Crash,
    NoRoom,
}

impl Obstacle {
    const ALL: [Self; 3] = [Self::Image, Self::Crash, Self::NoRoom];

    /// Writes the obstacle into the status of a pod, as kubelet and scheduler do.
    fn tell(self, status: &mut Value, container: &Value, time: &str) {
        let waiting = |reason: &str, message: &str| {
            json!([{
                "name": container["name"], "image": container["image"], "ready": false, "restartCount": 3, "imageID": "",
                "state": {"waiting": {"reason": reason, "message": message}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }])
        };
        match self {
            Self::Image => status["containerStatuses"] = waiting("ImagePullBackOff", "Back-off pulling image"),
            Self::Crash => status["containerStatuses"] = waiting("CrashLoopBackOff", "back-off 40s restarting"),
            Self::NoRoom => {
                let scheduled = json!({
                    "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient memory.", "lastTransitionTime": time,
                });
                status["conditions"].as_array_mut().into_iter().for_each(|all| all.push(scheduled.clone()));
            }
        }
    }
}

impl Controllers {
    pub(crate) fn new(model: Model, pace: Duration) -> Self {
        Self { model, pace, state: Mutex::default() }
    }

    /// Makes new pods slow until then.
    pub(crate) fn slow_down(&self, until: Duration) {
        let mut state = self.state();
        state.slow_until = state.slow_until.max(until);
        state.unfelt.insert(Act::PodsAreSlow);
    }

    /// Keeps new pods from starting until then. `rng` draws the reason.
    pub(crate) fn stop_starting(&self, until: Duration, rng: &mut Rng) {
        let mut state = self.state();
        state.not_starting = (state.not_starting.0.max(until), rng.choice(Obstacle::ALL));
        state.unfelt.insert(Act::PodsDoNotStart);
        state.is_restless = true;
    }

    /// Makes the pod of this name not ready until then.
    pub(crate) fn fail(&self, pod: &str, until: Duration) {
        let mut state = self.state();
        let failing = state.failing.entry(pod.to_owned()).or_default();
        *failing = until.max(*failing);
        state.unfelt.insert(Act::PodFails);
        state.is_restless = true;
    }

    /// Takes the troubles of pods that have had their first effect since the last call.
    pub(crate) fn take_felt(&self) -> Vec<Act> {
        std::mem::take(&mut self.state().felt)
    }

    /// Lets the next tick look at all objects, because the cluster was restored.
    pub(crate) fn restored(&self) {
        self.state().is_restless = true;
    }

    /// Ends all troubles of pods.
    pub(crate) fn heal(&self) {
        let mut state = self.state();
        state.slow_until = Duration::ZERO;
        state.not_starting.0 = Duration::ZERO;
        state.failing.clear();
    }

    /// Whether all Deployments and `DaemonSets` are rolled out, and no Job runs.
    pub(crate) fn are_settled(&self) -> bool {
        self.are_rolled_out() && self.are_served() && self.model.objects(JOBS).iter().all(is_finished)
    }

    fn are_rolled_out(&self) -> bool {
        self.model.objects(DEPLOYMENTS).iter().all(|deployment| {
            let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or(1);
            let status = &deployment["status"];
            ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"]
                .iter()
                .all(|field| status[field].as_u64().unwrap_or(0) == wanted)
        })
    }

    /// Does what is due at this time.
    pub(crate) fn tick(&self, now: Duration) {
        let mut state = self.state();
        let changes = self.model.changes_after(state.seen);
        let is_expired = state.expires.is_some_and(|time| now >= time);
        if !state.is_restless && !is_expired && changes.iter().all(is_about_leadership) {
            state.seen = self.model.version();
            return; // the usual case; to look at all objects each time would take most of the real time
        }
        let before = self.model.version();
        self.model.collect();
        for deployment in self.model.objects(DEPLOYMENTS) {
            if deployment["metadata"]["deletionTimestamp"].is_null() {
                self.roll_out(&mut state, now, deployment);
            }
        }
        for job in self.model.objects(JOBS) {
            if job["metadata"]["deletionTimestamp"].is_null() && !is_finished(&job) {
                self.run_job(&mut state, now, job);
            }
        }
        self.expire_jobs(&mut state, now);
        self.serve(&mut state, now);
        // The kubelet runs pods without an owner too, such as those of a Job that a user deleted without its pods.
        let mut is_starting = false;
        for pod in self.model.objects("pods").iter().filter(|pod| is_orphan(pod)) {
            is_starting |= self.attend(&mut state, now, pod).is_none();
        }
        state.failing.retain(|_, until| now < *until);
        state.seen = self.model.version();
        state.is_restless = state.seen != before || !state.failing.is_empty() || is_starting || !self.are_settled();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The time that a new pod takes to become ready.
    fn pace_at(&self, state: &State, now: Duration) -> Duration {
        if now < state.slow_until { self.pace * 10 } else { self.pace }
    }

    fn roll_out(&self, state: &mut State, now: Duration, mut deployment: Value) {
        let template = &deployment["spec"]["template"];
        let hash = format!("{:x}", xxh3_64(template.to_string().as_bytes()));
        let wanted = usize::try_from(deployment["spec"]["replicas"].as_u64().unwrap_or(1)).unwrap_or(0);
        let pods = self.pods_of(&deployment);
        let is_new = |pod: &Value| text(&pod["metadata"]["labels"]["pod-template-hash"]) == hash;
        let (new, old): (Vec<_>, Vec<_>) = pods.into_iter().partition(is_new);

        let (mut ready, mut available) = (0, 0);
        let patience = Duration::from_secs(deployment["spec"]["minReadySeconds"].as_u64().unwrap_or(0));
        for pod in &new {
            if let Some(since) = self.attend(state, now, pod) {
                ready += 1;
                available += usize::from(now >= since + patience);
            }
        }
        for pod in &old {
            if self.attend(state, now, pod).is_some() {
                (ready, available) = (ready + 1, available + 1);
            }
        }
        // As with maxSurge 1 and maxUnavailable 0: create one new pod at a time; remove an old pod when a new one is available.
        let total = new.len() + old.len();
        if new.len() < wanted && (total < wanted + SURGE || old.is_empty()) {
            self.make_pod(state, now, &deployment, &hash);
        } else if new.len() > wanted {
            self.remove(&new[new.len() - 1]);
        } else if !old.is_empty() && (available > wanted || total > wanted + SURGE || wanted == 0) {
            self.remove(&old[old.len() - 1]);
        }

        let (pods, uid) = (self.pods_of(&deployment), text(&deployment["metadata"]["uid"]));
        let updated = pods.iter().filter(|pod| is_new(pod)).count();
        let counts = Counts { total: pods.len(), updated, ready, available };
        let rollout = state.rollouts.entry(uid).or_default();
        let (is, reason) = rollout.progressing(&deployment, &hash, counts, now);
        let mut status = json!({
            "observedGeneration": deployment["metadata"]["generation"],
            "conditions": [{"type": "Progressing", "status": is, "reason": reason, "message": ""}],
        });
        for (field, count) in counts.fields().into_iter().filter(|(_, count)| *count > 0) {
            status[field] = json!(count);
        }
        if deployment["status"] != status {
            deployment["status"] = status;
            self.model.put(deployment);
        }
    }

    /// Runs a Job with one pod. The uid decides how long it runs and whether it fails; one of five fails.
    fn run_job(&self, state: &mut State, now: Duration, mut job: Value) {
        let uid = text(&job["metadata"]["uid"]);
        let (since, draw) = (*state.made.entry(uid.clone()).or_insert(now), xxh3_64(uid.as_bytes()));
        let ends = since + self.pace_at(state, now) + Duration::from_secs(draw % 40);
        let obstacle = state.not_starting.1.filter(|_| now < state.not_starting.0);
        let pod = self.pods_of(&job).into_iter().next();
        let time = seconds(self.model.now());
        let before = job["status"].clone();
        let phase = if job["status"]["startTime"].is_null() {
            job["status"] = json!({"startTime": time, "active": job["spec"]["parallelism"], "ready": 0});
            "Pending"
        } else if obstacle.is_some() {
            state.feel(Act::PodsDoNotStart);
            "Pending"
        } else if now < ends {
            if now >= since + self.pace + Duration::from_secs(draw % 40) {
                state.feel(Act::PodsAreSlow);
            }
            "Running"
        } else {
            let fails = draw.is_multiple_of(5);
            let type_ = if fails { "Failed" } else { "Complete" };
            let condition = json!({"type": type_, "status": "True", "reason": "Simulated", "lastTransitionTime": time});
            let status = &mut job["status"];
            status["conditions"] = json!([condition]);
            status["active"] = json!(0);
            if !fails {
                status["completionTime"] = json!(time);
            }
            if fails { "Failed" } else { "Succeeded" }
        };
        match pod {
            Some(pod) => self.tell(&pod, phase, obstacle),
            None => self.make_pod(state, now, &job, &uid),
        }
        if job["status"] != before {
            self.model.put(job);
        }
    }

    /// Deletes each finished Job after its `ttlSecondsAfterFinished`, in the foreground as the TTL controller does: the Job goes
    /// after its pods. Time is simulated time, so that a Job does not wait for clocks that were put back.
    fn expire_jobs(&self, state: &mut State, now: Duration) {
        let mut jobs = self.model.objects(JOBS);
        jobs.retain(|job| job["metadata"]["deletionTimestamp"].is_null() && is_finished(job));
        state.expires = None;
        for mut job in jobs {
            let Some(ttl) = job["spec"]["ttlSecondsAfterFinished"].as_u64() else { continue };
            let since = *state.finished.entry(text(&job["metadata"]["uid"])).or_insert(now);
            let expires = since + Duration::from_secs(ttl);
            if now < expires {
                state.expires = Some(state.expires.map_or(expires, |other| other.min(expires)));
                continue;
            }
            let metadata = &mut job["metadata"];
            metadata["deletionTimestamp"] = json!(seconds(self.model.now()));
            metadata["deletionGracePeriodSeconds"] = json!(0);
            metadata["finalizers"] = json!(["foregroundDeletion"]);
            self.model.put(job);
        }
    }

    fn pods_of(&self, deployment: &Value) -> Vec<Value> {
        let (namespace, uid) = (&deployment["metadata"]["namespace"], &deployment["metadata"]["uid"]);
        let mut pods = self.model.objects("pods");
        pods.retain(|pod| {
            pod["metadata"]["namespace"] == *namespace && pod["metadata"]["ownerReferences"][0]["uid"] == *uid
        });
        pods
    }

    /// Writes the status of a pod if it changes.
    fn tell(&self, pod: &Value, phase: &str, obstacle: Option<Obstacle>) {
        let before = &pod["status"];
        let is_ready = phase == "Running";
        let mut status = json!({
            "phase": phase, "podIP": before["podIP"], "podIPs": before["podIPs"],
            "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}],
        });
        if let Some(obstacle) = obstacle {
            let since = before["conditions"][1]["lastTransitionTime"].as_str();
            let time = since.map_or_else(|| seconds(self.model.now()), str::to_owned);
            obstacle.tell(&mut status, &pod["spec"]["containers"][0], &time);
        }
        if status != *before {
            let mut pod = pod.clone();
            pod["status"] = status;
            self.model.put(pod);
        }
    }

    /// Updates the status of a pod. Returns since when the pod is ready, or `None`.
    fn attend(&self, state: &mut State, now: Duration, pod: &Value) -> Option<Duration> {
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let made = *state.made.entry(uid).or_insert(now);
        let since = made + self.pace_at(state, now);
        let is_failing = state.failing.get(&name).is_some_and(|until| now < *until);
        let was_ready = pod["status"]["conditions"][0]["status"] == "True";
        let obstacle = state.not_starting.1.filter(|_| now < state.not_starting.0 && !was_ready);
        let is_ready = now >= since && !is_failing && obstacle.is_none();
        if now >= made + self.pace {
            let troubles = [
                (Act::PodsAreSlow, now < since),
                (Act::PodFails, is_failing),
                (Act::PodsDoNotStart, obstacle.is_some()),
            ];
            troubles.iter().filter(|(_, is_felt)| *is_felt).for_each(|(act, _)| state.feel(*act));
        }
        self.tell(pod, if is_ready { "Running" } else { "Pending" }, obstacle);
        is_ready.then_some(since)
    }

    /// Creates a pod of a Deployment or a Job.
    fn make_pod(&self, state: &mut State, now: Duration, maker: &Value, hash: &str) {
        state.pods += 1;
        let number = state.pods;
        let (metadata, template) = (&maker["metadata"], &maker["spec"]["template"]);
        let name = format!("{}-{}-{number:05x}", text(&metadata["name"]), &hash[..8.min(hash.len())]);
        let address = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
            "status": {
                "phase": "Pending", "podIP": address, "podIPs": [{"ip": address}],
                "conditions": [{"type": "Ready", "status": "False"}],
            },
        });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = metadata["namespace"].clone();
        pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": maker["apiVersion"], "kind": maker["kind"], "name": metadata["name"], "uid": metadata["uid"],
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let made = self.model.put(pod);
        state.made.insert(text(&made["metadata"]["uid"]), now);
    }

    fn remove(&self, pod: &Value) {
        self.model.take("pods", &text(&pod["metadata"]["namespace"]), &text(&pod["metadata"]["name"]));
    }
}

/// Formats a time as Kubernetes writes it: in whole seconds.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or_default().to_string()
}

/// Whether the pod has no owner, and has not ended.
fn is_orphan(pod: &Value) -> bool {
    let (metadata, phase) = (&pod["metadata"], &pod["status"]["phase"]);
    let has_owner = metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    !has_owner && metadata["deletionTimestamp"].is_null() && phase != "Succeeded" && phase != "Failed"
}

fn is_finished(job: &Value) -> bool {
    let conditions = job["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Complete" || it["type"] == "Failed"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use kube::{Api, api::PostParams};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn finished_job_goes_with_its_pods_after_its_ttl() {
        let model = Model::new();
        let controllers = Controllers::new(model.clone(), Duration::ZERO);
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "a"},
            "spec": {
                "ttlSecondsAfterFinished": 60,
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}},
            },
        }))
        .expect("a Job");
        let api: Api<Job> = Api::namespaced(model.client(), "default");
        api.create(&PostParams::default(), &job).await.expect("the API server accepts the Job");
        let (mut finished, mut gone) = (None, None);
        for second in 0..200 {
            controllers.tick(Duration::from_secs(second));
            match model.object(JOBS, "default", "a") {
                Some(job) if is_finished(&job) => finished = finished.or(Some(second)),
                Some(_) => {}
                None => gone = gone.or(Some(second)),
            }
        }
        let waited = gone.zip(finished).map(|(gone, finished): (u64, u64)| gone - finished);
        assert!(waited.is_some_and(|waited| (60..=62).contains(&waited)), "finished: {finished:?}, gone: {gone:?}");
        assert!(model.objects("pods").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_counts_when_a_pod_is_not_ready_that_would_be_ready_otherwise() {
        let model = Model::new();
        let controllers = Controllers::new(model.clone(), Duration::from_secs(10));
        let pod = |name: &str| {
            model.put(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
                "spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Pending"},
            }))
        };
        let until = Duration::from_secs(1_000);
        controllers.slow_down(until);
        controllers.stop_starting(until, &mut Rng::with_seed(0));
        controllers.fail("b", until);
        controllers.tick(Duration::ZERO);
        assert!(controllers.take_felt().is_empty(), "there are no pods");
        pod("a");
        controllers.tick(Duration::from_secs(1));
        assert!(controllers.take_felt().is_empty(), "the pod would not be ready yet");
        controllers.tick(Duration::from_secs(11));
        assert_eq!(controllers.take_felt(), [Act::PodsAreSlow, Act::PodsDoNotStart]);
        pod("b");
        controllers.tick(Duration::from_secs(12));
        controllers.tick(Duration::from_secs(22));
        assert_eq!(controllers.take_felt(), [Act::PodFails], "each trouble counts once");
    }
}
