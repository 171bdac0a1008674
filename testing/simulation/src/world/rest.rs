//! How a world comes to rest, and that nothing is written while it rests.

use std::time::Duration;

use model_apiserver::Entry;

use super::World;
use crate::objects::{is_about_leadership, is_for_nothing};

/// The world is at rest when nothing was written for this time: a back-off is at most six minutes long.
const QUIET: Duration = Duration::from_mins(7);
/// The world must come to rest within this time.
const PATIENCE: Duration = Duration::from_hours(2);
/// For this time after the world has come to rest, nothing may be written.
const REST: Duration = Duration::from_mins(10);

impl World {
    pub(super) async fn come_to_rest(&mut self) -> Result<(), String> {
        let begun = self.trace.now();
        loop {
            self.step().await?;
            let now = self.trace.now();
            if now >= self.checks.changed().max(begun) + QUIET && self.stage.controllers.are_settled() {
                return Ok(());
            }
            if now >= begun + PATIENCE {
                return Err(format!("the world does not come to rest within {PATIENCE:?}"));
            }
        }
    }

    pub(super) async fn nothing_happens(&mut self, when: &str) -> Result<(), String> {
        let (mut version, until) = (self.model.version(), self.trace.now() + REST);
        self.model.clear_requests();
        while self.trace.now() < until {
            self.step().await?;
            let changes = self.model.changes_after(version);
            if let Some(change) = changes.iter().find(|change| !is_about_leadership(change)) {
                return Err(format!("{when}: {} {} is written by {:?}", change.resource, change.key, change.writer));
            }
            version = self.model.version();
            if let Some(sent) = self.model.requests().into_iter().find(is_for_nothing) {
                let Entry { client, verb, resource, subresource, namespace, name, body, .. } = sent;
                let (verb, body) = (verb.as_str(), body.unwrap_or_default());
                return Err(format!(
                    "{when}: {client} sends a write that changes nothing: {verb} {resource}/{subresource} \
                     {namespace}/{name} {body}"
                ));
            }
            self.model.clear_requests();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::{
        Api,
        api::{Patch, PatchParams},
    };
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;
    use crate::{plan::Plan, subjects::Subjects, toy::Books};

    static BOOKS: Books = Books { is_wrong: |_| false, claims_wrongly: |_| false };

    /// Lets a world without processes rest. After a minute, this client sends a patch of a namespace.
    async fn resting(client: &'static str, patch: Option<Value>) -> Result<(), String> {
        let mut world = World::new(&Plan::scripted(1, &[]), &Subjects::from(&BOOKS));
        let api: Api<Namespace> = Api::all(world.model.client_named(client));
        let write = async move {
            sleep(Duration::from_mins(1)).await;
            if let Some(patch) = patch {
                let written = api.patch("shop", &PatchParams::default(), &Patch::Merge(patch)).await;
                written.expect("the API server accepts it");
            }
        };
        let (result, ()) = tokio::join!(world.nothing_happens("at rest"), write);
        result
    }

    #[tokio::test(start_paused = true)]
    async fn write_in_a_world_at_rest_is_found() {
        assert_eq!(resting("user", None).await, Ok(()));
        let label = || Some(json!({"metadata": {"labels": {"team": "1"}}}));
        let found = resting("user", label()).await.expect_err("a user has changed something");
        assert_eq!(found, "at rest: namespaces shop is written by \"user\"");
        assert!(resting("operator-0", label()).await.is_err(), "the operator has");
        assert_eq!(resting("user", Some(json!({}))).await, Ok(()), "users may write what changes nothing");
        let found = resting("operator-0", Some(json!({}))).await.expect_err("the operator must not");
        assert!(
            found.starts_with("at rest: operator-0 sends a write that changes nothing: patch namespaces"),
            "{found}"
        );
    }
}
