//! Makes random requests. The same seed gives the same requests.

mod objects;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::step::{APPLY, JSON, LAST, MERGE, RV_FIRST, RV_LATEST, Requests, Step, UID, watches};

const KINDS: [Plural; 10] = [
    Plural::ConfigMap,
    Plural::Deployment,
    Plural::Service,
    Plural::Budget,
    Plural::Lease,
    Plural::Widget,
    Plural::Job,
    Plural::Policy,
    Plural::Event,
    Plural::Secret,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plural {
    ConfigMap,
    Deployment,
    Service,
    Budget,
    Lease,
    Widget,
    Job,
    Policy,
    Event,
    Secret,
}

pub(crate) struct Generator {
    rng: Rng,
    namespace: String,
    group: String,
    /// The kind that most requests of the sequence use, so that they act on the same objects.
    favourites: [Plural; 2],
}

impl Generator {
    pub(crate) fn new(seed: u64, namespace: &str, group: &str) -> Self {
        let mut rng = Rng::with_seed(seed);
        let first = rng.usize(..KINDS.len());
        let favourites = [KINDS[first], KINDS[(first + rng.usize(1..KINDS.len())) % KINDS.len()]];
        Self { rng, namespace: namespace.to_owned(), group: group.to_owned(), favourites }
    }

    fn version(&self, kind: Plural) -> (String, &'static str, &'static str) {
        match kind {
            Plural::ConfigMap => ("v1".to_owned(), "configmaps", "ConfigMap"),
            Plural::Deployment => ("apps/v1".to_owned(), "deployments", "Deployment"),
            Plural::Service => ("v1".to_owned(), "services", "Service"),
            Plural::Budget => ("policy/v1".to_owned(), "poddisruptionbudgets", "PodDisruptionBudget"),
            Plural::Lease => ("coordination.k8s.io/v1".to_owned(), "leases", "Lease"),
            Plural::Widget => (format!("{}/v1", self.group), "widgets", "Widget"),
            Plural::Job => ("batch/v1".to_owned(), "jobs", "Job"),
            Plural::Policy => ("networking.k8s.io/v1".to_owned(), "networkpolicies", "NetworkPolicy"),
            Plural::Event => ("events.k8s.io/v1".to_owned(), "events", "Event"),
            Plural::Secret => ("v1".to_owned(), "secrets", "Secret"),
        }
    }

    fn path(&self, kind: Plural) -> String {
        let (version, plural, _) = self.version(kind);
        let prefix = if version == "v1" { "api" } else { "apis" };
        format!("/{prefix}/{version}/namespaces/{}/{plural}", self.namespace)
    }

    fn random(&mut self) -> Step {
        let kind = if self.rng.u8(..4) > 0 {
            self.favourites[self.rng.usize(..2)]
        } else {
            KINDS[self.rng.usize(..KINDS.len())]
        };
        let name = self.pick(&["a", "b"]);
        let (collection, object) = (self.path(kind), format!("{}/{name}", self.path(kind)));
        let has_status = matches!(kind, Plural::Deployment | Plural::Budget | Plural::Widget);
        let manager = self.pick(&["one", "two"]);
        let mut step = match self.rng.u8(..100) {
            0..14 => {
                let mut body = self.object(kind, name);
                if self.rng.u8(..12) == 0 {
                    body["metadata"]["uid"] = json!("11111111-1111-1111-1111-111111111111");
                }
                let query = if self.rng.u8(..12) == 0 { "&dryRun=All" } else { "" };
                Step::new("POST", &collection).body(body).query(format!("fieldManager={manager}{query}"))
            }
            14..18 => Step::new("GET", &object),
            18..22 => {
                let query = [
                    "",
                    "labelSelector=tier%3Da",
                    "labelSelector=tier+in+(a,b),x",
                    "labelSelector=!tier",
                    "fieldSelector=metadata.name%3Da",
                    "resourceVersion=0",
                    "limit=1",
                ];
                // A controller of the real server puts its own ConfigMap into every namespace.
                let count = if kind == Plural::ConfigMap { query.len() - 2 } else { query.len() };
                Step::new("GET", &collection).query(query[self.rng.usize(..count)])
            }
            // A PUT of a Job must contain the selector that the server generated.
            22..36 if kind != Plural::Job => {
                let mut body = self.object(kind, name);
                self.versioned(&mut body);
                Step::new("PUT", &object).body(body).query(format!("fieldManager={manager}"))
            }
            22..48 => {
                let body = self.merge_patch(kind);
                Step::new("PATCH", &object).body(body).content(MERGE).query(format!("fieldManager={manager}"))
            }
            48..54 => {
                let body = self.json_patch();
                Step::new("PATCH", &object).body(body).content(JSON).query(format!("fieldManager={manager}"))
            }
            54..80 => {
                let mut body = self.object(kind, name);
                match self.rng.u8(..16) {
                    0 => body["metadata"]["resourceVersion"] = json!(RV_LATEST),
                    1 => body["metadata"]["resourceVersion"] = json!(RV_FIRST),
                    2 => body["metadata"]["uid"] = json!(UID),
                    3 => body["metadata"]["uid"] = json!("22222222-2222-2222-2222-222222222222"),
                    _ => {}
                }
                let force = if self.rng.bool() { "&force=true" } else { "" };
                Step::new("PATCH", &object).body(body).content(APPLY).query(format!("fieldManager={manager}{force}"))
            }
            80..92 if has_status => self.status(kind, name, &object, manager),
            _ => {
                let mut options = Map::new();
                match self.rng.u8(..8) {
                    0 => drop(options.insert("preconditions".to_owned(), json!({"uid": UID}))),
                    1 => drop(options.insert("preconditions".to_owned(), json!({"resourceVersion": RV_LATEST}))),
                    2 => drop(options.insert("preconditions".to_owned(), json!({"resourceVersion": RV_FIRST}))),
                    3 => drop(options.insert("preconditions".to_owned(), json!({"uid": "3333"}))),
                    _ => {}
                }
                options.insert("propagationPolicy".to_owned(), json!("Background"));
                Step::new("DELETE", &object).body(Value::Object(options))
            }
        };
        // Send no other uid with a Job: the server would compare generated fields with it, and print them in Go's notation.
        if let Some(body) = step.body.as_mut().filter(|body| kind == Plural::Job && body["metadata"]["uid"] != UID) {
            body.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("uid"));
        }
        step.about(&object)
    }

    fn versioned(&mut self, body: &mut Value) {
        match self.rng.u8(..8) {
            0..4 => body["metadata"]["resourceVersion"] = json!(RV_LATEST),
            4 => body["metadata"]["resourceVersion"] = json!(RV_FIRST),
            5 => body["metadata"]["uid"] = json!(UID),
            6 => body["metadata"]["uid"] = json!("22222222-2222-2222-2222-222222222222"),
            _ => {}
        }
    }

    fn status(&mut self, kind: Plural, name: &str, object: &str, manager: &str) -> Step {
        let (version, _, kind_name) = self.version(kind);
        let count = self.rng.u8(..3);
        let mut status = match kind {
            Plural::Deployment => json!({"replicas": 3, "readyReplicas": count}),
            Plural::Budget => {
                json!({"currentHealthy": count, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 3})
            }
            _ => json!({"phase": self.pick(&["Up", "Down"]), "replicas": count}),
        };
        if self.rng.bool() && kind != Plural::Budget {
            status["conditions"] = json!([{
                "type": self.pick(&["Ready", "Stalled"]), "status": "True", "reason": "Because", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }
        let path = format!("{object}/status");
        let query = format!("fieldManager={manager}");
        let mut body = json!({"status": status});
        match self.rng.u8(..3) {
            0 => {
                match self.rng.u8(..9) {
                    0..3 => {
                        let uid = self.pick(&[UID, "22222222-2222-2222-2222-222222222222"]);
                        body["metadata"] = json!({"uid": uid});
                    }
                    3..5 => {
                        body["metadata"] = json!({"labels": {"x": "status"}, "annotations": {"by": "status"}});
                        body["spec"] = json!({"minReadySeconds": 9});
                    }
                    _ => {}
                }
                Step::new("PATCH", &path).body(body).content(MERGE).query(query)
            }
            1 => {
                let mut body = self.object(kind, name);
                body["status"] = status;
                self.versioned(&mut body);
                Step::new("PUT", &path).body(body).query(query)
            }
            _ => {
                let body =
                    json!({"apiVersion": version, "kind": kind_name, "metadata": {"name": name}, "status": status});
                let force = if self.rng.bool() { "&force=true" } else { "" };
                Step::new("PATCH", &path).body(body).content(APPLY).query(format!("{query}{force}"))
            }
        }
    }

    fn merge_patch(&mut self, kind: Plural) -> Value {
        match self.rng.u8(..7) {
            0 => json!({"metadata": {"labels": {"tier": null}}}),
            1 => json!({"metadata": {"labels": {"tier": self.pick(&["a", "b"])}}}),
            2 => json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            3 => json!({"metadata": {"finalizers": null}}),
            4 => json!({"metadata": {"resourceVersion": self.pick(&[RV_LATEST, RV_FIRST]),
                "annotations": {"note": self.word()}}}),
            5 => json!({"metadata": {"uid": self.pick(&[UID, "22222222-2222-2222-2222-222222222222"]),
                "annotations": {"note": self.word()}}}),
            _ => match kind {
                Plural::ConfigMap => json!({"data": {"k1": null, "k2": self.word()}}),
                Plural::Deployment => json!({"spec": {"replicas": self.rng.u8(..3), "paused": null}}),
                Plural::Service => json!({"spec": {"sessionAffinity": "None", "selector": {"app": self.word()}}}),
                Plural::Budget => json!({"spec": {"minAvailable": self.rng.u8(..3)}}),
                Plural::Lease => json!({"spec": {"holderIdentity": self.word(), "leaseTransitions": self.rng.u8(..3)}}),
                Plural::Job => json!({"spec": {"parallelism": self.rng.u8(..3), "suspend": null}}),
                Plural::Policy => {
                    json!({"spec": {"podSelector": {"matchLabels": {"app": self.word()}}, "egress": null}})
                }
                Plural::Event => json!({"note": self.word()}),
                Plural::Secret => json!({"stringData": {"k1": self.word()}, "data": {"k2": null}}),
                Plural::Widget => json!({"spec": {"size": null, "mode": self.pick(&["Fast", "Slow"]),
                    "sidecars": [{"name": "s1", "image": self.word()}]}, "unknown": {"field": 1}}),
            },
        }
    }

    fn json_patch(&mut self) -> Value {
        match self.rng.u8(..4) {
            0 => json!([{"op": "replace", "path": "/metadata/labels/x", "value": self.word()}]),
            1 => json!([{"op": "add", "path": "/metadata/annotations", "value": {"json": self.word()}}]),
            2 => json!([{"op": "test", "path": "/metadata/labels/tier", "value": "a"},
                {"op": "remove", "path": "/metadata/labels/tier"}]),
            _ => {
                json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/hold", "example.com/more"]}])
            }
        }
    }

    fn word(&mut self) -> String {
        self.pick(&["red", "green", "blue"]).to_owned()
    }

    fn pick<'a>(&mut self, options: &[&'a str]) -> &'a str {
        options[self.rng.usize(..options.len())]
    }

    fn maybe(&mut self) -> bool {
        self.rng.bool()
    }
}

impl Requests for Generator {
    fn step(&mut self) -> Step {
        self.random()
    }

    fn watches(&mut self) -> Vec<Step> {
        let mut out = Vec::new();
        // Do not watch events: the real server reads them from its store and not from a cache.
        for kind in self.favourites.into_iter().filter(|kind| *kind != Plural::Event) {
            let mut last = self.object(kind, LAST);
            last["metadata"]["labels"] = json!({"tier": "a"});
            out.extend(watches(&self.path(kind), &self.namespace, last));
        }
        out
    }
}
