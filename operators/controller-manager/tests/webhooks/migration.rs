//! `migrate-storage` on a real API server: it is killed again and again, and loses no object. Afterwards, the old version can be taken
//! out of the definition.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, ObjectList, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{World, cache_of, until, until_within};

/// The number of objects in a usual run, and with `STORED_OBJECTS=all`.
const OBJECTS: [usize; 2] = [400, 10_000];
/// How often the command is killed.
const KILLS: usize = 6;
/// How long the API server may take to fill its caches after a change of the versions: it converts each object, one after the other,
/// and waits for up to half a minute before it tries again what has failed.
const FILLED_WITHIN: Duration = Duration::from_mins(5);
/// The objects between two progress reports of a command that is killed.
const PAGE: usize = 20;
const USER: &str = "migrator";
const NAME: &str = "memcacheds.memcached.cache.example.com";

impl World {
    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    /// Changes the versions of the definition.
    async fn set_versions(&self, versions: &[CustomResourceDefinitionVersion]) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
        self.definitions().patch(NAME, &PatchParams::default(), &patch).await.map(drop)
    }

    async fn stored_versions(&self) -> Vec<String> {
        self.definitions().get(NAME).await.unwrap().status.unwrap().stored_versions.unwrap_or_default()
    }

    /// What must not change: for each object its uid, generation, labels, annotations and spec, in v1.
    async fn contents(&self) -> BTreeMap<String, Value> {
        let mut contents = BTreeMap::new();
        let mut parameters = ListParams::default().limit(500);
        loop {
            let page = self.page(&parameters).await;
            contents.extend(page.items.into_iter().map(|it| (it.name_any(), content(&it))));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return contents,
            }
        }
    }

    /// One page of the objects. Right after a change of the versions, the API server fills a cache of all objects, calls the webhook
    /// for each that is stored in another version, and refuses some lists meanwhile.
    async fn page(&self, parameters: &ListParams) -> ObjectList<DynamicObject> {
        let mut answer = None;
        until_within(FILLED_WITHIN, "a page is listed", async || {
            let listed = self.caches().list(parameters).await;
            answer = listed.inspect_err(|error| eprintln!("not listed yet: {error}")).ok();
            answer.is_some()
        })
        .await;
        answer.expect("a page")
    }

    /// The command, as a user who has only the permissions that the command says it needs.
    fn migration(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_controller-manager"));
        let kubeconfig = self.cluster.kubeconfig_for(USER, &[]).unwrap();
        command.args(["migrate-storage", "--kind", "memcached", "--kubeconfig"]).arg(kubeconfig);
        command.args(flags).stdin(Stdio::null());
        command
    }

    /// Gives the user the permissions that `rbac --migrate-storage` prints.
    fn allow_migration(&self) {
        let role = Command::new(env!("CARGO_BIN_EXE_controller-manager")).args(["rbac", "--migrate-storage"]).output();
        let mut apply = self.cluster.kubectl(["apply", "--filename", "-"]);
        let mut apply = apply.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        apply.stdin.take().unwrap().write_all(&role.unwrap().stdout).unwrap();
        assert!(apply.wait().unwrap().success());
        let user = format!("--user={USER}");
        let bind = ["create", "clusterrolebinding", "migrate-storage", "--clusterrole=migrate-storage", &user];
        assert!(self.cluster.kubectl(bind).stdout(Stdio::null()).status().unwrap().success());
    }

    /// Runs the command, and kills it after this number of progress reports. Returns false if it ended before.
    fn killed_after(&self, reports: usize) -> bool {
        let mut child = self
            .migration(&["--chunk-size", &PAGE.to_string()])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let seen = lines.map_while(Result::ok).filter(|line| line.contains(" objects")).take(reports).count();
        drop(child.kill());
        child.wait().unwrap();
        seen == reports
    }
}

fn content(object: &DynamicObject) -> Value {
    let metadata = &object.metadata;
    json!({
        "uid": metadata.uid, "generation": metadata.generation, "labels": metadata.labels,
        "annotations": metadata.annotations, "managedFields": metadata.managed_fields, "spec": object.data["spec"],
    })
}

