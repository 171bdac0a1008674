//! The operations on a registry. Each can be repeated: what the registry has already is not sent again.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderValue, StatusCode};
use images::Digest;
use images::reference::Repository;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use tokio::sync::Mutex;

use crate::retry::{Verdict, status, verdict};
use crate::{Credentials, Retry};

/// The manifests that this client takes.
const MANIFESTS: &[&str] =
    &[OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];

/// The time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The time from the beginning of a request to the head of its answer, and the longest silence after that. A layer of the image takes
/// minutes on a slow line.
const ANSWER: Duration = Duration::from_mins(10);

/// How to reach a registry.
#[derive(Clone, Default)]
pub struct Options {
    /// Where to look for the user's password.
    pub credentials: Credentials,
    /// Whether to speak HTTP without encryption.
    pub plain_http: PlainHttp,
    /// Certificates in PEM of a registry with an authority of its own, in addition to those of the system.
    pub authorities: Option<Vec<u8>>,
    /// What to do about temporary errors.
    pub retry: Retry,
    /// Gets the text of each error that the client retries.
    pub notice: Option<fn(&str)>,
}

/// Whether to speak HTTP without encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlainHttp {
    /// Only with a registry on this machine: `localhost`, or an address such as 127.0.0.1.
    #[default]
    Loopback,
    /// With every registry. Passwords then cross the network readable.
    Allowed,
    /// Never, for a registry on this machine that has a certificate.
    Never,
}

/// A manifest's name in its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// A tag, which can move to another manifest.
    Tag(String),
    /// The digest of the manifest.
    Digest(Digest),
}

/// What a push did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Nothing: the registry had it already.
    Existed,
    /// The registry took it from another of its repositories, without an upload.
    Mounted,
    /// It was sent.
    Uploaded,
}

/// A manifest from a registry. Its content has this digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The digest of the content.
    pub digest: Digest,
    /// The content, byte for byte.
    pub content: Bytes,
}

/// A client of one registry.
pub struct Client {
    registry: String,
    options: Options,
    auth: RegistryAuth,
    /// Sends a blob in one request, as most registries prefer it.
    whole: oci_client::Client,
    /// The repositories for which there has been a token.
    authorized: Mutex<BTreeSet<(String, RegistryOperation)>>,
}

impl Client {
    /// A client of `registry`, a host with an optional port such as `ghcr.io`. Sends no request yet.
    ///
    /// # Errors
    ///
    /// If the user's credentials or the authorities cannot be read.
    pub fn new(registry: &str, options: Options) -> Result<Self> {
        drop(rustls::crypto::ring::default_provider().install_default()); // fails if it is installed already
        let auth = options.credentials.of(registry)?;
        let whole = oci_client::Client::try_from(configuration(registry, &options, true))?;
        Ok(Self { registry: registry.to_owned(), options, auth, whole, authorized: Mutex::default() })
    }

    /// Puts a blob into the repository `to`. If the repository `from` of the same registry has it, the
    /// client lets the registry take it from there.
    pub async fn push_blob(&self, to: &Repository, blob: &Bytes, from: Option<&Repository>) -> Result<Pushed> {
        let digest = Digest::of(blob);
        let name = self.reference(to, &Name::Digest(digest.clone()))?;
        let source = from.map(|from| self.reference(from, &Name::Digest(digest.clone()))).transpose()?;
        let operations = [RegistryOperation::Pull, RegistryOperation::Push];
        self.retrying(&name, &operations, || self.put_blob(&name, &digest, blob, source.as_ref()))
            .await
            .with_context(|| format!("could not push the blob {digest} to {to}"))
    }

    /// Puts a manifest or an index into the repository, under a tag or only under its digest. What it names has to be there
    /// already.
    pub async fn push_manifest(&self, to: &Repository, name: &Name, kind: &str, content: &Bytes) -> Result<Pushed> {
        let digest = Digest::of(content);
        if let Name::Digest(name) = name {
            ensure!(*name == digest, "the manifest for {to} has the digest {digest} instead of {name}");
        }
        let kind = HeaderValue::from_str(kind).context("the type of a manifest")?;
        // If the answer has no Location, as that of Amazon ECR, the library takes the end of the URL for a tag. With a digest for the
        // tag, the URL is the same as with a digest.
        let tag = match name {
            Name::Tag(tag) => tag.clone(),
            Name::Digest(digest) => digest.to_string(),
        };
        let reference = self.reference(to, &Name::Tag(tag))?;
        let operations = [RegistryOperation::Pull, RegistryOperation::Push];
        let put = || async {
            if self.present(&reference).await?.is_some_and(|present| present == digest.to_string()) {
                return Ok(Pushed::Existed);
            }
            self.whole.push_manifest_raw(&reference, content.clone(), kind.clone()).await?;
            Ok(Pushed::Uploaded)
        };
        self.retrying(&reference, &operations, put).await.with_context(|| format!("could not push {to}{name}"))
    }

