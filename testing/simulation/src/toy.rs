//! Operators for the tests of this crate: two that never run, and one that does.

use std::{sync::Arc, time::Duration};

use example_operators::ledgers::Ledgers;
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

    /// An object is wrong if it says so.
    fn judge(&self, object: &Value, _: &Model) -> Result<(), String> {
        if object["spec"]["wrong"] == true { Err("it is wrong".to_owned()) } else { Ok(()) }
    }

    /// The status has to count the stalled rollouts, and after a minute to say that the object is stuck.
    fn judge_stall(&self, object: &Value, stalled_for: Duration, _: Timestamp) -> Result<(), String> {
        let (status, is_long) = (&object["status"], stalled_for >= Duration::from_mins(1));
        if status["stalled"] == 1 && (!is_long || status["stuck"] == true) { Ok(()) } else { Err(status.to_string()) }
    }
}

/// An operator that runs. It makes no mistake, but its judge finds one.
pub(crate) struct Books {
    /// Whether an object counts as wrong at the end of a world.
    pub(crate) is_wrong: fn(&Value) -> bool,
    /// Whether an object counts as wrong while its condition `Ready` is true.
    pub(crate) claims_wrongly: fn(&Value) -> bool,
}

impl Subject for Books {
    fn operator(&self) -> &'static dyn Operator {
        &Ledgers { password: || "secret".to_owned() }
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("examples.example.com/v1", "Ledger")
    }

    fn resource(&self) -> &'static str {
        "ledgers.examples.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["statefulsets.apps", "secrets", "persistentvolumeclaims"]
    }

    /// Without replicas, an object is ready at once.
    fn spec(&self, _: &str, _: &mut Rng) -> Value {
        json!({"replicas": 0})
    }

    fn damage(&self, _: &str, _: &mut Rng) -> Option<Value> {
        None
    }

    fn judge(&self, object: &Value, _: &Model) -> Result<(), String> {
        if (self.is_wrong)(object) { Err("the object is wrong".to_owned()) } else { Ok(()) }
    }

    fn judge_claim(&self, object: &Value, _: &Model) -> Result<(), String> {
        if (self.claims_wrongly)(object) { Err("the claim is wrong".to_owned()) } else { Ok(()) }
    }
}
