//! Create and update requests, and the path of every write into the store.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cause::Cause,
    fields::FieldSet,
    kind::Kind,
    managed::{self, Writing},
    refusal::Refusal,
    request::RequestInfo,
    state::{State, key},
};

/// The answer to a successful request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn ok(body: Value) -> Self {
        Self { code: 200, body }
    }

    pub(crate) fn created(body: Value) -> Self {
        Self { code: 201, body }
    }
}

/// The target of a write, and its client.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) kind: Arc<Kind>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
}

impl Target {
    pub(crate) fn of(kind: Arc<Kind>, request: &RequestInfo) -> Self {
        Self {
            kind,
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            subresource: request.subresource.clone(),
            manager: request.manager().to_owned(),
            dry_run: request.text("dryRun") == "All",
        }
    }

    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// The fields that a write through this endpoint can own: all but the status through the main endpoint, only the status
    /// through `/status`.
    fn owns(&self, fields: &FieldSet) -> FieldSet {
        let status = FieldSet::read(&json!({"f:status": {}}));
        match &*self.subresource {
            "status" if self.kind.custom => fields.only("status"),
            "status" => fields.recursive_difference(&pointers(self.kind.status_keeps)),
            _ if self.kind.status => fields.recursive_difference(&status),
            _ => fields.clone(),
        }
    }

    /// Runs `keep` with the data that it needs to update `managedFields` for this write.
    pub(crate) fn booked<T>(&self, now: &str, keep: impl FnOnce(&Writing<'_>) -> T) -> T {
        keep(&Writing {
            shape: &self.kind.shape,
            manager: &self.manager,
            api_version: &self.kind.api_version(),
            subresource: &self.subresource,
            now,
            untyped: &|object| self.kind.untyped(object, true),
            filter: &|fields| self.owns(fields),
        })
    }
}

pub(crate) fn pointers(pointers: &[&str]) -> FieldSet {
    let mut out = FieldSet::default();
    for pointer in pointers {
        let path: Vec<_> = pointer.trim_start_matches('/').split('/').map(crate::fields::field).collect();
        out.insert(&path);
    }
    out
}

/// The body as an object of this kind.
pub(crate) fn body(request: &RequestInfo, kind: &Kind) -> Result<Value, Refusal> {
    let object: Value = serde_json::from_slice(&request.body)
        .map_err(|error| Refusal::bad_request(format!("couldn't get version/kind; json parse error: {error}")))?;
    if !object.is_object() {
        return Err(Refusal::bad_request("the object provided is unrecognized (must be of type object)"));
    }
    let (version, name) = (kind.api_version(), &kind.kind);
    let sent = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (sent_version, sent_kind) = (sent("apiVersion"), sent("kind"));
    if (!sent_version.is_empty() && sent_version != version) || (!sent_kind.is_empty() && sent_kind != *name) {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({sent_version}, Kind={sent_kind}) does not match the expected API version \
             ({version}, Kind={name})"
        )));
    }
    Ok(object)
}

