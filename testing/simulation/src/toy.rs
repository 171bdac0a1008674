//! An operator for the tests of this crate. It never runs.

use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::subject::Subject;

/// Its objects are Jobs, and their children are Deployments.
pub(crate) struct Toy;

impl Subject for Toy {
    fn operator(&self) -> &'static dyn Operator {
        unreachable!("it never runs")
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("batch/v1", "Job")
    }

    fn resource(&self) -> &'static str {
        "jobs.batch"
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps"]
    }

    fn spec(&self, _: &str, _: &mut Rng) -> Value {
        json!({})
    }

    fn damage(&self, _: &str, _: &mut Rng) -> Option<Value> {
        Some(json!({"spec": {"paused": true}}))
    }

    fn judge(&self, _: &Value, _: &Model) -> Result<(), String> {
        Ok(())
    }

    /// The status has to count the stalled rollouts, and after a minute to say that the object is stuck.
    fn judge_stall(&self, object: &Value, stalled_for: Duration, _: Timestamp) -> Result<(), String> {
        let (status, is_long) = (&object["status"], stalled_for >= Duration::from_mins(1));
        if status["stalled"] == 1 && (!is_long || status["stuck"] == true) { Ok(()) } else { Err(status.to_string()) }
    }
}
