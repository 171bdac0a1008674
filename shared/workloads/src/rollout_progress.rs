//! How far a rollout has come, and since when it has made no progress.
//!
//! The Deployment controller takes each rise of `readyReplicas` for progress. So it never reports a rollout whose pods crash soon
//! after each start if they start more often than once in `progressDeadlineSeconds`, and the kubelet waits for at most five minutes
//! between two starts. Only the best counts so far show that such a rollout stands still, and only its pods show why. A Deployment
//! does not keep the counts, so they are a part of the status of the object that owns it.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClockReading, DeploymentView, Live, Progress, schemas};

/// The Deployment controller reports most stalls itself. It goes first, so that its message stays.
const AFTER_THE_CONTROLLER: SignedDuration = SignedDuration::from_secs(10);

/// How far a rollout has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RolloutProgress {
    /// The generation of the Deployment.
    pub generation: i64,

    /// A hash of the pod template.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub template: String,

    /// The wanted number of pods.
    pub size: i32,

    /// The largest number of pods with the latest configuration so far.
    pub updated: i32,

    /// The smallest number of pods with an older configuration so far.
    pub outdated: i32,

    /// The largest number of available pods since updated or outdated last changed.
    pub available: i32,

    /// When one of these numbers last changed.
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
}

impl RolloutProgress {
    /// Returns how far the rollout of this Deployment to `size` pods has come; `None` if none is under way, or if it is paused.
    /// `before` is what the last reconcile stored. `template` returns a hash of the pod template that the operator wants, of at most
    /// 64 characters.
    ///
    /// Each change of the Deployment's spec gives the rollout new time, unless it changes the size alone: an autoscaler may do that
    /// again and again.
    pub fn of(
        deployment: Option<&Live<DeploymentView>>,
        size: i32,
        template: impl FnOnce() -> String,
        before: Option<&Self>,
        present: ClockReading,
    ) -> Option<Self> {
        let live = deployment.filter(|it| it.was_ever_observed())?;
        if !live.is_observed() {
            return before.cloned();
        }
        let is_under_way = matches!(live.progress(), Progress::Ongoing { .. } | Progress::Stalled(_));
        let is_done = [live.replicas(), live.updated(), live.available()] == [size; 3];
        if !is_under_way || is_done {
            return None;
        }
        let now = Self {
            generation: live.generation,
            template: template(),
            size,
            updated: live.updated(),
            outdated: live.replicas() - live.updated(),
            available: live.available(),
            since: present.time(),
        };
        match before.filter(|it| it.is_same_rollout(&now) && !it.is_older_than(live.created, now.since)) {
            Some(before) => Some(before.followed_by(now)),
            // Until the Deployment has a pod, its controller has no start to take for progress, so it reports a stall itself.
            None => (live.replicas() > 0).then_some(now),
        }
    }

    /// Whether `now` has the same spec of the Deployment, or one that differs only in the size.
    fn is_same_rollout(&self, now: &Self) -> bool {
        let is_resized = !self.template.is_empty() && self.template == now.template && self.size != now.size;
        self.generation == now.generation || is_resized
    }

    /// Whether these counts are those of an earlier Deployment, which may have had the same generation: a backup restores a status
    /// together with a new Deployment. `created` is when the present Deployment was created.
    fn is_older_than(&self, created: Option<Timestamp>, now: Timestamp) -> bool {
        // A clock that was put back cannot tell.
        created.is_some_and(|created| self.since < created && created <= now)
    }

    /// The best counts of both. `now` is later.
    fn followed_by(&self, now: Self) -> Self {
        let (updated, outdated) = (self.updated.max(now.updated), self.outdated.min(now.outdated));
        let is_replaced = updated > self.updated || outdated < self.outdated;
        // An old pod that goes was available, too: the new ones have not lost what the count loses.
        let available = if is_replaced { now.available } else { self.available.max(now.available) };
        let is_progress = is_replaced || available > self.available;
        // Clocks may have been put back.
        let since = if is_progress { now.since } else { self.since.min(now.since) };
        // If the API server has not accepted what the operator wants now, this generation still has the former template.
        let is_known = self.generation == now.generation && !self.template.is_empty();
        let (template, size) = if is_known { (self.template.clone(), self.size) } else { (now.template, now.size) };
        Self { generation: now.generation, template, size, updated, outdated, available, since }
    }