/// The characters of generated name suffixes. There are no vowels, so that no words appear.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl State {
    /// Applies the mutating policies of the cluster. Runs after `managedFields` are computed, as in the real server, so the
    /// changes count as sent by the client.
    fn admit(&self, target: &Target, object: &mut Value) {
        if target.subresource.is_empty() {
            self.mutations.iter().for_each(|mutation| mutation.apply(&target.kind, object));
        }
    }

    /// Handles a POST.
    pub(crate) fn post(&mut self, target: &Target, mut object: Value) -> Result<Answer, Refusal> {
        let mut target = target.clone();
        in_namespace(&mut object, &target.namespace)?;
        if object["metadata"].get("resourceVersion").is_some_and(|version| version != "") {
            return Err(Refusal::new(500, "", "resourceVersion should not be set on objects to be created"));
        }
        target.name = self.name_of(&mut object);
        target.kind.decode(&mut object);
        target.booked(&self.time(), |writing| managed::update(&(target.kind.zero)(), &mut object, writing));
        self.create(&target, object).map(Answer::created)
    }

    /// The name of a new object, generated if it has a `generateName`.
    fn name_of(&mut self, object: &mut Value) -> String {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let (name, prefix) = (text("name"), text("generateName"));
        if !name.is_empty() || prefix.is_empty() {
            return name;
        }
        let mut number = self.number();
        let mut name = prefix;
        for _ in 0..5 {
            name.push(char::from(LETTERS[usize::try_from(number % 27).unwrap_or_default()]));
            number /= 27;
        }
        object["metadata"]["name"] = name.as_str().into();
        name
    }

    /// Stores a new object that is decoded and has its `managedFields`.
    pub(crate) fn create(&mut self, target: &Target, mut object: Value) -> Result<Value, Refusal> {
        let kind = &target.kind;
        self.admit(target, &mut object);
        self.check_namespace(target)?;
        check_name(kind, &target.name)?;
        if kind.status {
            if let Some(object) = object.as_object_mut() {
                object.remove("status");
            }
            if !kind.custom {
                kind.decode(&mut object); // decoding fills in the empty status of the kind
            }
        }
        let causes = kind.causes(&object, None, "");
        if !causes.is_empty() {
            return Err(Refusal::of_causes(kind, &target.name, causes));
        }
        let metadata = &mut object["metadata"];
        metadata["uid"] = self.uid().into();
        metadata["creationTimestamp"] = self.time().into();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation", "selfLink"] {
            metadata.as_object_mut().map(|metadata| metadata.remove(field));
        }
        if kind.generation != crate::kind::Generation::Never {
            metadata["generation"] = 1.into();
        }
        let resource = kind.resource();
        if let Some(there) = self.get(&resource, &target.key()) {
            let dying = there["metadata"].get("deletionTimestamp").is_some();
            return Err(Refusal::already_exists(kind.named(), &target.name, dying));
        }
        if let Some(prepare) = kind.prepare {
            prepare(&mut object, None, self.number());
        }
        if target.dry_run {
            kind.read_stored(&mut object);
            return Ok(object);
        }
        Ok(Arc::unwrap_or_clone(self.put_of(kind, &target.key(), object)))
    }

    fn check_namespace(&self, target: &Target) -> Result<(), Refusal> {
        if !target.kind.namespaced {
            return Ok(());
        }
        let named = crate::kind::Named { group: "", plural: "namespaces" };
        let namespace = self.get("namespaces", &target.namespace);
        let Some(namespace) = namespace else { return Err(Refusal::not_found(named, &target.namespace)) };
        if namespace["metadata"].get("deletionTimestamp").is_none() {
            return Ok(());
        }
        let name = &target.namespace;
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let cause = format!("namespace {name} is being terminated");
        Err(Refusal::forbidden(target.kind.named(), &target.name, &why).with(
            "causes",
            json!([{"reason": "NamespaceTerminating", "message": cause, "field": "metadata.namespace"}]),
        ))
    }

    /// Handles a PUT.
    pub(crate) fn replace(&mut self, target: &Target, mut object: Value) -> Result<Answer, Refusal> {
        let kind = &target.kind;
        check_url(&object, target)?;
        in_namespace(&mut object, &target.namespace)?;
        let old = self.get(&kind.resource(), &target.key());
        if old.is_none() && (!kind.create_on_put || !target.subresource.is_empty()) {
            return Err(Refusal::not_found(kind.named(), &target.name));
        }
        check_uid(&object, old.as_deref(), target)?;
        let Some(old) = old else {
            kind.decode(&mut object);
            target.booked(&self.time(), |writing| managed::update(&(target.kind.zero)(), &mut object, writing));
            return self.create(target, object).map(Answer::created);
        };
        kind.decode(&mut object);
        target.booked(&self.time(), |writing| managed::update(&old, &mut object, writing));
        self.update(target, &old, object).map(Answer::ok)
    }

    /// Stores a changed object that is decoded and has its `managedFields`.
    pub(crate) fn update(&mut self, target: &Target, old: &Arc<Value>, mut new: Value) -> Result<Value, Refusal> {
        let kind = &target.kind;
        let sent = new["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let stored = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if sent.is_empty() || sent == "0" {
            if !kind.unconditional {
                let message = "Invalid value: 0: must be specified for an update".to_owned();
                let cause = ("FieldValueInvalid", message, "metadata.resourceVersion");
                return Err(Refusal::invalid(&kind.group, &kind.plural, &target.name, &[cause]));
            }
        } else if sent != stored {
            return Err(Refusal::changed_meanwhile(kind.named(), &target.name));
        }
        keep(&mut new, old, target);
        self.admit(target, &mut new);
        new["metadata"]["resourceVersion"] = stored.into();
        Self::check_changes(target, old, &new)?;
        if let Some(prepare) = kind.prepare {
            prepare(&mut new, Some(old), self.number());
        }
        if target.subresource != "status" && kind.is_new_generation(old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = (generation + 1).into();
        }
        let stored = self.thin(&kind.resource(), &target.key());
        // A write of a scale removes times from `managedFields`, which counts as a change.
        let is_same = match stored.unwrap_or(old) {
            stored if target.subresource == "scale" => new == *stored,
            stored => without_times(&new, None) == without_times(stored, new["metadata"].get("resourceVersion")),
        };
        if is_same {
            return Ok((**old).clone());
        }
        let metadata = &new["metadata"];
        let ends = metadata["deletionGracePeriodSeconds"] == 0
            && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
            && metadata.get("deletionTimestamp").is_some();
        if target.dry_run {
            kind.read_stored(&mut new);
            return Ok(new);
        }
        if ends {
            self.remove(&kind.resource(), &target.key());
            return Ok(new);
        }
        Ok(Arc::unwrap_or_clone(self.put_of(kind, &target.key(), new)))
    }

    fn check_changes(target: &Target, old: &Value, new: &Value) -> Result<(), Refusal> {
        let kind = &target.kind;
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        let mut causes: Vec<(&str, String, &str)> = Vec::new();
        let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        for (field, path) in [("name", "metadata.name"), ("namespace", "metadata.namespace"), ("uid", "metadata.uid")] {
            let value = text(new, field);
            if value != text(old, field) {
                causes.push(("FieldValueInvalid", format!("Invalid value: {value:?}: field is immutable"), path));
            }
        }
        if old["metadata"].get("deletionTimestamp").is_some() {
            let list = |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let before = list(old);
            let fresh: Vec<String> =
                list(new).iter().filter(|it| !before.contains(it)).map(ToString::to_string).collect();
            if !fresh.is_empty() {
                let fresh = fresh.join(", ");
                let message = format!(
                    "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                     []string{{{fresh}}}"
                );
                causes.push(("FieldValueForbidden", message, "metadata.finalizers"));
            }
        }
        if kind.checks_twice {
            causes.extend(causes.clone());
        }
        let mut causes: Vec<Cause> =
            causes.into_iter().map(|(reason, message, field)| Cause::new(reason, field, message)).collect();
        causes.extend(kind.causes(new, Some(old), &target.subresource));
        for (pointer, path) in kind.immutable {
            let (before, value) =
                (old.pointer(pointer).unwrap_or(&Value::Null), new.pointer(pointer).unwrap_or(&Value::Null));
            if before != value {
                causes.push(Cause::invalid(path, &value.to_string(), "field is immutable"));
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(Refusal::of_causes(kind, name, causes)) }
    }
}

