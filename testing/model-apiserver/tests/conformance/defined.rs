//! The CRDs of the chart, and random requests for their objects: valid ones, and ones that break a rule.

use std::path::Path;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::{
    step::{APPLY, JSON, LAST, MERGE, RV_FIRST, RV_LATEST, Requests, Step, watches},
    values::Values,
};

/// A CRD and an object that satisfies all its rules.
pub(crate) struct Definition {
    pub(crate) definition: Value,
    sample: Value,
}

/// All CRDs of the chart. Each gets its own group, because another test may have installed the same CRD.
pub(crate) fn of_the_chart(group: &str) -> Vec<Definition> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/operators/files");
    let folders = std::fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path()).filter(|entry| entry.is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()));
    let is_definition = |file: &Path| file.file_name().unwrap().to_string_lossy().starts_with("crd-");
    let mut files: Vec<_> = files.filter(|file| is_definition(file)).collect();
    files.sort();
    let read = |(index, file): (usize, &std::path::PathBuf)| {
        let yaml = |file: &Path| -> Value { serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap() };
        let mut definition = yaml(file);
        let group = format!("d{index}.{group}");
        definition["metadata"]["name"] =
            json!(format!("{}.{group}", definition["spec"]["names"]["plural"].as_str().unwrap()));
        definition["spec"]["group"] = json!(group);
        // Remove short names and categories: with two groups, the real server would resolve them at random.
        for field in ["shortNames", "categories"] {
            definition["spec"]["names"].as_object_mut().unwrap().remove(field);
        }
        Definition { definition, sample: yaml(&file.with_file_name("sample.yaml")) }
    };
    files.iter().enumerate().map(read).collect()
}

/// Makes requests for the objects of one CRD.
pub(crate) struct Defined {
    rng: Rng,
    values: Values,
    namespace: String,
    api_version: String,
    kind: String,
    collection: String,
    schema: Value,
    sample: Value,
    subresources: Value,
    /// The last sent object for each name. Changes of it reach rules that compare with the old object.
    sent: Map<String, Value>,
}

