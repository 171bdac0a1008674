//! The operations on a registry. Each can be repeated: what the registry has already is not sent again.

mod direct;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::{HeaderValue, Method, StatusCode};
use images::Digest;
use images::reference::Repository;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{
    IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
    OciImageIndex,
};
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::RegistryTokenType;
use oci_client::{Reference, RegistryOperation};
use tokio::sync::Mutex;

use crate::error::Error;
use crate::retry::{Verdict, status};
use crate::{Credentials, Retry, token};

/// The manifests that this client takes.
const MANIFESTS: &[&str] =
    &[OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_LIST_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];

/// The time for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The time from the beginning of a request to the head of its answer, and the longest silence after that. A layer of the image takes
/// minutes on a slow line.
const ANSWER: Duration = Duration::from_mins(10);
/// The time for a request on which nothing depends.
const COURTESY: Duration = Duration::from_secs(10);
/// The name of this client.
const AGENT: &str = concat!("registry-client/", env!("CARGO_PKG_VERSION"));

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
    /// Sends the requests that the library lacks.
    direct: reqwest::Client,
    /// What the registry wants from this user, for each repository for which the client has found it out.
    tokens: Mutex<Tokens>,
}

/// The token or the password; `None` if the registry wants none.
type Tokens = BTreeMap<(String, RegistryOperation), Option<RegistryTokenType>>;

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
        let direct = direct::client(&options)?;
        Ok(Self { registry: registry.to_owned(), options, auth, whole, direct, tokens: Mutex::default() })
    }

    /// Checks that this user may push to the repository. The client begins an upload and cancels it, so it sends nothing.
    ///
    /// # Errors
    ///
    /// If the registry refuses the upload, or there is no such registry.
    pub async fn check_push(&self, to: &Repository) -> Result<()> {
        let reference = self.reference(to, &Name::Tag("latest".to_owned()))?; // an upload has no name yet
        let operations = [RegistryOperation::Pull, RegistryOperation::Push];
        let upload = self.retrying(&reference, &operations, || self.begin_upload(&reference)).await;
        if let Some(upload) = upload.with_context(|| format!("could not begin an upload to {to}"))? {
            // Not every registry can cancel. One that cannot forgets the upload by itself.
            let cancel = self.request(Method::DELETE, upload, &reference, RegistryOperation::Push).await;
            drop(cancel.timeout(COURTESY).send().await);
        }
        Ok(())
    }

    /// Puts a blob into the repository `to`.
    pub async fn push_blob(&self, to: &Repository, blob: &Bytes) -> Result<Pushed> {
        let digest = Digest::of(blob);
        let name = self.reference(to, &Name::Digest(digest.clone()))?;
        let operations = [RegistryOperation::Pull, RegistryOperation::Push];
        self.retrying(&name, &operations, || self.put_blob(&name, &digest, blob))
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
            present(pulled.map(|(content, _)| content)).map_err(Error::from)
        };
        let content = self.retrying(&reference, &[RegistryOperation::Pull], pull).await;
        let content = content.with_context(|| format!("could not pull {of}{name}"))?;
        Ok(content.map(|content| Manifest { digest: Digest::of(&content), content }))
    }

    /// The digests of the manifests that name this one as their subject, such as bills of materials. Registries without the API for
    /// this list them in an index under a tag, which this reads too.
    pub async fn referrers(&self, of: &Repository, subject: &Digest) -> Result<Vec<Digest>> {
        let reference = self.reference(of, &Name::Digest(subject.clone()))?;
        let what = || format!("could not list what refers to {of}@{subject}");
        let ask = || self.ask_for_referrers(&reference, subject);
        let listed = self.retrying(&reference, &[RegistryOperation::Pull], ask).await.with_context(what)?;
        let pages = match listed {
            Some(pages) => pages,
            None => self.list_of_referrers(of, subject).await?.into_iter().map(|index| index.content).collect(),
        };
        let mut referrers = Vec::new();
        for page in pages {
            let index: OciImageIndex = serde_json::from_slice(&page).with_context(what)?;
            for entry in &index.manifests {
                referrers.push(Digest::parse(&entry.digest)?);
            }
        }
        Ok(referrers)
    }

    /// The index under the tag that the specification prescribes for registries without the API for referrers; `None` if there is
    /// none.
    pub async fn list_of_referrers(&self, of: &Repository, subject: &Digest) -> Result<Option<Manifest>> {
        let found = self.manifest(of, &Name::of_referrers(subject)).await?;
        // GitLab takes the tag for the digest, and answers with the subject itself.
        Ok(found.filter(|index| index.digest != *subject))
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
            while let Some(piece) = pieces.try_next().await.map_err(OciDistributionError::from)? {
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

    async fn put_blob(&self, name: &Reference, digest: &Digest, blob: &Bytes) -> Result<Pushed, Error> {
        let digest = digest.to_string();
        if self.whole.blob_exists(name, &digest).await? {
            return Ok(Pushed::Existed);
        }
        match self.whole.push_blob(name, blob.clone(), &digest).await {
            Err(error) if goes_only_in_pieces(&error) => {
                let mut pieces = oci_client::Client::try_from(configuration(&self.registry, &self.options, false))?;
                pieces.tokens = self.whole.tokens.clone();
                pieces.store_auth_if_needed(name.resolve_registry(), &self.auth).await;
                pieces.push_blob(name, blob.clone(), &digest).await?;
            }
            uploaded => {
                uploaded?;
            }
        }
        Ok(Pushed::Uploaded)
    }

    /// The digest of the manifest with this name, without its content.
    async fn present(&self, reference: &Reference) -> Result<Option<String>, Error> {
        present(self.whole.fetch_manifest_digest(reference, &self.auth).await).map_err(Error::from)
    }

    /// Performs a request until it succeeds, fails for good, or has failed too often.
    async fn retrying<T>(
        &self,
        reference: &Reference,
        operations: &[RegistryOperation],
        request: impl AsyncFn() -> Result<T, Error>,
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
            renew = error.verdict() == Verdict::Unauthorized && !renewed;
            renewed |= renew;
            match error.verdict() {
                Verdict::Later if failed < self.options.retry.attempts => {
                    let pause = self.options.retry.pause(failed);
                    self.notify(&format!("{}; trying again in {:.1} s", error.explained(), pause.as_secs_f64()));
                    tokio::time::sleep(pause).await;
                }
                Verdict::Unauthorized if renew => {}
                Verdict::Unauthorized => {
                    let advice = format!("{} refuses these credentials: `docker login {0}`", self.registry);
                    return Err(error).context(advice);
                }
                Verdict::Later | Verdict::Never => return Err(anyhow::Error::msg(error.explained())),
            }
        }
    }

    /// Gets a token for the repository, if the registry wants one. The errors would be lost if the library did it in passing.
    async fn authorize(
        &self,
        reference: &Reference,
        operations: &[RegistryOperation],
        renew: bool,
    ) -> Result<(), Error> {
        let mut tokens = self.tokens.lock().await;
        if renew {
            // All of them at once: if the token server is in trouble now, the next attempt still knows which ones it lacks.
            tokens.retain(|(repository, _), _| repository != reference.repository());
        }
        let (registry, plain_http) = (self.address(reference), self.options.plain_http);
        for operation in operations {
            let key = (reference.repository().to_owned(), *operation);
            if tokens.contains_key(&key) {
                continue;
            }
            let token = token::token(&self.direct, &registry, &key.0, *operation, &self.auth, plain_http).await?;
            // The library renews a token that expires between two requests, at the same token server.
            self.whole.store_auth_if_needed(reference.resolve_registry(), &self.auth).await;
            if let Some(token) = &token {
                self.whole.tokens.insert(reference, *operation, token.clone()).await;
            }
            tokens.insert(key, token);
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

impl Name {
    /// The tag under which clients list what refers to this manifest, in a registry that keeps no list itself.
    pub fn of_referrers(subject: &Digest) -> Self {
        Self::Tag(format!("sha256-{}", subject.hex()))
    }
}

impl PlainHttp {
    /// Whether to speak HTTP without encryption with this host.
    pub(crate) fn allows(self, host: &str) -> bool {
        match self {
            Self::Allowed => true,
            Self::Loopback => is_loopback(host),
            Self::Never => false,
        }
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
        user_agent: AGENT,
        ..ClientConfig::default()
    }
}

fn protocol(registry: &str, plain_http: PlainHttp) -> ClientProtocol {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    if plain_http.allows(host) { ClientProtocol::Http } else { ClientProtocol::Https }
}

/// Whether the host is this machine. The host of a URL has an address of IPv6 in brackets.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
