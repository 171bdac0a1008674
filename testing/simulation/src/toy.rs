//! Operators for the tests of this crate. They never run.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use jiff::Timestamp;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};

use crate::{
    subject::{Note, Subject},
    subjects::{Cast, Subjects},
};

/// Its objects are Jobs, and their children are Deployments.
pub(crate) static TOY: Toy = Toy { kind: "Job", resource: "jobs.batch" };
/// Its objects are `CronJobs`, and their children are Deployments too.
pub(crate) static PEER: Toy = Toy { kind: "CronJob", resource: "cronjobs.batch" };

/// An operator with children.
pub(crate) struct Toy {
    kind: &'static str,
    resource: &'static str,
}

/// The operators of a world with the first one, or with both.
pub(crate) fn cast(with_peer: bool) -> Cast {
    let note: Note = Arc::new(drop);
    let subjects = if with_peer { Subjects::from([&TOY as &dyn Subject, &PEER]) } else { Subjects::from(&TOY) };
    Cast::new(&subjects, 0, &note)
}

impl Subject for Toy {
    fn operator(&self) -> &'static dyn Operator {
        unreachable!("it never runs")
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("batch/v1", self.kind)
    }

    fn resource(&self) -> &'static str {
        self.resource
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps"]
    }

    fn makes(&self) -> &'static [&'static str] {
        &["secrets"]
    }

    fn changes(&self) -> &'static [&'static str] {
        &["pods"]
    }

    fn spec(&self, _: &str, _: &mut Rng) -> Value {
        json!({})
    }

    fn damage(&self, _: &str, _: &mut Rng) -> Option<Value> {
        Some(json!({"spec": {"paused": true}}))
    }

    /// `CronJob` makes each child once.
    fn happens_once(&self, _: &Value) -> bool {
        self.kind == PEER.kind
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
