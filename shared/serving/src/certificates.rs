//! The serving certificate, which may be replaced at any time.

use std::{
    fmt,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::RwLock;
use rustls::{
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::{
    CertificateError, Observer,
    files::{self, Files},
    observer::NoObserver,
};

/// The serving certificate and its key. The pair may be replaced at any time. Clones share the pair.
#[derive(Clone)]
pub struct Certificates {
    shared: Arc<Shared>,
}

struct Shared {
    pair: RwLock<Arc<CertifiedKey>>,
    observer: RwLock<Arc<dyn Observer>>,
    files: Option<Files<2>>,
}

impl Certificates {
    /// Reads a certificate with its chain, and its key, from PEM text.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        Ok(Self::new(pair(certificate, key)?, None))
    }

    /// Reads the pair from two files, now and every five seconds. Needs a tokio runtime.
    pub fn from_files(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, CertificateError> {
        Self::from_files_every(files::POLL_INTERVAL, certificate, key)
    }

    /// Reads the pair from two files, now and at this interval. Needs a tokio runtime.
    pub fn from_files_every(
        every: Duration,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, CertificateError> {
        let files = Files::new([certificate.into(), key.into()]);
        let [certificate, key] = files.poll().unwrap_or_else(|| Ok(Default::default()))?;
        let certificates = Self::new(pair(&certificate, &key)?, Some(files));
        files::watch(&certificates.shared, every, Shared::reload);
        Ok(certificates)
    }

    fn new(pair: CertifiedKey, files: Option<Files<2>>) -> Self {
        let observer: Arc<dyn Observer> = Arc::new(NoObserver);
        let (pair, observer) = (RwLock::new(Arc::new(pair)), RwLock::new(observer));
        Self { shared: Arc::new(Shared { pair, observer, files }) }
    }

    /// Replaces the pair from the next handshake on. An unusable pair is refused, and the old one stays.
    pub fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        self.shared.replace(certificate, key)
    }

    /// Reads the files now, in the calling thread, rather than at the next interval.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// When the current certificate expires.
    pub fn not_after(&self) -> SystemTime {
        not_after(&self.shared.pair()).unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Reports the current certificate at once, and every change from now on, to this observer, which replaces the previous one.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        observer.certificate(self.not_after());
        *self.shared.observer.write() = observer;
    }
}

impl Shared {
    fn pair(&self) -> Arc<CertifiedKey> {
        self.pair.read().clone()
    }

    fn observer(&self) -> Arc<dyn Observer> {
        self.observer.read().clone()
    }

    fn reload(&self) {
        match self.files.as_ref().and_then(Files::poll) {
            None => {}
            Some(Ok([certificate, key])) => drop(self.replace(&certificate, &key)),
            Some(Err(error)) => self.observer().reloaded(Err(&error)),
        }
    }

    fn replace(&self, certificate: &[u8], key: &[u8]) -> Result<(), CertificateError> {
        let observer = self.observer();
        let pair = pair(certificate, key).inspect_err(|error| observer.reloaded(Err(error)))?;
        let not_after = not_after(&pair)?;
        *self.pair.write() = Arc::new(pair);
        observer.reloaded(Ok(()));
        observer.certificate(not_after);
        Ok(())
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shared.pair())
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("not_after", &self.not_after()).finish_non_exhaustive()
    }
}

fn pair(certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let chain = chain("certificate", certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| CertificateError::Pem { what: "key", source })?;
    // Fails if the certificate and the key do not belong together.
    let pair = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(CertificateError::Pair)?;
    not_after(&pair)?;
    Ok(pair)
}

/// Parses all certificates in PEM text. Fails if there is none.
pub(crate) fn chain(what: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|source| CertificateError::Pem { what, source })?;
    if chain.is_empty() { Err(CertificateError::Empty(what)) } else { Ok(chain) }
}

fn not_after(pair: &CertifiedKey) -> Result<SystemTime, CertificateError> {
    let certificate = pair.end_entity_cert().map_err(CertificateError::Pair)?;
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::Certificate)?;
    let seconds = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}