impl Defined {
    pub(crate) fn new(seed: u64, namespace: &str, of: &Definition) -> Self {
        let definition = &of.definition;
        let (spec, version) = (&definition["spec"], &definition["spec"]["versions"][0]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let api_version = format!("{}/{}", text(&spec["group"]), text(&version["name"]));
        let schema = version["schema"]["openAPIV3Schema"].clone();
        Self {
            rng: Rng::with_seed(seed),
            values: Values::new(seed, &schema),
            namespace: namespace.to_owned(),
            collection: format!("/apis/{api_version}/namespaces/{namespace}/{}", text(&spec["names"]["plural"])),
            kind: text(&spec["names"]["kind"]),
            api_version,
            schema,
            subresources: version["subresources"].clone(),
            sample: of.sample.clone(),
            sent: Map::new(),
        }
    }

    fn name(&mut self) -> String {
        match self.rng.u8(..24) {
            0 => "a.b".to_owned(),
            1 => "9".to_owned(),
            2 => "x".repeat(self.rng.usize(48..56)),
            other => if other % 2 == 0 { "a" } else { "b" }.to_owned(),
        }
    }

    /// Makes an object: often the last one with a change, and often with a single mistake.
    fn object(&mut self, name: &str) -> Value {
        let mut main = self.schema.clone();
        main["properties"].as_object_mut().unwrap().remove("status");
        let mut object = match self.sent.get(name) {
            Some(sent) if self.rng.u8(..4) > 0 => {
                let mut sent = sent.clone();
                for _ in 0..self.rng.u8(..3) {
                    self.values.change(&mut sent, &main);
                }
                sent
            }
            _ => self.values.valid(&main),
        };
        if self.rng.u8(..4) > 0 {
            self.sent.insert(name.to_owned(), object.clone());
        }
        if self.rng.u8(..3) == 0 {
            self.values.break_one(&mut object, &main);
        }
        self.even_replicas(&mut object);
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name});
        if self.rng.u8(..4) == 0 {
            object["metadata"]["labels"] = json!({"tier": if self.rng.bool() { "a" } else { "b" }});
        }
        if self.rng.u8(..12) == 0 && name != LAST {
            object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        }
        object
    }

    /// Replicas that no scale request uses. A scale that changes nothing gives the manager of the replicas a second entry, and
    /// the real server writes the two in random order.
    fn even_replicas(&self, object: &mut Value) {
        let path = self.subresources["scale"]["specReplicasPath"].as_str().unwrap_or_default().replace('.', "/");
        if let Some(replicas) = object.pointer_mut(&path).filter(|replicas| !path.is_empty() && replicas.is_i64()) {
            *replicas = match replicas.as_i64().unwrap() {
                count @ 0..10 => json!(count / 2 * 2 + if count < 2 { 2 } else { 0 }),
                count => json!(count),
            };
        }
    }

    fn status(&mut self) -> Value {
        let schema = self.schema["properties"]["status"].clone();
        let mut status = self.values.valid(&schema);
        if self.rng.u8(..3) == 0 {
            self.values.break_one(&mut status, &schema);
        }
        status
    }

    fn versioned(&mut self, body: &mut Value) {
        match self.rng.u8(..16) {
            0 => {}
            1 => body["metadata"]["resourceVersion"] = json!(RV_FIRST),
            _ => body["metadata"]["resourceVersion"] = json!(RV_LATEST),
        }
    }

    /// One field of an object, with the objects around it.
    fn part(&mut self, object: &Value, root: &str) -> Value {
        let pointers = crate::values::pointers(object, root);
        if pointers.is_empty() {
            return object.clone();
        }
        let pointer = &pointers[self.rng.usize(..pointers.len())];
        let mut value = object.pointer(pointer).unwrap().clone();
        if self.rng.u8(..6) == 0 {
            value = Value::Null;
        }
        for name in pointer[1..].split('/').rev() {
            value = json!({name.replace("~1", "/"): value});
        }
        value
    }

    fn json_patch(&mut self, object: &Value, root: &str) -> Value {
        let pointers = crate::values::pointers(object, root);
        if pointers.is_empty() {
            return json!([{"op": "remove", "path": root}]);
        }
        let pointer = &pointers[self.rng.usize(..pointers.len())];
        match self.rng.u8(..4) {
            0 => json!([{"op": "remove", "path": pointer}]),
            1 => json!([{"op": "replace", "path": pointer, "value": object.pointer(pointer)}]),
            _ => json!([{"op": "add", "path": pointer, "value": object.pointer(pointer)}]),
        }
    }

    fn status_step(&mut self, name: &str, path: &str, manager: &str) -> Step {
        let status = self.status();
        let path = format!("{path}/status");
        let mut body =
            json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}, "status": status});
        match self.rng.u8(..8) {
            0..3 => {
                self.versioned(&mut body);
                Step::new("PUT", &path).body(body).query(manager)
            }
            3..5 => Step::new("PATCH", &path).body(json!({"status": body["status"]})).content(MERGE).query(manager),
            5 => {
                let operations = self.json_patch(&body, "/status");
                Step::new("PATCH", &path).body(operations).content(JSON).query(manager)
            }
            _ => {
                let force = if self.rng.bool() { "&force=true" } else { "" };
                Step::new("PATCH", &path).body(body).content(APPLY).query(format!("{manager}{force}"))
            }
        }
    }

    fn scale(&mut self, name: &str, path: &str, manager: &str) -> Step {
        let path = format!("{path}/scale");
        let count = [0, 3, 5, 7, 1_000, -1][self.rng.usize(..6)];
        match self.rng.u8(..4) {
            0 => Step::new("GET", &path),
            1 => {
                let mut body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                    "metadata": {"name": name, "namespace": self.namespace}, "spec": {"replicas": count}});
                self.versioned(&mut body);
                Step::new("PUT", &path).body(body).query(manager)
            }
            _ => Step::new("PATCH", &path).body(json!({"spec": {"replicas": count}})).content(MERGE).query(manager),
        }
    }
}

impl Requests for Defined {
    fn step(&mut self) -> Step {
        let name = self.name();
        let path = format!("{}/{name}", self.collection);
        let manager = if self.rng.bool() { "fieldManager=one" } else { "fieldManager=two" };
        let step = match self.rng.u8(..100) {
            0..12 => Step::new("POST", &self.collection).body(self.object(&name)).query(manager),
            12..15 => {
                let query = ["", "labelSelector=tier%3Da", "limit=1"][self.rng.usize(..3)];
                Step::new("GET", &self.collection).query(query)
            }
            15..36 => {
                let mut body = self.object(&name);
                self.versioned(&mut body);
                Step::new("PUT", &path).body(body).query(manager)
            }
            36..51 => {
                let object = self.object(&name);
                let part = self.part(&object, "/spec");
                Step::new("PATCH", &path).body(part).content(MERGE).query(manager)
            }
            51..58 => {
                let object = self.object(&name);
                let operations = self.json_patch(&object, "/spec");
                Step::new("PATCH", &path).body(operations).content(JSON).query(manager)
            }
            58..78 => {
                let force = if self.rng.bool() { "&force=true" } else { "" };
                let body = self.object(&name);
                Step::new("PATCH", &path).body(body).content(APPLY).query(format!("{manager}{force}"))
            }
            78..90 if self.subresources.get("status").is_some() => self.status_step(&name, &path, manager),
            90..96 if self.subresources.get("scale").is_some() => self.scale(&name, &path, manager),
            96..100 => Step::new("DELETE", &path).body(json!({"propagationPolicy": "Background"})),
            _ => Step::new("GET", &path),
        };
        step.about(&path)
    }

    fn watches(&mut self) -> Vec<Step> {
        let mut last = self.sample.clone();
        last["apiVersion"] = json!(self.api_version);
        last["kind"] = json!(self.kind);
        last["metadata"] = json!({"name": LAST, "labels": {"tier": "a"}});
        watches(&self.collection, &self.namespace, last)
    }
}
