//! Other objects as input: a Banner shows a text of a `ConfigMap` in the colour of a Theme. A server on each node serves it, behind
//! an Ingress if the `ConfigMap` names a host. A webhook that reads the cache protects a Theme as long as a Banner shows it.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::{ConfigMap, Service},
        networking::v1::Ingress,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{
    Action, Context, Controller, Error, Health, Lookup, Manager, Operation, Operator, Review, StandardStatus,
    ValidationResult, Verdict, Webhook,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use workloads::{Viewed, Whole};

/// A text in the colour of a theme.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Banner", namespaced, status = "StandardStatus")]
pub struct BannerSpec {
    /// The `ConfigMap` with the text, under the key `text`, and perhaps with a `host`.
    #[schemars(length(min = 1, max = 253))]
    config: String,
    /// The Theme with the colour.
    #[schemars(length(min = 1, max = 253))]
    theme: String,
}

/// A colour. Users write it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Theme", namespaced)]
pub struct ThemeSpec {
    /// The colour.
    #[schemars(length(max = 20))]
    colour: String,
}

/// The part of a Theme that the reconciler reads.
#[derive(Debug, PartialEq, Deserialize)]
pub struct ThemeView {
    spec: Colour,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Colour {
    colour: String,
}

impl Viewed for Theme {
    type View = ThemeView;
}

/// The index of Banners by their Theme.
const THEME: &str = "theme";

/// The group of the users who may change the colour of a Theme that a Banner shows.
const DESIGNERS: &str = "designers";

/// The operator of [`Banner`].
#[derive(Debug, Default)]
pub struct Banners {
    banners: Lookup<Banner>,
}

impl Operator for Banners {
    fn name(&self) -> &'static str {
        "banners"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Banner::crd(), Theme::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: examples.example.com/v1, kind: Banner, metadata: {name: door}, spec: {config: door, theme: dark}}"
    }

    fn webhooks(&self) -> Vec<Webhook> {
        let (banners, operations) = (self.banners.clone(), [Operation::Update, Operation::Delete]);
        let webhook = Webhook::reviewing(move |review| protect(review, &banners)).on(&operations);
        // A namespace that is deleted takes its Themes with it.
        let condition = "request.userInfo.username != 'system:serviceaccount:kube-system:namespace-controller'";
        vec![webhook.only_if("not-the-namespace-controller", condition)]
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(
            Controller::of::<Banner>()
                .owns::<ConfigMap>()
                .owns::<Service>()
                .owns::<Whole<DaemonSet>>()
                .owns::<Whole<Ingress>>()
                .watches_referenced::<Whole<ConfigMap>>(|banner| vec![banner.spec.config.clone()])
                .watches_referenced::<Theme>(|banner| vec![banner.spec.theme.clone()])
                .index(THEME, |banner| vec![banner.spec.theme.clone()])
                .lookup(&self.banners)
                .reconcile(reconcile),
        );
    }
}

/// As long as a Banner shows a Theme, only designers change its colour, and no user deletes it.
fn protect(review: &Review<Theme>, banners: &Lookup<Banner>) -> ValidationResult {
    let (mut result, user) = (ValidationResult::none(), &review.user);
    let [old, new] = [&review.old, &review.object].map(|theme| theme.as_ref().map(|it| &it.spec.colour));
    let is_designer = user.groups.iter().any(|group| group == DESIGNERS);
    let shown = banners.indexed(THEME, &review.namespace, &review.name);
    match (review.operation, shown.map(|all| all.first().map(|it| format!("Banner \"{}\"", it.name_any())))) {
        (Operation::Create, _) | (_, Ok(None)) => {}
        (Operation::Update, _) if old == new => {}
        (Operation::Update, Ok(Some(_))) if is_designer && review.dry_run => {} // as that of `kubectl diff`
        (Operation::Update, Ok(Some(banner))) if is_designer => result.warn(format!("{banner} changes its colour")),
        (Operation::Update, Ok(Some(banner))) => {
            result.refuse("spec.colour", format!("{banner} shows it, and {} is no designer", user.name));
        }
        (Operation::Delete, Ok(Some(banner))) => result.refuse("metadata.name", format!("{banner} shows this theme")),
        (_, Err(error)) => result.refuse("metadata.name", error.to_string()),
    }
    result
}

async fn reconcile(banner: Arc<Banner>, ctx: Context<Banner>) -> Result<Action, Error> {
    let (config, theme) = (&banner.spec.config, &banner.spec.theme);
    let map = ctx.get::<Whole<ConfigMap>>(config);
    let value = |key: &str| map.as_ref().and_then(|map| map.data.as_ref()?.get(key).cloned());
    let verdict = match (value("text"), ctx.get::<Theme>(theme)) {
        (Some(text), Some(theme)) => {
            let name = format!("{}-page", banner.name_any());
            let ingress = value("host").map(|host| typed::<Ingress>(ingress(&name, &host))).transpose()?;
            let (_, _, servers, _) = ctx
                .all((
                    ctx.apply(page(&name, &text, &theme.spec.colour)),
                    ctx.apply(typed::<Service>(service(&name))?),
                    ctx.apply(Whole::from(typed::<DaemonSet>(servers(&name))?)),
                    ctx.apply_or_delete(ingress.map(Whole::from)),
                ))
                .await?;
            // Until the present spec is scheduled, the counts are those of an earlier one, or 0.
            let is_of = |status: &DaemonSetStatus, generation| status.observed_generation == Some(generation);
            let status = servers.and_then(|set| set.status.clone().filter(|status| is_of(status, set.generation)));
            match status.map(|status| (status.number_ready, status.desired_number_scheduled)) {
                Some((ready, wanted)) if ready < wanted => {
                    Verdict::no("StillStarting", format!("{ready} of {wanted} servers are ready"))
                }
                Some(_) => Verdict::yes("Ready", format!("{} characters are shown", text.chars().count())),
                None => Verdict::no("StillStarting", "The servers are not scheduled yet"),
            }
        }
        (None, _) => Verdict::no("NoText", format!("ConfigMap \"{config}\" has no text")),
        (_, None) => Verdict::no("NoTheme", format!("Theme \"{theme}\" is not there")),
    };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

fn page(name: &str, text: &str, colour: &str) -> ConfigMap {
    let page = format!("<body style=\"color: {colour}\">{text}</body>");
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some(BTreeMap::from([("index.html".to_owned(), page)])),
        ..ConfigMap::default()
    }
}

/// The servers of the page, one on each node.
fn servers(name: &str) -> Value {
    let labels = json!({"page": name});
    let mount = json!({"name": "page", "mountPath": "/usr/share/nginx/html"});
    json!({
        "metadata": {"name": name},
        "spec": {
            "minReadySeconds": 5, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{"name": "web", "image": "nginx:1", "volumeMounts": [mount]}],
                "volumes": [{"name": "page", "configMap": {"name": name}}],
            }},
        },
    })
}

fn service(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"page": name}, "ports": [{"name": "http", "port": 80}]}})
}

fn ingress(name: &str, host: &str) -> Value {
    let backend = json!({"service": {"name": name, "port": {"name": "http"}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({"metadata": {"name": name}, "spec": {"rules": [{"host": host, "http": {"paths": paths}}]}})
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| Error::Other(error.into()))
}
