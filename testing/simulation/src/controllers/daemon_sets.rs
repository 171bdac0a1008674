//! The controller of `DaemonSets` on a cluster with two nodes. It only counts their pods: there are no objects for them.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Controllers, State};
use crate::objects::text;

const DAEMON_SETS: &str = "daemonsets.apps";
const NODES: u8 = 2;

impl Controllers {
    /// Reports a pod on each node. They are ready after the time that a new pod takes, and stay so when the spec changes.
    pub(super) fn serve(&self, state: &mut State, now: Duration) {
        let pace = self.pace_at(state, now);
        for mut set in self.daemon_sets() {
            let since = *state.made.entry(text(&set["metadata"]["uid"])).or_insert(now);
            let status = status(&set, if now >= since + pace { NODES } else { 0 });
            if set["status"] != status {
                set["status"] = status;
                self.model.put(set);
            }
        }
    }

    /// Whether all pods of the `DaemonSets` are ready.
    pub(super) fn are_served(&self) -> bool {
        self.daemon_sets().iter().all(|set| set["status"] == status(set, NODES))
    }

    fn daemon_sets(&self) -> Vec<Value> {
        let mut sets = self.model.objects(DAEMON_SETS);
        sets.retain(|set| set["metadata"]["deletionTimestamp"].is_null());
        sets
    }
}

fn status(set: &Value, ready: u8) -> Value {
    json!({
        "observedGeneration": set["metadata"]["generation"],
        "currentNumberScheduled": NODES, "desiredNumberScheduled": NODES, "numberMisscheduled": 0, "numberReady": ready,
    })
}

#[cfg(test)]
mod tests {
    use model_apiserver::Model;

    use super::*;

    #[test]
    fn daemon_set_is_served_after_a_while_and_reports_the_present_spec() {
        let model = Model::new();
        let controllers = Controllers::new(model.clone(), Duration::from_secs(10));
        let put = |generation: u8| {
            let mut set = model.object(DAEMON_SETS, "default", "a").unwrap_or_else(|| {
                json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a", "namespace": "default"}})
            });
            set["metadata"]["generation"] = generation.into();
            model.put(set);
        };
        let counts = |second: u64| {
            controllers.tick(Duration::from_secs(second));
            let status = model.object(DAEMON_SETS, "default", "a").expect("a DaemonSet")["status"].clone();
            let count = |field: &str| status[field].as_i64();
            (count("observedGeneration"), count("numberReady"), controllers.are_settled())
        };
        put(1);
        assert_eq!(counts(1), (Some(1), Some(0), false));
        assert_eq!(counts(10), (Some(1), Some(0), false));
        assert_eq!(counts(11), (Some(1), Some(2), true));
        put(2);
        assert!(!controllers.are_settled(), "the new spec is not observed");
        assert_eq!(counts(12), (Some(2), Some(2), true));
    }
}
