//! The condition `Progressing` of Deployments, by the rules of the Deployment controller: a complete rollout stays complete until
//! there is another template, and each rise of a count renews the deadline of any other.

use std::{collections::BTreeSet, time::Duration};

use serde_json::Value;

use crate::checks::condition;

const CREATED: &str = "NewReplicaSetCreated";
const UPDATED: &str = "ReplicaSetUpdated";
const COMPLETE: &str = "NewReplicaSetAvailable";
const STALLED: &str = "ProgressDeadlineExceeded";

/// Numbers of pods of a Deployment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) total: usize,
    /// Those of the present template.
    pub(super) updated: usize,
    pub(super) ready: usize,
    pub(super) available: usize,
}

impl Counts {
    /// Each count with the name of its field in the status.
    pub(super) fn fields(self) -> [(&'static str, usize); 4] {
        [
            ("replicas", self.total),
            ("updatedReplicas", self.updated),
            ("readyReplicas", self.ready),
            ("availableReplicas", self.available),
        ]
    }

    fn of(status: &Value) -> Self {
        let count = |field: &str| status[field].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(0);
        Self {
            total: count("replicas"),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
            available: count("availableReplicas"),
        }
    }

    /// Whether these counts are progress after those of `before`.
    fn is_progress(self, before: Self) -> bool {
        let outdated = |it: Self| it.total.saturating_sub(it.updated);
        self.updated > before.updated
            || outdated(self) < outdated(before)
            || self.ready > before.ready
            || self.available > before.available
    }
}

/// What the controller remembers of a Deployment besides its status.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    /// The hashes of all templates so far. Each has a `ReplicaSet`.
    templates: BTreeSet<String>,
    /// When the controller last observed progress.
    renewed: Duration,
}

impl Rollout {
    /// Returns status and reason of the condition. `deployment` still has its status from before, `hash` is that of its template.
    pub(super) fn progressing(
        &mut self,
        deployment: &Value,
        hash: &str,
        counts: Counts,
        now: Duration,
    ) -> (&'static str, &'static str) {
        let (spec, status) = (&deployment["spec"], &deployment["status"]);
        let told = condition(status, "Progressing")["reason"].as_str();
        let mut reason = [UPDATED, COMPLETE, STALLED].into_iter().find(|it| Some(*it) == told).unwrap_or(CREATED);
        // For a template that was there before, the controller finds its `ReplicaSet` and leaves the condition as it is.
        if self.templates.insert(hash.to_owned()) {
            (reason, self.renewed) = (CREATED, now);
        }
        let wanted = spec["replicas"].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or(1);
        let deadline = Duration::from_secs(spec["progressDeadlineSeconds"].as_u64().unwrap_or(600));
        let is_complete = [counts.total, counts.updated, counts.available] == [wanted; 3];
        let stays_complete = reason == COMPLETE && counts.total == counts.updated;
        if is_complete || stays_complete {
            reason = COMPLETE;
        } else if counts.is_progress(Counts::of(status)) {
            (reason, self.renewed) = (UPDATED, now);
        } else if reason != COMPLETE && now > self.renewed + deadline {
            reason = STALLED;
        }
        (if reason == STALLED { "False" } else { "True" }, reason)
    }
}

#[cfg(test)]
mod tests {
    use model_apiserver::Model;
    use serde_json::json;

    use super::*;
    use crate::controllers::{Controllers, DEPLOYMENTS};

    /// A Deployment of two pods, and its controller.
    struct Played {
        rollout: Rollout,
        deployment: Value,
    }

    impl Played {
        /// Starts with a rollout of the template `a` that is complete at second 0.
        fn complete() -> Self {
            let spec = json!({"replicas": 2, "progressDeadlineSeconds": 600});
            let mut played = Self { rollout: Rollout::default(), deployment: json!({"spec": spec}) };
            assert_eq!(played.reason("a", [2, 2, 2, 2], 0), COMPLETE);
            played
        }

