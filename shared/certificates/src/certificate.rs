//! Makes an authority and the serving certificates that it signs, and reads what a certificate says. No clock, no I/O.

use std::{fmt, net::IpAddr, time::SystemTime};

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use x509_parser::{
    extensions::{GeneralName, ParsedExtension},
    pem::Pem,
};

/// RFC 5280 limits a common name to this many characters.
const LONGEST_NAME: usize = 64;
/// The longest time by which the validity of a certificate begins before it is made.
const LATE: SignedDuration = SignedDuration::from_mins(5);

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub struct Validity {
    /// When it is made. The validity begins up to five minutes before, for clients whose clock is late.
    pub from: Timestamp,
    /// How long it is valid from then on.
    pub lifetime: SignedDuration,
}

/// A certificate could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The names, the key or the authority are not valid.
    #[error("cannot make a certificate for {names}: {source}")]
    Make {
        /// The names of the certificate, separated by commas; or the name of the authority.
        names: String,
        /// The cause.
        source: rcgen::Error,
    },
    /// The text is not a certificate in PEM.
    #[error("cannot read a certificate: {0}")]
    Read(String),
}

impl Pair {
    /// Makes a self-signed authority, with the `key` of an earlier one in PEM, or with a new key. Clients look up an authority by
    /// its name: those of different keys need different names. Names are cut to 64 characters.
    ///
    /// # Errors
    ///
    /// If `key` is not a private key in PEM.
    pub fn authority(name: &str, key: Option<&str>, validity: Validity) -> Result<Self, CertificateError> {
        let made = || {
            let key = key.map_or_else(KeyPair::generate, KeyPair::from_pem)?;
            let mut params = CertificateParams::new(Vec::<String>::new())?;
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            params.distinguished_name = called(name);
            validity.set(&mut params);
            Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
        };
        made().map_err(|source| CertificateError::Make { names: name.to_owned(), source })
    }

    /// Makes a serving certificate with a new key, signed by this authority: for these DNS names and IP addresses.
    ///
    /// # Errors
    ///
    /// If this is not an authority with its key, or one of the names is neither a DNS name nor an address.
    pub fn sign(&self, name: &str, names: &[String], validity: Validity) -> Result<Self, CertificateError> {
        let made = || {
            let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = called(name);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.use_authority_key_identifier_extension = true;
            validity.set(&mut params);
            let key = KeyPair::generate()?;
            Ok(Self { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
        };
        made().map_err(|source| CertificateError::Make { names: names.join(", "), source })
    }

    /// Reads the certificate, if the key belongs to it.
    pub fn read(&self) -> Option<Certificate> {
        let (certificate, key) = (Certificate::read(&self.certificate).ok()?, KeyPair::from_pem(&self.key).ok()?);
        (certificate.public_key == key.public_key_raw()).then_some(certificate)
    }
}

impl Validity {
    fn set(self, params: &mut CertificateParams) {
        let late = LATE.min(self.lifetime / 10);
        params.not_before = SystemTime::from(self.from.saturating_sub(late).unwrap_or(self.from)).into();
        params.not_after = SystemTime::from(self.from.saturating_add(self.lifetime).unwrap_or(self.from)).into();
    }
}

fn called(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name.chars().take(LONGEST_NAME).collect::<String>());
    names
}

/// What a certificate says.
#[derive(Debug)]
pub struct Certificate {
    /// When its validity begins.
    pub not_before: Timestamp,
    /// When its validity ends.
    pub not_after: Timestamp,
    /// The DNS names and IP addresses that it is for.
    pub names: Vec<String>,
    /// Its common name.
    pub common_name: Option<String>,
    /// Its whole name, encoded as in the certificate.
    subject: Vec<u8>,
    public_key: Vec<u8>,
    /// Whether its key may sign certificates.
    is_ca: bool,
    /// The identifier of its key.
    own_key: Option<Vec<u8>>,
    /// The identifier of the key that signed it.
    issuer_key: Option<Vec<u8>>,
}

impl Certificate {
    /// Reads the first certificate of a PEM text.
    ///
    /// # Errors
    ///
    /// If there is none, or it is damaged.
    pub fn read(pem: &str) -> Result<Self, CertificateError> {
        let read = |error: &dyn fmt::Display| CertificateError::Read(error.to_string());
        let pem = Pem::iter_from_buffer(pem.as_bytes()).next().ok_or_else(|| read(&"it is empty"))?;
        let pem = pem.map_err(|error| read(&error))?;
        let certificate = pem.parse_x509().map_err(|error| read(&error))?;
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
        let validity = certificate.validity();
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.into_iter().flat_map(|names| names.value.general_names.iter().filter_map(name)).collect();
        let common_name = certificate.subject().iter_common_name().find_map(|it| it.as_str().ok()).map(str::to_owned);
        // Without the extension about the usage of the key, each usage is allowed (RFC 5280).
        let (mut is_ca, mut may_sign, mut own_key, mut issuer_key) = (false, true, None, None);
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::BasicConstraints(constraints) => is_ca = constraints.ca,
                ParsedExtension::KeyUsage(usage) => may_sign = usage.key_cert_sign(),
                ParsedExtension::SubjectKeyIdentifier(key) => own_key = Some(key.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(issuer) => {
                    issuer_key = issuer.key_identifier.as_ref().map(|key| key.0.to_vec());
                }
                _ => {}
            }
        }
        Ok(Self {
            not_before: time(validity.not_before).map_err(|error| read(&error))?,
            not_after: time(validity.not_after).map_err(|error| read(&error))?,
            names,
            common_name,
            subject: certificate.subject().as_raw().to_vec(),
            public_key: certificate.public_key().subject_public_key.data.to_vec(),
            is_ca: is_ca && may_sign,
            own_key,
            issuer_key,
        })
    }