/// Checks that a PUT targets exactly the stored object.
fn check_uid(object: &Value, old: Option<&Value>, target: &Target) -> Result<(), Refusal> {
    let sent = object["metadata"]["uid"].as_str().unwrap_or_default();
    let uid = old.and_then(|old| old["metadata"]["uid"].as_str()).unwrap_or_default();
    if sent.is_empty() || sent == uid {
        return Ok(());
    }
    let kind = &target.kind;
    let group = if kind.custom { format!("{}/", kind.group) } else { String::new() };
    let folder = if kind.plural == "services" { "services/specs" } else { &kind.plural };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{folder}/{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {sent}, UID in object meta: {uid}",
        target.key()
    );
    Err(Refusal::conflict(kind.named(), &target.name, &why))
}

/// Restores the fields that this endpoint cannot change.
fn keep(new: &mut Value, old: &Value, target: &Target) {
    let kind = &target.kind;
    let mut restore = |pointer: &str| restore(new, old, pointer);
    if target.subresource == "status" {
        if kind.custom {
            let status = new.get("status").cloned();
            let entries = new.pointer("/metadata/managedFields").cloned();
            *new = old.clone();
            set(new, "/status", status);
            set(new, "/metadata/managedFields", entries);
            return;
        }
        kind.status_keeps.iter().for_each(|pointer| restore(pointer));
    } else if kind.status {
        restore("/status");
    }
    for field in ["generation", "creationTimestamp"] {
        restore(&format!("/metadata/{field}"));
    }
    // A write can neither start nor undo a deletion.
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        restore(&format!("/metadata/{field}"));
    }
    if new["metadata"]["uid"].as_str().is_none_or(str::is_empty) {
        restore_uid(new, old);
    }
}

