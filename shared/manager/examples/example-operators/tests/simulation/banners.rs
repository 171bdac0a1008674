//! What a Banner requires of the cluster. Users write the `ConfigMap` and the Theme that it names, and ask the webhook whether they
//! may delete a Theme or change its colour.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use example_operators::banners::Banners;
use fastrand::Rng;
use manager::{Operator, Webhook, answer_review};
use model_apiserver::Model;
use parking_lot::Mutex;
use serde_json::{Value, json};
use simulation::{
    Caller, ExternalService, NAMESPACES, Note, Subject,
    oracle::{Wanted, beside, contains, labels, owner, say},
};

pub(crate) struct Banner;

static BANNERS: LazyLock<Banners> = LazyLock::new(Banners::default);

/// A user's `ConfigMap`, and what is not one.
const CONFIGS: [&str; 2] = ["text", "title"];
const THEMES: [&str; 2] = ["dark", "light"];
const INGRESSES: &str = "ingresses.networking.k8s.io";

impl Subject for Banner {
    fn operator(&self) -> &'static dyn Operator {
        &*BANNERS
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("examples.example.com/v1", "Banner")
    }

    fn resource(&self) -> &'static str {
        "banners.examples.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["configmaps", "services", "daemonsets.apps", INGRESSES]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        json!({"config": CONFIGS[rng.usize(..2)], "theme": THEMES[rng.usize(..2)]})
    }

    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value> {
        Some(match resource {
            "configmaps" => json!({"data": {"index.html": format!("page {}", rng.u8(..))}}),
            "services" => json!({"spec": {"selector": {"page": format!("other-{}", rng.u8(..4))}}}),
            "daemonsets.apps" => json!({"spec": {"minReadySeconds": rng.u8(6..)}}),
            _ => json!({"spec": {"rules": [{"host": format!("{}.example.org", rng.u8(..4))}]}}),
        })
    }

    fn input(&self, rng: &mut Rng) -> Option<Value> {
        let number = rng.usize(..2);
        Some(if rng.bool() {
            let key = if rng.u8(..4) > 0 { "text" } else { "other" };
            let mut data = json!({key: format!("text {}", rng.u8(..4))});
            if rng.bool() {
                data["host"] = format!("{}.example.com", rng.u8(..2)).into();
            }
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIGS[number]}, "data": data})
        } else {
            let spec = json!({"colour": format!("colour {}", rng.u8(..4))});
            let api_version = "examples.example.com/v1";
            json!({"apiVersion": api_version, "kind": "Theme", "metadata": {"name": THEMES[number]}, "spec": spec})
        })
    }

    fn outside(&self, _: u64, note: Note) -> Option<Arc<dyn ExternalService>> {
        Some(Arc::new(Admission { webhooks: Mutex::default(), note }))
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let named = |field: &str| object["spec"][field].as_str().unwrap_or_default();
        let config = beside(object, cluster, "configmaps", named("config")).unwrap_or_default();
        let theme = beside(object, cluster, "themes.examples.example.com", named("theme"));
        let (Some(text), Some(theme)) = (config["data"]["text"].as_str(), theme) else {
            // A page from before stays, or there was never one.
            let reason = if config["data"]["text"].is_null() { "NoText" } else { "NoTheme" };
            return say(&object["status"], &[("Ready", ("False", reason))]);
        };
        let (page, host) = (format!("{name}-page"), &config["data"]["host"]);
        let children =
            [("configmaps", true), ("services", true), ("daemonsets.apps", true), (INGRESSES, host.is_string())];
        let wanted = Wanted { name: &page, adopts: true, app: "banner", children: &children, fits: |_, _| true };
        if !wanted.are_there(object, cluster)? {
            return Ok(());
        }
        let ours = json!({"labels": labels("banner", name), "ownerReferences": [owner(object)]});
        let is_as = |resource: &str, mut expected: Value| {
            expected["metadata"] = ours.clone();
            contains(&beside(object, cluster, resource, &page).unwrap_or_default(), &expected, resource)
        };
        let colour = theme["spec"]["colour"].as_str().unwrap_or_default();
        let shown = format!("<body style=\"color: {colour}\">{text}</body>");
        is_as("configmaps", json!({"data": {"index.html": shown}}))?;
        is_as("services", json!({"spec": {"selector": {"page": page}}}))?;
        let volume = json!({"name": "page", "configMap": {"name": page}});
        is_as("daemonsets.apps", json!({"spec": {"minReadySeconds": 5, "template": {"spec": {"volumes": [volume]}}}}))?;
        let servers = beside(object, cluster, "daemonsets.apps", &page).unwrap_or_default();
        let (generation, counts) = (&servers["metadata"]["generation"], &servers["status"]);
        let wanted = counts["desiredNumberScheduled"].as_u64().unwrap_or(0);
        if wanted == 0 || counts["numberReady"] != wanted || counts["observedGeneration"] != *generation {
            return Err(format!("not all servers of generation {generation} are ready: {counts}"));
        }
        if host.is_string() {
            is_as(INGRESSES, json!({"spec": {"rules": [{"host": host}]}}))?;
        }
        say(&object["status"], &[("Ready", ("True", "Ready")), ("Degraded", ("False", "AsExpected"))])
    }
}

