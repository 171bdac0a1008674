//! Migrates one kind.

use api_errors::{Class, chain, classify};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PartialObjectMeta, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    Options, Target,
    definition::Definition,
    pages::{Pages, Unreadable, named},
    persist::persist,
    report::{Failure, KindReport, Outcome, Progress},
};

/// How often pruning is tried again after another client has changed the definition.
const PRUNE_ATTEMPTS: u32 = 10;

/// Migrates one kind, and says what it did.
pub(crate) async fn one(
    client: &Client,
    target: &Target,
    options: &Options,
    progress: &mut impl FnMut(&Progress<'_>),
) -> KindReport {
    let mut migration = Migration {
        client,
        definitions: Api::all_with(client.clone(), &definitions()),
        options,
        report: KindReport::new(target),
    };
    match migration.run(progress).await {
        Ok(outcome) => migration.report.outcome = outcome,
        Err(why) => migration.report.error = Some(why),
    }
    migration.report
}

fn definitions() -> ApiResource {
    let (group, version) = ("apiextensions.k8s.io".to_owned(), "v1".to_owned());
    let (kind, plural) = ("CustomResourceDefinition".to_owned(), "customresourcedefinitions".to_owned());
    ApiResource { api_version: format!("{group}/{version}"), group, version, kind, plural }
}

struct Migration<'a> {
    client: &'a Client,
    definitions: Api<DynamicObject>,
    options: &'a Options,
    report: KindReport,
}

/// What happened to one object.
enum Fate {
    Rewritten,
    /// The API server would take the write, in a dry run.
    Accepted,
    /// It was stored in the storage version already.
    Current,
    /// Another client has written it since it was listed.
    ChangedMeanwhile,
    Gone,
    Failed(Failure),
    /// The user lacks the permission, so that no other object can be rewritten either.
    Forbidden(String),
}

impl Migration<'_> {
    async fn run(&mut self, progress: &mut impl FnMut(&Progress<'_>)) -> Result<Outcome, String> {
        let Some(before) = self.definition().await? else { return Ok(Outcome::NotInstalled) };
        self.report.storage_version.clone_from(&before.storage_version);
        self.report.stored_versions.clone_from(&before.stored_versions);
        if before.is_up_to_date() && !self.options.force {
            return Ok(Outcome::UpToDate);
        }
        tokio::time::sleep(before.settles_in(Timestamp::now())).await;
        let mut pages = Pages::new(Api::all_with(self.client.clone(), &before.resource), self.options.chunk_size);
        while let Some(page) = pages.next().await.map_err(|error| unreadable(&before.resource, &error))? {
            self.rewrite(&before.resource, &page.objects).await?;
            let done = self.report.objects.total();
            progress(&Progress { kind: &self.report.kind, done, total: done + page.remaining });
            if page.remaining > 0 {
                self.check(&before).await?;
            }
        }
        match self.report.objects.failed {
            0 if self.options.dry_run => Ok(Outcome::WouldMigrate),
            0 => self.prune(&before).await,
            failed => Err(format!(
                "{failed} {} could not be rewritten, so status.storedVersions stays {}",
                if failed == 1 { "object" } else { "objects" },
                before.stored_versions.join(", ")
            )),
        }
    }

    /// Reads the definition; `None` if it does not exist.
    async fn definition(&self) -> Result<Option<Definition>, String> {
        let name = &self.report.definition;
        let found = persist(async || self.definitions.get_opt(name).await).await;
        let found = found.map_err(|error| format!("cannot read CustomResourceDefinition {name}: {}", told(&error)))?;
        found.map(|object| Definition::read(&serde_json::to_value(&object).unwrap_or_default())).transpose()
    }

    /// Reads the definition again, and checks that it still stores objects in the same version.
    async fn check(&self, before: &Definition) -> Result<Definition, String> {
        let now = self.definition().await?.ok_or("the definition was deleted in the meantime")?;
        match now.check_against(before) {
            Ok(()) => Ok(now),
            Err(change) => Err(format!("{change}; run the command again when no client changes the definition")),
        }
    }

    /// Rewrites these objects, some at once.
    async fn rewrite(
        &mut self,
        resource: &ApiResource,
        objects: &[PartialObjectMeta<DynamicObject>],
    ) -> Result<(), String> {
        let (client, options) = (self.client, self.options);
        let writes = objects.iter().map(|object| rewrite_one(client, resource, object, options.dry_run));
        let mut writes = stream::iter(writes).buffer_unordered(options.workers.into());
        while let Some(fate) = writes.next().await {
            let objects = &mut self.report.objects;
            match fate {
                Fate::Rewritten => objects.rewritten += 1,
                Fate::Accepted => objects.accepted += 1,
                Fate::Current => objects.current += 1,
                Fate::ChangedMeanwhile => objects.changed_meanwhile += 1,
                Fate::Gone => objects.gone += 1,
                Fate::Failed(failure) => {
                    objects.failed += 1;
                    self.report.failures.push(failure);
                }
                Fate::Forbidden(why) => return Err(why),
            }
        }
        Ok(())
    }

    /// Removes all versions but the storage version from `status.storedVersions`.
    async fn prune(&self, before: &Definition) -> Result<Outcome, String> {
        let mut refused = String::new();
        for _ in 0..PRUNE_ATTEMPTS {
            let now = self.check(before).await?;
            if now.is_up_to_date() {
                return Ok(Outcome::Migrated);
            }
            let mut patch = fence(&now.uid, &now.resource_version);
            patch["status"] = json!({"storedVersions": [now.storage_version]});
            let (name, parameters, patch) = (&self.report.definition, PatchParams::default(), Patch::Merge(patch));
            match persist(async || self.definitions.patch_status(name, &parameters, &patch).await).await {
                Ok(_) => return Ok(Outcome::Migrated),
                Err(error) if classify(&error) == Class::Conflict => refused = told(&error),
                Err(error) => {
                    refused = told(&error);
                    break;
                }
            }
        }
        Err(format!("every object is rewritten, but status.storedVersions cannot be changed: {refused}"))
    }
}