fn restore_uid(new: &mut Value, old: &Value) {
    restore(new, old, "/metadata/uid");
}

fn restore(new: &mut Value, old: &Value, pointer: &str) {
    set(new, pointer, old.pointer(pointer).cloned());
}

/// Sets or removes a field of the object or of its metadata.
fn set(object: &mut Value, pointer: &str, value: Option<Value>) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    let Some(Value::Object(parent)) = object.pointer_mut(parent) else { return };
    match value {
        Some(value) => parent.insert(name.to_owned(), value),
        None => parent.remove(name),
    };
}

/// The object without the fields that every write changes, even one without effect.
fn without_times(object: &Value, version: Option<&Value>) -> Value {
    let mut object = object.clone();
    if let Some(version) = version {
        object["metadata"]["resourceVersion"] = version.clone(); // storing the object assigns the next version
    }
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        set(entry, "/time", None);
    }
    object
}

pub(crate) fn in_namespace(object: &mut Value, namespace: &str) -> Result<(), Refusal> {
    let metadata = crate::defaults::child(object, "metadata");
    let sent = metadata["namespace"].as_str().unwrap_or_default();
    if !sent.is_empty() && sent != namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if !namespace.is_empty() {
        metadata["namespace"] = namespace.into();
    }
    Ok(())
}

/// Checks that the body and the path name the same object.
pub(crate) fn check_url(object: &Value, target: &Target) -> Result<(), Refusal> {
    let (url, name) = (&target.name, object["metadata"]["name"].as_str().unwrap_or_default());
    if name.is_empty() {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({url} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != url {
        let message = format!("the name of the object ({name}) does not match the name on the URL ({url})");
        return Err(Refusal::bad_request(message));
    }
    Ok(())
}

fn check_name(kind: &Kind, name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        let message = "Required value: name or generateName is required".to_owned();
        let cause = ("FieldValueRequired", message, "metadata.name");
        return Err(Refusal::invalid(&kind.group, &kind.kind, name, &[cause]));
    }
    let good = |part: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        ends(part.chars().next())
            && ends(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if name.len() > 253 || !name.split('.').all(good) {
        let message = format!(
            "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
             characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
             used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        );
        return Err(Refusal::invalid(
            &kind.group,
            &kind.kind,
            name,
            &[("FieldValueInvalid", message, "metadata.name")],
        ));
    }
    Ok(())
}
