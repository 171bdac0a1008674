//! What a release says about its image and its chart, in the form of in-toto: that they are ours, and how they came to be. With a
//! signature, others can believe it.

use std::collections::BTreeSet;

use anyhow::Result;
use bytes::Bytes;
use images::Digest;
use images::tools::Tool;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Plan, Ready};

/// The media type of a statement without a signature.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";
/// The type of a statement that says nothing but that its signer knows the subject. `cosign verify` looks for it.
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// The type of a statement on how the subject came to be.
pub const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
/// What `cargo xtask release` does, by which readers know what the parameters mean.
const BUILD_TYPE: &str = "urn:operators:cargo-xtask-release:v1";

/// A statement about things with these digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The type of what it says.
    pub predicate_type: &'static str,
    /// The text, in JSON. The same statement always has the same text.
    pub content: Bytes,
    subject: Digest,
}

/// Something that a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// A name for readers. Only the digest counts.
    pub name: String,
    /// Its digest.
    pub digest: Digest,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: Vec<Value>,
    predicate_type: &'static str,
    predicate: Value,
}

impl Statement {
    /// States that the signer knows this digest. The subject has no name, as in cosign's own statements.
    pub fn signature(subject: &Digest) -> Result<Self> {
        Self::new(SIGNED, subject, vec![json!({"digest": {"sha256": subject.hex()}})], json!({}))
    }

    /// States how these subjects were built, and with which tools. [`Self::subject`] names the first of them.
    pub fn provenance(subjects: &[Subject], plan: &Plan, ready: &Ready, tools: &BTreeSet<&Tool>) -> Result<Self> {
        let named = |subject: &Subject| json!({"name": subject.name, "digest": {"sha256": subject.digest.hex()}});
        Self::new(
            PROVENANCE,
            &subjects[0].digest,
            subjects.iter().map(named).collect(),
            plan.builder.predicate(plan, ready, tools),
        )
    }

    fn new(predicate_type: &'static str, subject: &Digest, subjects: Vec<Value>, predicate: Value) -> Result<Self> {
        let kind = "https://in-toto.io/Statement/v1";
        let document = Document { kind, subject: subjects, predicate_type, predicate };
        Ok(Self { predicate_type, content: serde_json::to_vec(&document)?.into(), subject: subject.clone() })
    }

    /// The digest of something that the statement is about.
    pub fn subject(&self) -> &Digest {
        &self.subject
    }
}

/// Who builds, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Builder {
    /// The address that stands for the machines and those who rule them.
    id: String,
    /// The address of this run, where its log is.
    run: Option<String>,
    /// The address of the repository.
    source: Option<String>,
}

impl Builder {
    /// The builder that these variables of the environment describe: a run of GitHub Actions, or else a machine of a maintainer.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        Self::of_repository(env!("CARGO_PKG_REPOSITORY"), variable)
    }

    /// The same, where Cargo.toml has this address of the repository; it may be empty. A run of GitHub Actions knows its repository.
    pub fn of_repository(address: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        let workflow = || {
            let (server, repository) = (variable("GITHUB_SERVER_URL")?, variable("GITHUB_REPOSITORY")?);
            let repository = format!("{server}/{repository}");
            let (run, attempt) = (variable("GITHUB_RUN_ID")?, variable("GITHUB_RUN_ATTEMPT")?);
            let machines = variable("RUNNER_ENVIRONMENT").unwrap_or_else(|| "self-hosted".to_owned());
            Some(Self {
                id: format!("https://github.com/actions/runner/{machines}"),
                run: Some(format!("{repository}/actions/runs/{run}/attempts/{attempt}")),
                source: Some(format!("git+{repository}")),
            })
        };
        workflow().unwrap_or_else(|| Self {
            id: "urn:operators:maintainer".to_owned(),
            run: None,
            source: (!address.is_empty()).then(|| format!("git+{address}")),
        })
    }

    /// The address of the repository for readers, below which the releases have their pages; `None` if no address is known.
    pub(crate) fn address(&self) -> Option<&str> {
        self.source.as_deref()?.strip_prefix("git+")
    }

    fn predicate(&self, plan: &Plan, ready: &Ready, tools: &BTreeSet<&Tool>) -> Value {
        let platforms: Vec<_> = plan.platforms.iter().map(ToString::to_string).collect();
        let mut source = json!({"name": "source", "digest": {"gitCommit": ready.commit}});
        let mut details = json!({"builder": {"id": self.id}});
        if let Some(address) = &self.source {
            source["uri"] = json!(format!("{address}@{}", ready.commit));
        }
        if let Some(run) = &self.run {
            details["metadata"] = json!({"invocationId": run});
        }
        let lock = json!({"name": "Cargo.lock", "digest": {"sha256": ready.lock.hex()}});
        let tools = tools.iter().map(|tool| json!({"name": tool.name, "uri": tool.uri}));
        let dependencies: Vec<_> = [source, lock].into_iter().chain(tools).collect();
        json!({
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "version": plan.version.to_string(),
                    "registry": plan.registry.to_string(),
                    "platforms": platforms,
                    "profile": plan.profile,
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": details,
        })
    }
}
