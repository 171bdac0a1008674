//! Selects the handler of each request.

use serde_json::json;

use crate::{
    delete::Options,
    refusal::Refusal,
    request::{RequestInfo, Verb},
    state::State,
    write::{Answer, Target, body},
};

impl State {
    /// Handles every request except watches.
    pub(crate) fn handle(&mut self, request: &RequestInfo) -> Result<Answer, Refusal> {
        if request.path == "/version" {
            return Ok(Answer::ok(json!({
                "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
            })));
        }
        let unserved = || self.unserved(request);
        let kind = self.kind(&request.group, &request.version, &request.plural).ok_or_else(unserved)?;
        let many = matches!(request.verb, Verb::List | Verb::Watch);
        let misplaced =
            if kind.namespaced { request.namespace.is_empty() && !many } else { !request.namespace.is_empty() };
        if misplaced && request.verb == Verb::Create {
            return Err(Refusal::method_not_allowed());
        }
        if misplaced {
            return Err(unserved());
        }
        let target = Target::of(kind.clone(), request);
        match (&*request.subresource, &kind.scale) {
            ("", _) => {}
            ("status", _) if kind.status => {}
            ("scale", Some(scale)) => return self.scale(&target, scale, request),
            _ => return Err(unserved()),
        }
        match request.verb {
            Verb::Get => self.read(&target),
            Verb::List => self.list(&kind, request),
            Verb::Create if !request.name.is_empty() => Err(Refusal::method_not_allowed()),
            Verb::Create => self.post(&target, body(request, &kind)?),
            Verb::Update => self.replace(&target, body(request, &kind)?),
            Verb::Patch => self.patch(&target, request),
            Verb::Delete if !request.subresource.is_empty() => Err(Refusal::method_not_allowed()),
            Verb::Delete => self.delete(&target, &Options::read(request)?),
            Verb::DeleteCollection => self.delete_all(&target, request),
            Verb::Watch => Err(self.unserved(request)),
        }
    }

    /// The refusal for an unknown path: a `Status` within the groups of built-in kinds, else a line of text.
    fn unserved(&self, request: &RequestInfo) -> Refusal {
        let builtin = |kind: &&std::sync::Arc<crate::Kind>| !kind.custom && kind.version == request.version;
        if self.kinds.iter().filter(builtin).any(|kind| kind.group == request.group) {
            Refusal::no_such_resource()
        } else {
            Refusal::no_such_path()
        }
    }
}
