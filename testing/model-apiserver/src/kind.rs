//! Kinds: the server's description of each kind of object.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::{
    cause::Cause,
    scale_paths::ScalePaths,
    schema::Schema,
    shape::{Rest, Shape},
};

/// A kind of object that the server serves.
///
/// [`Kind::custom`] and its builders make a kind without a schema. [`Model::install`](crate::Model::install) makes kinds from a
/// `CustomResourceDefinition`. Built-in kinds exist from the start.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is independent")]
#[expect(clippy::struct_field_names, reason = "the kind of a kind is its name in objects")]
pub struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Fields beside name and namespace by which a field selector can select, such as `spec.size`.
    pub(crate) selectable: Vec<String>,
    pub(crate) shape: Arc<Shape>,
    /// Defaults and normalises a decoded request body.
    pub(crate) normalize: Normalize,
    pub(crate) generation: Generation,
    /// Whether a PUT may omit the resource version.
    pub(crate) unconditional: bool,
    /// Whether a PUT creates a missing object.
    pub(crate) create_on_put: bool,
    /// Whether a DELETE without options orphans dependents.
    pub(crate) orphans: bool,
    /// Whether the answer to a DELETE is the object.
    pub(crate) returns_deleted: bool,
    /// Fields that a write of the status cannot change.
    pub(crate) status_keeps: &'static [&'static str],
    /// An empty object of this kind.
    pub(crate) zero: fn() -> Value,
    /// Fills in the fields that the server sets after it has computed ownership, so that no manager owns them.
    pub(crate) prepare: Option<Prepare>,
    /// Rules of a built-in kind for a new object, and for a change from an old to a new one.
    pub(crate) check: fn(&Value, Option<&Value>) -> Vec<Cause>,
    /// Immutable fields, with their names in refusals.
    pub(crate) immutable: &'static [(&'static str, &'static str)],
    /// Whether the kind validates changes of the metadata too, so that refusals list them twice.
    pub(crate) checks_twice: bool,
    /// Whether this is a custom resource. Lists and statuses of custom resources work a little differently.
    pub(crate) custom: bool,
}

/// A kind as messages name it: `deployments.apps`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) group: &'a str,
    pub(crate) plural: &'a str,
}

impl Named<'_> {
    pub(crate) fn qualified(self, resource: &str) -> String {
        if self.group.is_empty() { resource.to_owned() } else { format!("{resource}.{}", self.group) }
    }
}

/// Fills in fields that no manager owns. The arguments are the object, the old object of an update, and an unused number.
pub(crate) type Prepare = fn(&mut Value, Option<&Value>, u64);

/// Defaults and normalises an object when it is decoded.
#[derive(Debug, Clone)]
pub(crate) enum Normalize {
    Builtin(fn(&mut Value)),
    Schema(Arc<Schema>),
    Function(fn(&mut Value)),
}

/// The changes that increase `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind has no generation.
    Never,
    Spec,
    SpecAndAnnotations,
    /// Every change except of metadata, and of a status that has its own endpoint.
    All,
}

impl Kind {
    /// A namespaced custom kind without a schema and without subresources.
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
            selectable: Vec::new(),
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
            check: |_, _| Vec::new(),
            immutable: &[],
            checks_twice: true,
            custom: true,
        }
    }

    /// Makes the kind cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Adds the `status` subresource.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    /// Adds the `scale` subresource; paths are JSON pointers.
    #[must_use]
    pub fn with_scale(mut self, spec_replicas: &str, status_replicas: &str, selector: Option<&str>) -> Self {
        let selector = selector.map(str::to_owned);
        self.scale = Some(ScalePaths { spec: spec_replicas.to_owned(), status: status_replicas.to_owned(), selector });
        self
    }

    /// Sets the function that fills in defaults.
    #[must_use]
    pub fn with_defaults(mut self, defaults: fn(&mut Value)) -> Self {
        self.normalize = Normalize::Function(defaults);
        self
    }

    /// The API version: `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The resource: `deployments.apps`, or `pods` for the core group.
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The group in refusals. Events are stored in the core group.
    pub(crate) fn refused_group(&self) -> &str {
        if !self.custom && self.group == "events.k8s.io" { "" } else { &self.group }
    }

    pub(crate) fn named(&self) -> Named<'_> {
        Named { group: &self.group, plural: &self.plural }
    }

    /// Decodes an object: fills in defaults, prunes unknown fields, and normalises values as the server does.
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

    /// Decodes the result of an apply. Here nulls stay, and validation refuses them. An apply that removes the last label stores
    /// an empty map.
    pub(crate) fn decode_applied(&self, object: &mut Value) {
        if let Normalize::Schema(schema) = &self.normalize {
            schema.default(object);
        } else {
            self.decode(object);
        }
    }

    /// Validates an object against the schema. `old` is the object that it replaces, if any.
    pub(crate) fn causes(&self, new: &Value, old: Option<&Value>, subresource: &str) -> Vec<Cause> {
        match &self.normalize {
            Normalize::Schema(schema) => schema.causes(self.scale.as_ref(), new, old, subresource == "status"),
            _ => (self.check)(new, old),
        }
    }

    /// The places at which an object does not match the schema. Duplicate items count only for applied objects.
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

    /// Converts the stored form of an object to the read form.
    pub(crate) fn read_stored(&self, object: &mut Value) {
        if let Normalize::Schema(schema) = &self.normalize {
            schema.default(object);
            crate::defaults::tidy_metadata(object);
        }
    }

    /// Whether two objects differ in a way that increases the generation.
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
