//! What the status of a primary claims while the world is still: that it is ready, and whether its rollout has stalled.

use std::time::Duration;

use serde_json::Value;

use super::{Checks, condition};
use crate::{objects::text, stalls::Stalls};

/// When a namespace has been watched for this time, the operator has listed it.
const JOINING: Duration = Duration::from_secs(30);

impl Checks {
    /// Checks each object whose condition `Ready` is true with
    /// [`Subject::judge_claim`](crate::Subject::judge_claim), if its status is the last change.
    /// The world calls this when nothing has changed and nothing was disturbed for longer than watch events are late.
    pub(crate) fn check_claims(&mut self) -> Result<(), String> {
        if self.claims_checked_at == self.last_version {
            return Ok(());
        }
        let objects = self.cast.objects(&self.model);
        let is_watched = |object: &Value, time| {
            self.namespaces.is_watched_for(&text(&object["metadata"]["namespace"]), self.trace.now(), time)
        };
        if objects.iter().any(|(_, object)| is_watched(object, Duration::ZERO) && !is_watched(object, JOINING)) {
            return Ok(()); // the next call checks all claims
        }
        self.claims_checked_at = self.last_version;
        for (role, object) in &objects {
            let metadata = &object["metadata"];
            let is_claimed = condition(&object["status"], "Ready")["status"] == "True"
                && is_current(object)
                && is_watched(object, Duration::ZERO);
            if is_claimed && self.has_last_word(&text(&metadata["uid"])) {
                self.claims += 1;
                let judged = role.subject.judge_claim(object, &self.model);
                let outside = || role.outside.as_ref().map_or(Ok(()), |outside| outside.judge_claim(object));
                judged
                    .and_then(|()| outside())
                    .map_err(|why| format!("Ready of {} is true, but {why}", text(&metadata["name"])))?;
            }
        }
        Ok(())
    }

    /// Checks the status of each object whose rollout has stalled, if the operator has had enough time to write it.
    /// `has_caught_up` tells whether nothing has hindered the operator for so long that it cannot be behind. The world calls this
    /// at the same times as [`check_claims`](Self::check_claims).
    pub(crate) fn check_stalls(&self, stalls: &Stalls, has_caught_up: bool) -> Result<(), String> {
        let objects = self.cast.objects(&self.model);
        for (uid, since) in stalls.all() {
            let found = objects.iter().find(|(_, object)| object["metadata"]["uid"] == *uid);
            let Some((role, object)) = found else { continue };
            let metadata = &object["metadata"];
            let is_watched = self.namespaces.is_watched_for(&text(&metadata["namespace"]), self.trace.now(), JOINING);
            let has_to_tell = is_current(object) && is_watched;
            // After errors, a condition that changes with time may be late.
            let stalled_for = if has_caught_up { self.trace.now().saturating_sub(since) } else { Duration::ZERO };
            if has_to_tell && (has_caught_up || self.has_last_word(uid)) {
                let judged = role.subject.judge_stall(object, stalled_for, self.model.now());
                judged.map_err(|why| format!("the rollout of {} has stalled, but {why}", text(&metadata["name"])))?;
            }
        }
        Ok(())
    }

    /// Whether the status of the object with this uid is the last change.
    fn has_last_word(&self, uid: &str) -> bool {
        self.status_versions.get(uid).is_some_and(|version| *version > self.other_version)
    }
}

/// Whether the status is about the present spec of an object that the operator reconciles.
fn is_current(object: &Value) -> bool {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    condition(status, "Ready")["reason"] != "Paused"
        && status["observedGeneration"] == metadata["generation"]
        && metadata["deletionTimestamp"].is_null()
}