/// A merge patch that changes nothing, and that the API server refuses if the object is not the one that was read.
fn fence(uid: &str, resource_version: &str) -> Value {
    json!({"metadata": {"uid": uid, "resourceVersion": resource_version}})
}

async fn rewrite_one(
    client: &Client,
    resource: &ApiResource,
    object: &PartialObjectMeta<DynamicObject>,
    dry_run: bool,
) -> Fate {
    let metadata = &object.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let api: Api<DynamicObject> = match &metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let version = metadata.resource_version.clone().unwrap_or_default();
    let patch = Patch::Merge(fence(metadata.uid.as_deref().unwrap_or_default(), &version));
    let parameters = PatchParams { dry_run, ..PatchParams::default() };
    let error = match persist(async || api.patch_metadata(&name, &parameters, &patch).await).await {
        // A dry run changes no resource version, so it does not show whether the object is current.
        Ok(_) if dry_run => return Fate::Accepted,
        Ok(written) if written.metadata.resource_version.as_deref() == Some(&version) => return Fate::Current,
        Ok(_) => return Fate::Rewritten,
        Err(error) => error,
    };
    match classify(&error) {
        Class::NotFound => Fate::Gone,
        Class::Conflict => Fate::ChangedMeanwhile,
        Class::Forbidden => Fate::Forbidden(told(&error)),
        _ => Fate::Failed(Failure { object: named(object), error: chain(&error) }),
    }
}

fn unreadable(resource: &ApiResource, failure: &Unreadable) -> String {
    let what = match &failure.after {
        Some(last) => format!("the {} after {last}", resource.plural),
        None => format!("the {}", resource.plural),
    };
    format!("cannot read {what}: {}", told(&failure.error))
}

/// The error, with what the user can do about it.
fn told(error: &kube::Error) -> String {
    let message = chain(error);
    let advice = match classify(error) {
        Class::Forbidden => "the user needs the permissions that `controller-manager rbac --migrate-storage` prints",
        _ if message.contains("conversion webhook") => {
            "the operators must run with webhooks, because they convert objects that are stored in an old version"
        }
        _ if api_errors::is_unauthorized(error) => "log in to the cluster again",
        _ => return message,
    };
    format!("{message}; {advice}")
}
