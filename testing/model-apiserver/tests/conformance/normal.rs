//! Replaces the values in answers that differ between servers: uids, versions, times, addresses.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::step::{RV_FIRST, RV_LATEST, Step, UID};

/// The uids and versions of one server.
#[derive(Default)]
pub(crate) struct Names {
    uids: HashMap<String, String>,
    versions: HashMap<String, String>,
    /// First version, latest version and uid, by the path of the object.
    objects: HashMap<String, (String, String, String)>,
}

impl Names {
    /// Inserts this server's versions and uids into the step.
    pub(crate) fn fill(&self, step: &Step) -> Step {
        let unknown = ("1".to_owned(), "1".to_owned(), "00000000-0000-0000-0000-00000000dead".to_owned());
        let (first, latest, uid) = self.objects.get(&step.object).unwrap_or(&unknown);
        let fill = |text: &str| text.replace(RV_FIRST, first).replace(RV_LATEST, latest).replace(UID, uid);
        let body = step.body.as_ref().map(|body| serde_json::from_str(&fill(&body.to_string())).unwrap());
        Step { body, query: fill(&step.query), ..step.clone() }
    }

    pub(crate) fn learn(&mut self, step: &Step, answer: &Value) {
        let objects: Vec<&Value> = match answer {
            Value::Array(events) => events.iter().map(|event| &event["object"]).collect(),
            other => other["items"].as_array().map_or(vec![other], |items| items.iter().collect()),
        };
        for object in objects {
            let metadata = &object["metadata"];
            let text = |name: &str| metadata[name].as_str().map(str::to_owned);
            if object.get("items").is_some() {
                continue;
            }
            if let Some(uid) = text("uid") {
                let next = format!("uid{}", self.uids.len());
                self.uids.entry(uid).or_insert(next);
            }
            if let Some(version) = text("resourceVersion") {
                let next = format!("rv{}", self.versions.len());
                self.versions.entry(version).or_insert(next);
            }
            if let (Some(uid), Some(version), true) =
                (text("uid"), text("resourceVersion"), answer.get("items").is_none())
            {
                let known = self
                    .objects
                    .entry(step.object.clone())
                    .or_insert_with(|| (version.clone(), version.clone(), uid.clone()));
                if known.2 != uid {
                    *known = (version.clone(), version.clone(), uid);
                }
                known.1 = version;
            }
        }
    }

    /// The placeholders of versions, from old to new.
    pub(crate) fn order(&self) -> Vec<String> {
        let number = |text: &String| text.parse::<u64>().unwrap_or_default();
        let mut order: Vec<(u64, &String)> =
            self.versions.iter().map(|(version, name)| (number(version), name)).collect();
        order.sort();
        order.into_iter().map(|(_, name)| name.clone()).collect()
    }

    pub(crate) fn normal(&self, mut body: Value) -> Value {
        if body.get("items").is_some() {
            for field in ["resourceVersion", "continue"] {
                if body["metadata"].get(field).is_some() {
                    body["metadata"][field] = json!(field);
                }
            }
        }
        self.walk(&mut body);
        if let Some(message) = in_any_order(&body) {
            body["message"] = json!(message);
        }
        if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            causes.sort_by_key(ToString::to_string);
        }
        body
    }

    fn walk(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if let Some(Value::Array(entries)) = map.get_mut("managedFields") {
                    entries.sort_by_key(|entry| {
                        ["operation", "manager", "apiVersion", "subresource", "fieldsV1"]
                            .map(|field| entry[field].to_string())
                    });
                }
                for (name, value) in map.iter_mut() {
                    match (name.as_str(), &*value) {
                        ("clusterIP", Value::String(address)) if address != "None" => *value = json!("address"),
                        ("clusterIPs", Value::Array(list)) if *list != [json!("None")] => *value = json!(["address"]),
                        ("resourceVersion", Value::String(version)) => {
                            if let Some(name) = self.versions.get(version) {
                                *value = json!(name);
                            }
                        }
                        _ => self.walk(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.walk(item)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (uid, name) in &self.uids {
            out = out.replace(uid.as_str(), name);
        }
        if is_time(text) {
            return "time".to_owned();
        }
        if let Some(rest) = text.strip_prefix("gen-") {
            return format!("gen-{}", rest.len());
        }
        if let Some((begin, _)) = out.split_once(", current: ") {
            out = begin.to_owned();
        }
        // Replace versions inside messages.
        if out.contains("resource version") || out.contains("ResourceVersion in") {
            for (version, name) in &self.versions {
                out = out.replace(&format!("({version})"), &format!("({name})"));
            }
        }
        out
    }
}

/// Makes the message of a refusal with several causes comparable: the real server lists them in the random order of Go's maps.
fn in_any_order(body: &Value) -> Option<String> {
    let message = body["message"].as_str()?;
    if let Some((begin, list)) = message.split_once(" is invalid: [") {
        let listed = body["details"]["causes"].as_array().is_some_and(|causes| causes.len() > 1);
        return listed.then(|| format!("{begin} is invalid: {} letters", list.len()));
    }
    // For a failed apply, keep only the paths: the real server prints values in Go's internal format.
    let (begin, list) = message.split_once("failed to create typed ")?;
    let (object, list) = list.split_once("): ")?;
    let path = |line: &str| line.trim().split_once(": ").map(|(path, _)| path.to_owned());
    let mut paths: Vec<String> = list.lines().filter_map(path).collect();
    paths.sort();
    Some(format!("{begin}failed to create typed {object}): {}", paths.join(", ")))
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    (20..=30).contains(&bytes.len()) && bytes[4] == b'-' && bytes[10] == b'T' && text.ends_with('Z')
}
