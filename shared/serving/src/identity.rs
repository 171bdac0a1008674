//! The certificate of a connected client, which may expire or lose its authority while the connection is open.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::{
    pki_types::{CertificateDer, UnixTime},
    server::danger::ClientCertVerifier,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::ClientAuthorities;

/// The certificate of a connected client, with its chain.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    intermediates: Vec<CertificateDer<'static>>,
    authorities: ClientAuthorities,
    /// The last judgement in favour of the client: by whom, and until when it holds.
    judged: Mutex<Option<(Arc<dyn ClientCertVerifier>, UnixTime)>>,
}

impl Identity {
    /// `None` if the client has shown no certificate.
    pub(crate) fn new(chain: &[CertificateDer<'_>], authorities: &ClientAuthorities) -> Option<Self> {
        let mut chain = chain.iter().map(|it| it.clone().into_owned());
        let certificate = chain.next()?;
        let (intermediates, authorities) = (chain.collect(), authorities.clone());
        Some(Self { certificate, intermediates, authorities, judged: Mutex::default() })
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Whether the certificate is valid now, and signed by one of the current authorities. Checks signatures only if the authorities
    /// have changed since the last time.
    pub(crate) fn is_valid(&self) -> bool {
        let (verifier, now) = (self.authorities.verifier(), UnixTime::now());
        let mut judged = self.judged.lock();
        if judged.as_ref().is_some_and(|(by, until)| Arc::ptr_eq(by, &verifier) && now < *until) {
            return true;
        }
        let is_valid = verifier.verify_client_cert(&self.certificate, &self.intermediates, now).is_ok();
        *judged = is_valid.then(|| (verifier, self.valid_until()));
        is_valid
    }

    /// When the first certificate of the chain expires.
    fn valid_until(&self) -> UnixTime {
        let chain = self.intermediates.iter().chain([&self.certificate]);
        let ends =
            chain.map(|it| X509Certificate::from_der(it).map_or(0, |(_, it)| it.validity().not_after.timestamp()));
        UnixTime::since_unix_epoch(Duration::from_secs(ends.min().and_then(|end| end.try_into().ok()).unwrap_or(0)))
    }
}
