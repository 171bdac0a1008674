//! What a Banner requires of the cluster. Users write the `ConfigMap` and the Theme that it names.

use std::sync::LazyLock;

use example_operators::banners::Banners;
use fastrand::Rng;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::{
    Subject,
    oracle::{Wanted, beside, contains, labels, owner, say},
};

pub(crate) struct Banner;

static BANNERS: LazyLock<Banners> = LazyLock::new(Banners::default);

/// A user's `ConfigMap`, and what is not one.
const CONFIGS: [&str; 2] = ["text", "title"];
const THEMES: [&str; 2] = ["dark", "light"];

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
        &["configmaps"]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        json!({"config": CONFIGS[rng.usize(..2)], "theme": THEMES[rng.usize(..2)]})
    }

    fn damage(&self, _: &str, rng: &mut Rng) -> Option<Value> {
        Some(json!({"data": {"index.html": format!("page {}", rng.u8(..))}}))
    }

    fn input(&self, rng: &mut Rng) -> Option<Value> {
        let number = rng.usize(..2);
        Some(if rng.bool() {
            let key = if rng.u8(..4) > 0 { "text" } else { "other" };
            let data = json!({key: format!("text {}", rng.u8(..4))});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIGS[number]}, "data": data})
        } else {
            let spec = json!({"colour": format!("colour {}", rng.u8(..4))});
            let api_version = "examples.example.com/v1";
            json!({"apiVersion": api_version, "kind": "Theme", "metadata": {"name": THEMES[number]}, "spec": spec})
        })
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
        let page = format!("{name}-page");
        let wanted =
            Wanted { name: &page, adopts: true, app: "banner", children: &[("configmaps", true)], fits: |_, _| true };
        if !wanted.are_there(object, cluster)? {
            return Ok(());
        }
        let live = beside(object, cluster, "configmaps", &page).unwrap_or_default();
        let colour = theme["spec"]["colour"].as_str().unwrap_or_default();
        let expected = json!({
            "metadata": {"labels": labels("banner", name), "ownerReferences": [owner(object)]},
            "data": {"index.html": format!("<body style=\"color: {colour}\">{text}</body>")},
        });
        contains(&live, &expected, "ConfigMap")?;
        say(&object["status"], &[("Ready", ("True", "Ready")), ("Degraded", ("False", "AsExpected"))])
    }
}
