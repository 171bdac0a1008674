//! The authorities that sign client certificates. They may be replaced at any time.

use std::{fmt, path::PathBuf, sync::Arc};

use parking_lot::RwLock;
use rustls::{
    RootCertStore,
    crypto::ring,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use crate::{
    CertificateError, Observer, certificates,
    files::{self, Files},
    observer::NoObserver,
};

/// The CA bundle for checking client certificates. It may be replaced at any time. Clones share the bundle.
///
/// A client may connect without a certificate unless it is [`required`](Self::required). A client whose certificate is expired,
/// or of another authority, is refused in the handshake. If the certificate expires or its authority is removed later, requests
/// on the open connection are answered with 401.
#[derive(Clone)]
pub struct ClientAuthorities {
    shared: Arc<Shared>,
}

struct Shared {
    required: bool,
    verifier: RwLock<Arc<dyn ClientCertVerifier>>,
    observer: RwLock<Arc<dyn Observer>>,
    files: Option<Files<1>>,
}

impl ClientAuthorities {
    /// Reads the bundle from PEM text.
    pub fn from_pem(bundle: &[u8]) -> Result<Self, CertificateError> {
        Self::new(false, bundle, None)
    }

    /// Reads the bundle from a file, now and every five seconds. Needs a tokio runtime.
    pub fn from_file(bundle: impl Into<PathBuf>) -> Result<Self, CertificateError> {
        Self::watched(false, bundle.into())
    }

    /// Reads the bundle from a file, now and every five seconds. A client without a certificate is refused in the handshake.
    /// Needs a tokio runtime.
    pub fn required(bundle: impl Into<PathBuf>) -> Result<Self, CertificateError> {
        Self::watched(true, bundle.into())
    }

    fn watched(required: bool, bundle: PathBuf) -> Result<Self, CertificateError> {
        let files = Files::new([bundle]);
        let [bundle] = files.poll().unwrap_or_else(|| Ok(Default::default()))?;
        let authorities = Self::new(required, &bundle, Some(files))?;
        files::watch(&authorities.shared, files::POLL_INTERVAL, Shared::reload);
        Ok(authorities)
    }

    fn new(required: bool, bundle: &[u8], files: Option<Files<1>>) -> Result<Self, CertificateError> {
        let observer: Arc<dyn Observer> = Arc::new(NoObserver);
        let (verifier, observer) = (RwLock::new(verifier(bundle, required)?), RwLock::new(observer));
        Ok(Self { shared: Arc::new(Shared { required, verifier, observer, files }) })
    }

    /// Replaces the bundle from the next handshake and the next request on. An unusable bundle is refused, and the old one stays.
    pub fn replace(&self, bundle: &[u8]) -> Result<(), CertificateError> {
        self.shared.replace(bundle)
    }

    /// Reads the file now, in the calling thread, rather than at the next interval.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// Reports every change from now on to this observer, which replaces the previous one.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        *self.shared.observer.write() = observer;
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        self.shared.verifier.read().clone()
    }
}

impl Shared {
    fn reload(&self) {
        match self.files.as_ref().and_then(Files::poll) {
            None => {}
            Some(Ok([bundle])) => drop(self.replace(&bundle)),
            Some(Err(error)) => self.observer().reloaded(Err(&error)),
        }
    }

    fn replace(&self, bundle: &[u8]) -> Result<(), CertificateError> {
        let observer = self.observer();
        let verifier = verifier(bundle, self.required).inspect_err(|error| observer.reloaded(Err(error)))?;
        *self.verifier.write() = verifier;
        observer.reloaded(Ok(()));
        Ok(())
    }

    fn observer(&self) -> Arc<dyn Observer> {
        self.observer.read().clone()
    }
}

impl fmt::Debug for ClientAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientAuthorities").field("required", &self.shared.required).finish_non_exhaustive()
    }
}

fn verifier(bundle: &[u8], required: bool) -> Result<Arc<dyn ClientCertVerifier>, CertificateError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates::chain("bundle", bundle)? {
        roots.add(certificate).map_err(|error| CertificateError::Bundle(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), ring::default_provider().into());
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| CertificateError::Bundle(error.to_string()))
}
