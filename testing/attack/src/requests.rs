//! What attackers and the honest client send to a target.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::{api_server::TOKEN, target::Target};

/// What attackers and the honest client send to a target.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    /// Paths that read a body.
    posts: Vec<String>,
    /// More fields of the head, for these paths.
    fields: &'static str,
    /// The path of the honest client among them.
    path: String,
    /// A whole request, after which the server ends the connection.
    pub(crate) honest: String,
}

impl Requests {
    /// The requests for a target of [`crate::serve`].
    pub(crate) fn of_library(target: Target) -> Self {
        let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"labels": {"a": "b"}}});
        let paths = ["/mutate-example-com-v1-thing", "/validate-example-com-v1-thing", "/convert"];
        Self::new(target, paths.map(str::to_owned).to_vec(), paths[0], &thing)
    }

    /// The requests for a program of the image: the paths of its webhooks, and a sample, are in the files of the chart in this folder.
    pub(crate) fn of_shipped(target: Target, chart: &Path) -> Result<Self> {
        let (mut paths, mut honest) = (Vec::new(), None);
        for folder in folders(&chart.join("files"))? {
            let Some(webhooks) = yaml(&folder.join("webhooks.yaml"))? else { continue };
            let hooks = ["validating", "mutating"].iter().filter_map(|kind| webhooks[kind].as_array()).flatten();
            let hooks: Vec<_> = hooks.filter_map(|hook| hook["path"].as_str().map(str::to_owned)).collect();
            if honest.is_none()
                && let Some(path) = hooks.first()
            {
                honest = yaml(&folder.join("sample.yaml"))?.map(|sample| (path.clone(), sample));
            }
            paths.extend(hooks);
            paths.extend(webhooks["conversion"]["path"].as_str().map(str::to_owned));
        }
        paths.sort_unstable();
        paths.dedup();
        let (path, sample) = honest.context("no operator of the chart has a webhook and a sample")?;
        Ok(Self::new(target, paths, &path, &sample))
    }

    /// The requests with these paths of reviews. The honest client sends this object to this path of admission reviews.
    fn new(target: Target, reviews: Vec<String>, path: &str, object: &Value) -> Self {
        let of = |path: &str, fields| (vec![path.to_owned()], path.to_owned(), fields);
        let (posts, path, fields) = match target {
            Target::Webhooks | Target::LoadedWebhooks => (reviews, path.to_owned(), ""),
            Target::MetricsProxy | Target::BuiltinMetrics => of("/metrics", ""),
            Target::BookingServer => of("/v1/bookings", "idempotency-key: r\r\n"),
            Target::ManagerProbes | Target::ProxyProbes | Target::BookingProbes => of("/healthz", ""),
        };
        let mut it = Self { posts, fields, path, honest: String::new() };
        it.honest = match target {
            Target::MetricsProxy | Target::BuiltinMetrics => it.get(&format!("authorization: Bearer {TOKEN}\r\n")),
            Target::BookingServer | Target::ManagerProbes | Target::ProxyProbes | Target::BookingProbes => it.get(""),
            Target::Webhooks | Target::LoadedWebhooks => {
                let request = json!({"uid": "u", "operation": "CREATE", "object": object});
                let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
                it.honest_post(&body.to_string())
            }
        };
        it
    }

    /// A whole request of the honest client with these fields in the head, after which the server ends the connection.
    fn get(&self, fields: &str) -> String {
        format!("GET {} HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n", self.path)
    }

    /// The same with this body.
    pub(crate) fn honest_post(&self, body: &str) -> String {
        Self::with_body(&self.post(&self.path), body)
    }

    /// The beginning of the head of a request for this path.
    pub(crate) fn post(&self, path: &str) -> String {
        format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{}", self.fields)
    }

    /// A whole request whose head begins in this way, after which the server ends the connection.
    pub(crate) fn with_body(head: &str, body: &str) -> String {
        format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    /// The beginning of the head of a request for any path that reads a body.
    pub(crate) fn any_post(&self) -> String {
        let path = &self.posts[fastrand::usize(..self.posts.len())];
        self.post(path)
    }

    /// The same for any path of admission reviews.
    pub(crate) fn any_admission(&self) -> String {
        let paths: Vec<_> = self.posts.iter().filter(|path| *path != "/convert").collect();
        self.post(paths[fastrand::usize(..paths.len())])
    }
}

/// The folders in this folder, by their names.
pub(crate) fn folders(inside: &Path) -> Result<Vec<PathBuf>> {
    let read = || std::fs::read_dir(inside)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>();
    let mut paths = read().with_context(|| format!("could not read {}", inside.display()))?;
    paths.retain(|path| path.is_dir());
    paths.sort_unstable();
    Ok(paths)
}

/// A file of YAML; `None` if it does not exist.
pub(crate) fn yaml(file: &Path) -> Result<Option<Value>> {
    match std::fs::read_to_string(file) {
        Ok(text) => serde_saphyr::from_str(&text).map(Some).with_context(|| format!("{} is not YAML", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("could not read {}", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory;

    #[test]
    fn the_chart_has_webhooks_to_attack() {
        let requests = Requests::of_shipped(Target::Webhooks, &memory::chart()).expect("the files of the chart");
        assert!(requests.posts.iter().any(|path| path == "/convert"), "{requests:?}");
        assert!(requests.posts.iter().any(|path| path.starts_with("/validate-")), "{requests:?}");
        let (head, body) = requests.honest.split_once("\r\n\r\n").expect("a body");
        let review: Value = serde_json::from_str(body).expect("JSON");
        let (operation, object) = (&review["request"]["operation"], &review["request"]["object"]);
        assert!(operation == "CREATE" && object["spec"].is_object(), "{review}");
        let kind = object["kind"].as_str().expect("a kind").to_lowercase();
        assert!(head.contains(&format!("-{kind} HTTP/1.1")), "the webhook of another kind: {head}");
    }
}