/// What users do to a Theme, with the group of the user, and whether it is allowed also as long as a Banner shows the Theme.
const REQUESTS: [(&str, &str, bool); 4] = [
    ("DELETE", "users", false),
    ("DELETE", "designers", false),
    ("UPDATE", "users", false),
    ("UPDATE", "designers", true),
];

/// The API server, as far as it asks the webhook before it deletes or changes a Theme.
struct Admission {
    /// Those of the process that has started last. It runs, or it stands by, whenever the world is at rest.
    webhooks: Mutex<Vec<Webhook>>,
    note: Note,
}

impl Admission {
    /// Whether a user of this group may delete this Theme, or change its colour.
    fn allows(&self, namespace: &str, theme: &str, operation: &str, group: &str) -> bool {
        let coloured = |colour: &str| {
            let (api_version, metadata) = ("examples.example.com/v1", json!({"name": theme, "namespace": namespace}));
            json!({"apiVersion": api_version, "kind": "Theme", "metadata": metadata, "spec": {"colour": colour}})
        };
        let new = if operation == "UPDATE" { coloured("another colour") } else { Value::Null };
        let request = json!({
            "uid": "u", "operation": operation, "namespace": namespace, "name": theme, "object": new,
            "oldObject": coloured("a colour"), "userInfo": {"username": "ann", "groups": [group]},
        });
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let webhooks = self.webhooks.lock();
        let path = webhooks.first().expect("a webhook").path();
        let reply = answer_review(&webhooks, &path, review.to_string().as_bytes()).expect("it is a review");
        assert!(!reply.panicked, "the webhook panicked");
        let review: Value = serde_json::from_str(&reply.review).expect("JSON");
        review["response"]["allowed"] == true
    }
}

impl ExternalService for Admission {
    fn operator(&self, _: Caller) -> Box<dyn Operator> {
        let banners = Banners::default();
        *self.webhooks.lock() = banners.webhooks();
        Box::new(banners)
    }

    /// A user asks at any moment, also when the process has just started. Then it must not panic.
    fn act(&self, object: &Value, _: Duration, _: &mut Rng) -> bool {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (namespace, theme) = (text(&object["metadata"]["namespace"]), text(&object["spec"]["theme"]));
        for (operation, group, _) in REQUESTS {
            let answer = if self.allows(&namespace, &theme, operation, group) { "allows" } else { "refuses" };
            (self.note)(format!("  webhook: {answer} {operation} of {namespace}/{theme} by {group}"));
        }
        true
    }

    fn heal(&self) {}

    fn check(&self, _: bool) -> Result<(), String> {
        Ok(())
    }

    /// Checks that the webhook protects exactly the Themes that Banners show, and lets designers change their colour.
    fn judge(&self, objects: &[Value], _: &dyn Fn(&str) -> bool) -> Result<(), String> {
        for namespace in NAMESPACES {
            for theme in THEMES {
                let shows =
                    |banner: &Value| banner["metadata"]["namespace"] == namespace && banner["spec"]["theme"] == theme;
                let is_shown = objects.iter().any(shows);
                for (operation, group, also_if_shown) in REQUESTS {
                    if self.allows(namespace, theme, operation, group) == (is_shown && !also_if_shown) {
                        let request = format!("{operation} of {namespace}/{theme} by {group}");
                        return Err(format!("the webhook errs about {request}; a Banner shows it: {is_shown}"));
                    }
                }
            }
        }
        Ok(())
    }
}
