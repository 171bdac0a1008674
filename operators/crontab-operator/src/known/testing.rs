//! Jobs for tests.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use workloads::{JobView, Live};

use super::LiveJob;

/// Returns a Job that started at this time of 20 November 2026. Half a minute later it completed (`+ 10:00`) or failed
/// (`- 10:00`), or it is still active (`10:00`). Its scheduled time is the minute in which it started.
pub(crate) fn job(name: &str, how: &str) -> LiveJob {
    let time = |seconds: u32| format!("2026-11-20T{}:{seconds:02}Z", how.trim_start_matches(['+', '-', ' ']));
    let end = match how.chars().next() {
        Some('+') => "Complete",
        Some('-') => "Failed",
        _ => "",
    };
    let conditions = json!([
        {"type": end, "status": "True", "reason": "BackoffLimitExceeded", "lastTransitionTime": time(30)},
    ]);
    let object = json!({
        "metadata": {"annotations": {"stable.example.com/scheduled-at": time(0)}},
        "status": {"startTime": time(0), "active": 1, "conditions": conditions},
    });
    let view: JobView = serde_json::from_value(object).expect("a view");
    Arc::new(Live {
        namespace: "default".into(),
        name: name.into(),
        uid: format!("uid of {name}").into(),
        generation: 1,
        created: Some(at(&time(0))),
        deleting: None,
        view,
    })
}

pub(crate) fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}