    /// Whether it is for all of these names.
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }

    /// Whether it has the same key and the same name. Then clients that trust one of both accept what the other one has signed: they
    /// look up an authority by its name.
    pub fn has_key_and_name_of(&self, other: &Self) -> bool {
        self.public_key == other.public_key && self.subject == other.subject
    }

    /// Whether it is the certificate of an authority that may sign, with an identifier of its key, which [`Certificate::is_of`] needs.
    pub fn is_authority(&self) -> bool {
        self.is_ca && self.own_key.is_some()
    }

    /// Whether it names the key of this authority as the one that signed it.
    pub fn is_of(&self, authority: &Self) -> bool {
        self.issuer_key.is_some() && self.issuer_key == authority.own_key
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = || <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4().or_else(|_| v6()).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validity() -> Validity {
        Validity { from: "2026-11-25T12:00:00Z".parse().expect("a time"), lifetime: SignedDuration::from_hours(24) }
    }

    #[test]
    fn certificates_are_read_as_they_were_made() {
        let names = ["a.shop.svc", "127.0.0.1", "::1"].map(str::to_owned);
        let authority = Pair::authority(&"an authority ".repeat(9), None, validity()).expect("an authority");
        let serving = authority.sign("a", &names, validity()).expect("a certificate");
        let read = serving.read().expect("its key belongs to it");
        assert_eq!(read.names, names);
        assert!(read.covers(&names[1..]) && !read.covers(&["b".to_owned()]));
        assert_eq!(read.not_after, validity().from + validity().lifetime);
        assert_eq!(read.not_before, validity().from - LATE);
        let brief = Validity { lifetime: SignedDuration::from_secs(100), ..validity() };
        let brief = authority.sign("a", &names, brief).expect("a certificate").read().expect("a certificate");
        assert_eq!(brief.not_before, validity().from - SignedDuration::from_secs(10));
    }

    #[test]
    fn renewed_authority_keeps_its_key_and_another_one_is_told_apart() {
        let authority = Pair::authority("a", None, validity()).expect("an authority");
        let renewed = Pair::authority("a", Some(&authority.key), validity()).expect("an authority");
        let other = Pair::authority("a", None, validity()).expect("an authority");
        let serving = authority.sign("a", &["a".to_owned()], validity()).expect("a certificate");
        let read = |pair: &Pair| pair.read().expect("a certificate with its key");
        assert!(read(&serving).is_of(&read(&authority)) && read(&serving).is_of(&read(&renewed)));
        assert!(!read(&serving).is_of(&read(&other)));
        assert!(read(&authority).is_authority() && !read(&serving).is_authority());
        let renamed = Pair::authority("b", Some(&authority.key), validity()).expect("an authority");
        let replaces = |pair: &Pair| read(&authority).has_key_and_name_of(&read(pair));
        assert_eq!([&renewed, &other, &renamed].map(replaces), [true, false, false]);
        assert_eq!(read(&renewed).common_name.as_deref(), Some("a"));
        let mixed = Pair { key: other.key, ..authority };
        assert!(mixed.read().is_none(), "a key of another certificate");
    }

    /// A client refuses what it signs.
    #[test]
    fn certificate_whose_key_may_not_sign_is_no_authority() {
        let is_authority = |usages: &[KeyUsagePurpose]| {
            let key = KeyPair::generate().expect("a key");
            let mut params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = usages.to_vec();
            let certificate = params.self_signed(&key).expect("a certificate");
            Certificate::read(&certificate.pem()).expect("a certificate").is_authority()
        };
        let (signs, other) = (KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature);
        let allowed = [&[signs][..], &[other, signs], &[], &[other]].map(is_authority);
        assert_eq!(allowed, [true, true, true, false], "without the extension, each usage is allowed");
    }

    #[test]
    fn damaged_texts_are_errors() {
        for text in ["", "a", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(Certificate::read(text), Err(CertificateError::Read(_))), "{text}");
        }
        assert!(matches!(Pair::authority("a", Some("no key"), validity()), Err(CertificateError::Make { .. })));
    }
}