/// The versions of the definition, with another storage version.
fn storing(versions: &[CustomResourceDefinitionVersion], storage: &str) -> Vec<CustomResourceDefinitionVersion> {
    let mut versions = versions.to_vec();
    for version in &mut versions {
        version.storage = version.name == storage;
        version.served = true;
    }
    versions
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_migration_loses_no_object_and_the_old_version_can_retire() {
    let Some(world) = World::new().await else { return };
    let everything = std::env::var("STORED_OBJECTS").is_ok_and(|asked| asked == "all");
    let count = OBJECTS[usize::from(everything)];
    let mut random = fastrand::Rng::with_seed(manager_testing::seed());

    let good = world.definitions().get(NAME).await.unwrap().spec.versions;
    world.set_versions(&storing(&good, "v1alpha1")).await.unwrap();
    let v1alpha1 = world.caches_of("v1alpha1");
    until("v1alpha1 is served", async || v1alpha1.list(&ListParams::default()).await.is_ok()).await;
    let begun = Instant::now();
    let api = &v1alpha1;
    stream::iter(0..count)
        .for_each_concurrent(8, |n| async move {
            let object = cache_of("v1alpha1", &format!("cache-{n}"), &json!({"size": (n % 65).to_string()}));
            api.create(&PostParams::default(), &object).await.unwrap();
        })
        .await;
    eprintln!("{count} objects created in {:.1} s", begun.elapsed().as_secs_f64());

    world.set_versions(&storing(&good, "v1")).await.unwrap();
    // It only converts: the objects are outside of the namespaces that it watches.
    let mut manager = world.by_url_within(FILLED_WITHIN, &["--watch-namespaces", "kube-public"]).await;
    let v1_only: Vec<_> = storing(&good, "v1").into_iter().filter(|version| version.name == "v1").collect();
    until("the storage version is v1", async || world.stored_versions().await == ["v1", "v1alpha1"]).await;
    let before = world.contents().await;
    assert_eq!(before.len(), count);
    let error = world.set_versions(&v1_only).await.expect_err("objects may still be stored as v1alpha1");
    assert!(error.to_string().contains("status.storedVersions[1]"), "{error}");

    let refused = tokio::task::block_in_place(|| world.migration(&[]).output()).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&refused.stdout);
    assert!(shown.contains("the user needs the permissions that `controller-manager rbac"), "{shown}");
    tokio::task::block_in_place(|| world.allow_migration());

    let begun = Instant::now();
    for _ in 0..KILLS {
        let reports = random.usize(1..=(count / PAGE / 2 / KILLS).max(10));
        assert!(tokio::task::block_in_place(|| world.killed_after(reports)), "it was killed while it worked");
        assert_eq!(world.stored_versions().await, ["v1", "v1alpha1"]);
    }
    let killed = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let output = tokio::task::block_in_place(|| world.migration(&["--output", "json"]).output()).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (objects, seconds) = (&report[0]["objects"], begun.elapsed().as_secs_f64());
    eprintln!("{KILLS} killed runs took {killed:.1} s, the last run {seconds:.1} s: {objects}");
    assert_eq!(report[0]["outcome"], "Migrated", "{report}");
    let number = |name: &str| objects[name].as_u64().unwrap();
    assert!(number("current") > 0, "the killed runs have rewritten objects: {objects}");
    assert_eq!(number("current") + number("rewritten"), count as u64, "{objects}");
    assert_eq!(world.stored_versions().await, ["v1"]);

    let after = world.contents().await;
    let changed: Vec<_> = before.iter().filter(|(name, content)| after.get(*name) != Some(content)).take(3).collect();
    assert!(changed.is_empty() && after.len() == count, "{} objects; {changed:#?}", after.len());
    let again = tokio::task::block_in_place(|| world.migration(&[]).output()).unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to do: only v1 is stored"), "{again:?}");

    // Nothing converts any more, and the API server knows only v1.
    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(manager.child.wait().unwrap().success());
    world.set_versions(&v1_only).await.expect("v1alpha1 can retire");
    until_within(FILLED_WITHIN, "v1alpha1 is gone", async || v1alpha1.list(&ListParams::default()).await.is_err())
        .await;
    assert!(world.contents().await == before, "every object is readable as v1");
}