    /// The digest of the manifest with this name; `None` if there is none.
    pub async fn digest(&self, of: &Repository, name: &Name) -> Result<Option<Digest>> {
        let reference = self.reference(of, name)?;
        let found = self.retrying(&reference, &[RegistryOperation::Pull], || self.present(&reference)).await;
        let found = found.with_context(|| format!("could not ask for {of}{name}"))?;
        found.map(|digest| Digest::parse(&digest)).transpose()
    }

    /// Fetches the manifest with this name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Also if the content does not have the digest in its name, or in the registry's answer.
    pub async fn manifest(&self, of: &Repository, name: &Name) -> Result<Option<Manifest>> {
        let reference = self.reference(of, name)?;
        let pull = || async {
            let pulled = self.whole.pull_manifest_raw(&reference, &self.auth, MANIFESTS).await;
            present(pulled.map(|(content, _)| content))
        };
        let content = self.retrying(&reference, &[RegistryOperation::Pull], pull).await;
        let content = content.with_context(|| format!("could not pull {of}{name}"))?;
        Ok(content.map(|content| Manifest { digest: Digest::of(&content), content }))
    }

    /// The digests of the manifests that name this one as their subject, such as bills of materials. Registries without the API for
    /// this list them in an index under a tag, which this reads too.
    pub async fn referrers(&self, of: &Repository, subject: &Digest) -> Result<Vec<Digest>> {
        let reference = self.reference(of, &Name::Digest(subject.clone()))?;
        let pull = || self.whole.pull_referrers(&reference, None);
        let index = self.retrying(&reference, &[RegistryOperation::Pull], pull).await;
        let index = index.with_context(|| format!("could not list what refers to {of}@{subject}"))?;
        index.manifests.iter().map(|entry| Digest::parse(&entry.digest)).collect()
    }

    /// Fetches the blob with this digest and this length in bytes.
    ///
    /// # Errors
    ///
    /// Also if the content has another digest or another length.
    pub async fn blob(&self, of: &Repository, digest: &Digest, size: u64) -> Result<Bytes> {
        let reference = self.reference(of, &Name::Digest(digest.clone()))?;
        let pull = || async {
            let mut pieces = self.whole.pull_blob_stream(&reference, digest.to_string().as_str()).await?.stream;
            let mut blob = Vec::new();
            while let Some(piece) = pieces.try_next().await? {
                blob.extend_from_slice(&piece);
                if blob.len() as u64 > size {
                    break; // the caller refuses it
                }
            }
            Ok(Bytes::from(blob))
        };
        let what = || format!("could not pull the blob {digest} of {of}");
        let blob = self.retrying(&reference, &[RegistryOperation::Pull], pull).await.with_context(what)?;
        ensure!(blob.len() as u64 == size, "the blob {digest} of {of} does not have {size} bytes");
        Ok(blob)
    }

    async fn put_blob(
        &self,
        name: &Reference,
        digest: &Digest,
        blob: &Bytes,
        source: Option<&Reference>,
    ) -> Result<Pushed, OciDistributionError> {
        let digest = digest.to_string();
        if self.whole.blob_exists(name, &digest).await? {
            return Ok(Pushed::Existed);
        }
        if let Some(source) = source {
            match self.whole.mount_blob(name, source, &digest).await {
                Ok(()) => return Ok(Pushed::Mounted),
                Err(error) if verdict(&error) == Verdict::Later => return Err(error),
                Err(_) => {} // the registry does not mount, or this user may not read the other repository
            }
        }
        let uploaded = match self.whole.push_blob(name, blob.clone(), &digest).await {
            Err(error) if goes_only_in_pieces(&error) => {
                let pieces = configuration(&self.registry, &self.options, false);
                let pieces = oci_client::Client::try_from(pieces)?;
                pieces.auth(name, &self.auth, RegistryOperation::Push).await?;
                pieces.push_blob(name, blob.clone(), &digest).await
            }
            uploaded => uploaded,
        };
        uploaded.map(|_| Pushed::Uploaded)
    }

    /// The digest of the manifest with this name, without its content.
    async fn present(&self, reference: &Reference) -> Result<Option<String>, OciDistributionError> {
        present(self.whole.fetch_manifest_digest(reference, &self.auth).await)
    }