        /// The reason at this second, if the template and `[total, updated, ready, available]` are these.
        fn reason(&mut self, hash: &str, [total, updated, ready, available]: [usize; 4], second: u64) -> &'static str {
            let counts = Counts { total, updated, ready, available };
            let (is, reason) = self.rollout.progressing(&self.deployment, hash, counts, Duration::from_secs(second));
            let mut status = json!({"conditions": [{"type": "Progressing", "status": is, "reason": reason}]});
            for (field, count) in counts.fields() {
                status[field] = json!(count);
            }
            self.deployment["status"] = status;
            reason
        }
    }

    #[test]
    fn complete_rollout_stays_complete_when_pods_are_lost_and_while_it_scales() {
        let mut played = Played::complete();
        for (second, counts) in
            [(10, [2, 2, 0, 0]), (5_000, [1, 1, 0, 0]), (5_001, [2, 2, 0, 0]), (9_000, [2, 2, 1, 1])]
        {
            assert_eq!(played.reason("a", counts, second), COMPLETE, "{second}");
        }
        played.deployment["spec"]["replicas"] = json!(5);
        assert_eq!(played.reason("a", [5, 5, 2, 2], 9_100), COMPLETE);
        assert_eq!(played.reason("a", [5, 5, 2, 2], 10_000), COMPLETE);
        assert_eq!(played.reason("b", [5, 0, 5, 5], 10_001), UPDATED, "more pods are ready");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_fail_after_the_rollout_do_not_stall_it() {
        let model = Model::new();
        let controllers = Controllers::new(model.clone(), Duration::ZERO);
        model.put(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "default"},
            "spec": {
                "replicas": 1, "progressDeadlineSeconds": 60,
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}},
            },
        }));
        let status = || model.object(DEPLOYMENTS, "default", "a").expect("a Deployment")["status"].clone();
        let told = |status: &Value| condition(status, "Progressing")["reason"].clone();
        for second in 0..10 {
            controllers.tick(Duration::from_secs(second));
        }
        assert_eq!((told(&status()), &status()["readyReplicas"]), (json!(COMPLETE), &json!(1)));
        let pods = model.objects("pods");
        controllers.fail(pods[0]["metadata"]["name"].as_str().expect("a name"), Duration::from_secs(1_000));
        for second in 10..200 {
            controllers.tick(Duration::from_secs(second));
        }
        assert_eq!((told(&status()), &status()["readyReplicas"]), (json!(COMPLETE), &Value::Null));
    }

    #[test]
    fn each_rise_of_a_count_renews_the_deadline() {
        let mut played = Played::complete();
        for (second, counts, reason, what) in [
            (100, [2, 0, 2, 2], CREATED, "begun"),
            (101, [3, 1, 2, 2], UPDATED, "the first pod"),
            (500, [3, 1, 3, 2], UPDATED, "it is ready"),
            (505, [3, 1, 2, 2], UPDATED, "it crashes"),
            (1_100, [3, 1, 2, 2], UPDATED, "not later than the deadline"),
            (1_101, [3, 1, 2, 2], STALLED, "later"),
            (2_000, [3, 1, 2, 2], STALLED, "still"),
            (2_001, [3, 1, 3, 2], UPDATED, "it is ready again"),
            (2_600, [3, 1, 3, 3], UPDATED, "it is available"),
            (2_601, [2, 1, 2, 2], UPDATED, "an old pod goes"),
            (3_201, [2, 1, 2, 2], UPDATED, "not later than the deadline"),
            (3_202, [2, 1, 2, 2], STALLED, "later"),
            (3_203, [2, 2, 2, 2], COMPLETE, "done"),
        ] {
            assert_eq!(played.reason("b", counts, second), reason, "{second}: {what}");
        }
    }

    #[test]
    fn return_to_an_older_template_keeps_the_reason_until_there_is_progress() {
        let mut played = Played::complete();
        assert_eq!(played.reason("b", [3, 1, 2, 2], 1), CREATED);
        assert_eq!(played.reason("b", [3, 1, 2, 2], 602), STALLED);
        assert_eq!(played.reason("c", [3, 0, 2, 2], 603), CREATED, "a new one begins anew");
        assert_eq!(played.reason("c", [3, 0, 2, 2], 1_204), STALLED);
        assert_eq!(played.reason("b", [3, 0, 2, 2], 1_205), STALLED);
        assert_eq!(played.reason("b", [3, 1, 2, 2], 1_206), UPDATED);
        assert_eq!(played.reason("b", [2, 2, 2, 2], 1_207), COMPLETE);
        assert_eq!(played.reason("a", [2, 0, 2, 2], 1_208), COMPLETE);
        assert_eq!(played.reason("a", [3, 1, 2, 2], 1_209), UPDATED);
    }
}
