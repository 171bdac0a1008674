//! What the server knows about a kind of objects.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    refusal::Named,
    schema::Schema,
    shape::{Rest, Shape},
    validate::Cause,
};

/// A kind of objects, as the server serves it.
///
/// [`Kind::custom`] and its builders make one without a definition; [`Model::install`](crate::Model::install) makes one
/// from a `CustomResourceDefinition`. The built-in ones are there from the start.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[expect(clippy::struct_field_names, reason = "the kind of a kind is its name in objects")]
pub struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    pub(crate) shape: Arc<Shape>,
    /// Defaulting, and whatever else decoding does to a request body.
    pub(crate) normalize: Normalize,
    pub(crate) generation: Generation,
    /// Whether a PUT may leave out the resource version.
    pub(crate) unconditional: bool,
    /// Whether a PUT makes an object that is not there.
    pub(crate) create_on_put: bool,
    /// Whether a DELETE that says nothing orphans dependents.
    pub(crate) orphans: bool,
    /// Whether a DELETE answers with the object.
    pub(crate) returns_deleted: bool,
    /// What a write of the status cannot touch.
    pub(crate) status_keeps: &'static [&'static str],
    /// What an object of this kind is with nothing in it.
    pub(crate) zero: fn() -> Value,
    /// What the server fills in after ownership is decided: nobody owns it.
    pub(crate) prepare: Option<Prepare>,
    /// Fields that cannot be changed, and what refusals call them.
    pub(crate) immutable: &'static [(&'static str, &'static str)],
    /// Whether changes of the metadata are checked by the kind too, and so told twice.
    pub(crate) checks_twice: bool,
    /// A custom resource: lists and statuses work a little differently.
    pub(crate) custom: bool,
}

/// Fills in what nobody owns; the old object if this is an update, and a number that was not used before.
pub(crate) type Prepare = fn(&mut Value, Option<&Value>, u64);

/// What decoding does to an object.
#[derive(Debug, Clone)]
pub(crate) enum Normalize {
    Builtin(fn(&mut Value)),
    Schema(Arc<Schema>),
    Function(fn(&mut Value)),
}

/// When `metadata.generation` goes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// There is none.
    Never,
    Spec,
    SpecAndAnnotations,
    /// Everything but metadata, and the status if it has its own endpoint.
    All,
}

/// Where the `scale` subresource reads and writes, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scale {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}

impl Kind {
    /// A custom kind without a schema, in namespaces, without subresources.
    pub fn custom(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        let fields = BTreeMap::from([
            ("apiVersion".to_owned(), Shape::Plain),
            ("kind".to_owned(), Shape::Plain),
            ("metadata".to_owned(), Shape::metadata()),
        ]);
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            namespaced: true,
            status: false,
            scale: None,
            shape: Arc::new(Shape::custom(fields, Rest::Free)),
            normalize: Normalize::Function(|_| {}),
            generation: Generation::All,
            unconditional: false,
            create_on_put: false,
            orphans: false,
            returns_deleted: false,
            status_keeps: &[],
            zero: || Value::Object(serde_json::Map::new()),
            prepare: None,
            immutable: &[],
            checks_twice: true,
            custom: true,
        }
    }

    /// Objects live outside of namespaces.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// The status has an endpoint of its own.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    /// Adds the `scale` subresource; paths are JSON pointers.
    #[must_use]
    pub fn with_scale(mut self, spec_replicas: &str, status_replicas: &str, selector: Option<&str>) -> Self {
        let selector = selector.map(str::to_owned);
        self.scale = Some(Scale { spec: spec_replicas.to_owned(), status: status_replicas.to_owned(), selector });
        self
    }

    /// What decoding fills in.
    #[must_use]
    pub fn with_defaults(mut self, defaults: fn(&mut Value)) -> Self {
        self.normalize = Normalize::Function(defaults);
        self
    }

    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `deployments.apps`, or `pods` for the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The group that refusals name: events are kept as those of the core group.
    pub(crate) fn refused_group(&self) -> &str {
        if !self.custom && self.group == "events.k8s.io" { "" } else { &self.group }
    }

    pub(crate) fn named(&self) -> Named<'_> {
        Named { group: &self.group, plural: &self.plural }
    }

    /// Decodes: defaults, prunes, and writes as the server writes.
    pub(crate) fn decode(&self, object: &mut Value) {
        match &self.normalize {
            Normalize::Builtin(defaults) => {
                crate::defaults::tidy(object, &self.shape);
                defaults(object);
            }
            Normalize::Schema(schema) => {
                schema.prune(object);
                schema.without_nulls(object);
                schema.default(object);
                crate::defaults::tidy_metadata(object);
            }
            Normalize::Function(defaults) => {
                defaults(object);
                crate::defaults::tidy_metadata(object);
            }
        }
        object["apiVersion"] = self.api_version().into();
        object["kind"] = self.kind.as_str().into();
    }

    /// The same for what an apply has made, in which nulls stay and are refused. An apply that takes the last label away stores an
    /// empty map.
    pub(crate) fn decode_applied(&self, object: &mut Value) {
        if let Normalize::Schema(schema) = &self.normalize {
            schema.default(object);
        } else {
            self.decode(object);
        }
    }

    /// What a schema has against an object that replaces another one, if it does.
    pub(crate) fn causes(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<Cause> {
        match &self.normalize {
            Normalize::Schema(schema) => schema.causes(self.scale.as_ref(), new, old, subresource == "status"),
            _ => Vec::new(),
        }
    }

    /// Where an object is not of the schema. Only what is applied may not have items twice.
    pub(crate) fn untyped(&self, object: &Value, is_stored: bool) -> Vec<String> {
        match &self.normalize {
            Normalize::Schema(schema) => schema.untyped(object, is_stored),
            _ if is_stored => Vec::new(),
            _ => self
                .shape
                .undeclared(object)
                .map(|path| format!("{path}: field not declared in schema"))
                .into_iter()
                .collect(),
        }
    }

    /// Makes of an object as it is stored the object as it is read.
    pub(crate) fn read_stored(&self, object: &mut Value) {
        if let Normalize::Schema(schema) = &self.normalize {
            schema.default(object);
            crate::defaults::tidy_metadata(object);
        }
    }

    /// Whether the main part of two objects differs so that the generation goes up.
    pub(crate) fn is_new_generation(&self, old: &Value, new: &Value) -> bool {
        match self.generation {
            Generation::Never => false,
            Generation::Spec => old.get("spec") != new.get("spec"),
            Generation::SpecAndAnnotations => {
                let annotations = "/metadata/annotations";
                old.get("spec") != new.get("spec") || old.pointer(annotations) != new.pointer(annotations)
            }
            Generation::All => {
                let main = |object: &Value| {
                    let mut main = object.as_object().cloned().unwrap_or_default();
                    main.remove("metadata");
                    if self.status {
                        main.remove("status");
                    }
                    main
                };
                main(old) != main(new)
            }
        }
    }
}