    /// Performs a request until it succeeds, fails for good, or has failed too often.
    async fn retrying<T>(
        &self,
        reference: &Reference,
        operations: &[RegistryOperation],
        request: impl AsyncFn() -> Result<T, OciDistributionError>,
    ) -> Result<T> {
        let (mut failed, mut renew, mut renewed) = (0, false, false);
        loop {
            let outcome = match self.authorize(reference, operations, renew).await {
                Ok(()) => request().await,
                Err(error) => Err(error),
            };
            let error = match outcome {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            failed += 1;
            renew = verdict(&error) == Verdict::Unauthorized && !renewed;
            renewed |= renew;
            match verdict(&error) {
                Verdict::Later if failed < self.options.retry.attempts => {
                    let pause = self.options.retry.pause(failed);
                    self.notify(&format!("{}; trying again in {:.1} s", explained(&error), pause.as_secs_f64()));
                    tokio::time::sleep(pause).await;
                }
                Verdict::Unauthorized if renew => {}
                Verdict::Unauthorized => {
                    let advice = format!("{} refuses these credentials: `docker login {0}`", self.registry);
                    return Err(error).context(advice);
                }
                Verdict::Later | Verdict::Never => return Err(anyhow::Error::msg(explained(&error))),
            }
        }
    }

    /// Gets a token for the repository, if the registry wants one. The errors would be lost if the library did it in passing.
    async fn authorize(
        &self,
        reference: &Reference,
        operations: &[RegistryOperation],
        renew: bool,
    ) -> Result<(), OciDistributionError> {
        let mut authorized = self.authorized.lock().await;
        for operation in operations {
            let key = (reference.repository().to_owned(), *operation);
            if renew || !authorized.contains(&key) {
                self.whole.auth(reference, &self.auth, *operation).await?;
                authorized.insert(key);
            }
        }
        Ok(())
    }

    fn notify(&self, text: &str) {
        if let Some(notice) = self.options.notice {
            notice(text);
        }
    }

    fn reference(&self, repository: &Repository, name: &Name) -> Result<Reference> {
        let Repository { registry, path } = repository;
        ensure!(*registry == self.registry, "{repository} is not on {}", self.registry);
        Ok(match name {
            Name::Tag(tag) => Reference::with_tag(registry.clone(), path.clone(), tag.clone()),
            Name::Digest(digest) => Reference::with_digest(registry.clone(), path.clone(), digest.to_string()),
        })
    }
}

impl fmt::Display for Name {
    /// As it follows the name of the repository: `:1.2.3` or `@sha256:…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag(tag) => write!(f, ":{tag}"),
            Self::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

/// The configuration of a client that sends a blob in one request, or in pieces of 4 MiB, for a registry behind a proxy with a
/// limit.
fn configuration(registry: &str, options: &Options, whole: bool) -> ClientConfig {
    let authority = |pem: &Vec<u8>| Certificate { encoding: CertificateEncoding::Pem, data: pem.clone() };
    ClientConfig {
        protocol: protocol(registry, options.plain_http),
        use_monolithic_push: whole,
        extra_root_certificates: options.authorities.iter().map(authority).collect(),
        connect_timeout: Some(CONNECT),
        read_timeout: Some(ANSWER),
        user_agent: concat!("registry-client/", env!("CARGO_PKG_VERSION")),
        ..ClientConfig::default()
    }
}

fn protocol(registry: &str, plain_http: PlainHttp) -> ClientProtocol {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match plain_http {
        PlainHttp::Allowed => ClientProtocol::Http,
        PlainHttp::Loopback if loopback => ClientProtocol::Http,
        PlainHttp::Loopback | PlainHttp::Never => ClientProtocol::Https,
    }
}

/// `None` if the registry says that there is nothing of this name.
fn present<T>(answer: Result<T, OciDistributionError>) -> Result<Option<T>, OciDistributionError> {
    let unknown = [OciErrorCode::ManifestUnknown, OciErrorCode::NameUnknown, OciErrorCode::NotFound];
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if status(&error) == Some(StatusCode::NOT_FOUND) => Ok(None),
        Err(OciDistributionError::RegistryError { envelope, .. })
            if envelope.errors.iter().any(|error| unknown.contains(&error.code)) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether the blob is too large for one request, or empty, which the library sends only as no pieces.
fn goes_only_in_pieces(error: &OciDistributionError) -> bool {
    let too_large = status(error) == Some(StatusCode::PAYLOAD_TOO_LARGE);
    too_large || matches!(error, OciDistributionError::PushNoDataError)
}

/// The error with its causes, which the library's own text omits for broken connections.
fn explained(error: &OciDistributionError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_without_encryption() {
        let is_plain = |registry, plain| matches!(protocol(registry, plain), ClientProtocol::Http);
        for registry in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3"] {
            assert!(is_plain(registry, PlainHttp::Loopback), "{registry}");
            assert!(!is_plain(registry, PlainHttp::Never), "{registry}");
        }
        for registry in ["ghcr.io", "localhost.example.com", "10.0.0.1:5000", "127.0.0.1.example.com:80"] {
            assert!(!is_plain(registry, PlainHttp::Loopback), "{registry}");
            assert!(is_plain(registry, PlainHttp::Allowed), "{registry}");
        }
    }
}