    /// Returns from when on the rollout of the Deployment `live` has made no progress for too long, unless it makes progress
    /// before; `None` if that is for the Deployment controller to say. A pod may take `deadline` seconds to become ready, and
    /// `min_ready` more to become available. That alone is no stall: pods that are lost with a node and regained one after another
    /// are no progress here, either.
    ///
    /// The controller's own deadline ends later only if it has observed progress that these counts do not show, and a pod that is
    /// ready and not yet available is no such progress. Otherwise a missing report means that the controller is down, or that the
    /// clock of this machine is wrong. A good release must not be rolled back for either.
    pub fn stalls_at(&self, live: &DeploymentView, deadline: i32, min_ready: i32) -> Option<Timestamp> {
        let least = SignedDuration::from_secs(min_ready.into()) + AFTER_THE_CONTROLLER;
        let is_hidden = live.renewed().is_none_or(|renewed| renewed.duration_since(self.since) > least);
        let end =
            || self.since.checked_add(SignedDuration::from_secs(deadline.into()) + least).unwrap_or(Timestamp::MAX);
        is_hidden.then(end)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONGOING: &str = "ReplicaSetUpdated";

    /// A Deployment at this generation, which its controller has observed, with `[replicas, updated, available]`.
    fn deployment(generation: i64, [replicas, updated, available]: [i32; 3], reason: &str) -> Live<DeploymentView> {
        let status = json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated,
            "availableReplicas": available,
            "conditions": [{"type": "Progressing", "status": "?", "reason": reason, "message": ""}],
        });
        Live {
            namespace: "default".into(),
            name: "x".into(),
            uid: "u".into(),
            generation,
            created: None,
            deleting: None,
            view: serde_json::from_value(json!({"status": status})).expect("a view of the object"),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn next(live: &Live<DeploymentView>, before: Option<&RolloutProgress>, second: i64) -> Option<RolloutProgress> {
        of_template("a", live, 3, before, second)
    }

    fn of_template(
        template: &str,
        live: &Live<DeploymentView>,
        size: i32,
        before: Option<&RolloutProgress>,
        second: i64,
    ) -> Option<RolloutProgress> {
        let present = ClockReading::new(at(second), &[]);
        RolloutProgress::of(Some(live), size, || template.to_owned(), before, present)
    }

    #[test]
    fn only_better_counts_than_ever_are_progress() {
        let mut progress = None;
        for (second, counts, since, what) in [
            (10, [3, 0, 3], 10, "begun"),
            (20, [4, 1, 3], 20, "the first new pod"),
            (30, [4, 1, 4], 30, "it is available"),
            (40, [4, 1, 3], 30, "it crashes"),
            (50, [4, 1, 4], 30, "it is available again"),
            (60, [3, 1, 3], 60, "an old pod goes"),
            (70, [3, 0, 2], 60, "the new pod is lost"),
            (80, [3, 1, 3], 60, "it is replaced"),
            (90, [4, 2, 3], 90, "the second new pod"),
            (100, [3, 2, 2], 100, "another old pod goes, before the new one is available"),
            (110, [3, 2, 3], 110, "that one is available"),
        ] {
            progress = next(&deployment(2, counts, ONGOING), progress.as_ref(), second);
            assert_eq!(progress.as_ref().map(|it| it.since), Some(at(since)), "{second}: {what}");
        }
    }

    #[test]
    fn progress_is_that_of_one_observed_generation_while_it_is_rolled_out() {
        let old = next(&deployment(2, [3, 3, 0], ONGOING), None, 0).expect("a rollout");
        let since = |live: &Live<DeploymentView>| next(live, Some(&old), 60).map(|it| it.since);
        assert_eq!(since(&deployment(2, [3, 3, 0], ONGOING)), Some(at(0)));
        assert_eq!(since(&deployment(2, [3, 3, 0], "ProgressDeadlineExceeded")), Some(at(0)));
        assert_eq!(since(&deployment(3, [3, 3, 0], ONGOING)), Some(at(60)), "another spec");
        for (live, what) in [
            (deployment(2, [3, 3, 3], ONGOING), "all pods are available"),
            (deployment(2, [3, 3, 0], "NewReplicaSetAvailable"), "pods are lost after the rollout"),
            (deployment(2, [3, 3, 0], "DeploymentPaused"), "a user has paused it"),
            (deployment(0, [0, 0, 0], ONGOING), "made anew"),
        ] {
            assert_eq!(since(&live), None, "{what}");
        }
        let unobserved = Live { generation: 3, ..deployment(2, [3, 3, 0], ONGOING) };
        assert_eq!(next(&unobserved, Some(&old), 60), Some(old.clone()), "the counts are those of the former spec");
        assert_eq!(RolloutProgress::of(None, 3, String::new, Some(&old), ClockReading::new(at(60), &[])), None);
    }

    /// If each new size gave new time, an autoscaler could hide a stall for ever.
    #[test]
    fn new_size_alone_gives_the_rollout_no_new_time() {
        let rolling = |generation: i64, size: i32| deployment(generation, [size, size, 0], ONGOING);
        let mut progress = of_template("a", &rolling(1, 2), 2, None, 0);
        for (second, size, template, since, what) in [
            (50, 3, "a", 50, "more pods than ever have the template"),
            (100, 2, "a", 50, "fewer"),
            (150, 3, "a", 50, "as many as before"),
            (200, 3, "a", 200, "another change of the spec"),
            (250, 2, "b", 250, "another template"),
            (300, 3, "b", 300, "more pods than ever"),
            (350, 2, "b", 300, "fewer"),
        ] {
            let generation = second / 50 + 1;
            progress = of_template(template, &rolling(generation, size), size, progress.as_ref(), second);
            let stored = progress.as_ref().map(|it| (it.since, it.generation, it.size));
            assert_eq!(stored, Some((at(since), generation, size)), "{second}: {what}");
        }
        let unknown = RolloutProgress { template: String::new(), ..progress.expect("a rollout") };
        let after = of_template("b", &rolling(9, 3), 3, Some(&unknown), 400);
        assert_eq!(after.map(|it| it.since), Some(at(400)), "an earlier version has stored no template");
    }

    /// The API server refuses what the operator wants, or another client writes the Deployment all the time.
    #[test]
    fn template_that_is_not_accepted_yet_begins_anew_when_it_is() {
        let begun = of_template("a", &deployment(1, [3, 3, 0], ONGOING), 3, None, 0);
        let wanted = of_template("b", &deployment(1, [3, 3, 0], ONGOING), 2, begun.as_ref(), 50);
        assert_eq!(wanted, begun);
        let accepted = of_template("b", &deployment(2, [2, 2, 0], ONGOING), 2, wanted.as_ref(), 100);
        assert_eq!(accepted.map(|it| it.since), Some(at(100)));
    }

    #[test]
    fn clock_that_was_put_back_gives_the_rollout_its_time_again_and_no_more() {
        let live = deployment(2, [3, 3, 0], ONGOING);
        let old = next(&live, None, 5_000);
        assert_eq!(next(&live, old.as_ref(), 1_000).and_then(|it| it.stalls_at(&live, 600, 0)), Some(at(1_610)));
    }

    #[test]
    fn counts_from_before_the_deployment_was_restored_do_not_count() {
        let restored = |created: i64| Live { created: Some(at(created)), ..deployment(1, [3, 3, 0], ONGOING) };
        let old = next(&restored(5), None, 10).expect("a rollout");
        let since = |live: &Live<DeploymentView>, second: i64| next(live, Some(&old), second).map(|it| it.since);
        assert_eq!(since(&restored(10), 5_000), Some(at(10)), "the same Deployment");
        assert_eq!(since(&restored(4_990), 5_000), Some(at(5_000)), "another one of the same generation");
        assert_eq!(since(&restored(4_990), 4_989), Some(at(10)), "the clock was put back");
    }

    #[test]
    fn rollout_begins_with_its_first_pod_and_goes_on_without_one() {
        let none = deployment(1, [0, 0, 0], ONGOING);
        assert_eq!(next(&none, None, 10), None, "an update of the status that tells nothing new");
        let begun = next(&deployment(1, [1, 1, 0], ONGOING), None, 20);
        assert_eq!(next(&none, begun.as_ref(), 30), begun, "the pod was evicted");
    }

    /// The Deployment controller observed progress last at `renewed`.
    fn stalls_at(renewed: Option<i64>, min_ready: i32) -> Option<Timestamp> {
        let condition = json!({"type": "Progressing", "reason": ONGOING, "lastUpdateTime": renewed.map(at)});
        let view: DeploymentView =
            serde_json::from_value(json!({"status": {"conditions": [condition]}})).expect("a view of the object");
        RolloutProgress { since: at(1_000), ..Default::default() }.stalls_at(&view, 600, min_ready)
    }

    #[test]
    fn pod_that_is_ready_late_has_all_of_its_time_to_become_available() {
        assert_eq!(stalls_at(Some(2_000), 500), Some(at(2_110)));
        assert_eq!(stalls_at(None, 500), Some(at(2_110)), "the Deployment does not tell");
    }

    #[test]
    fn stall_that_the_controller_has_to_report_itself_is_left_to_it() {
        assert_eq!([stalls_at(Some(1_000), 0), stalls_at(Some(1_010), 0)], [None, None]);
        assert_eq!(stalls_at(Some(1_011), 0), Some(at(1_610)), "a pod that was ready before is ready again");
        assert_eq!(stalls_at(Some(1_510), 500), None, "a pod is ready, and not yet available");
        assert_eq!(stalls_at(Some(1_511), 500), Some(at(2_110)));
    }
}
