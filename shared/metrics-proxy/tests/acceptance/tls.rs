//! TLS, HTTP/2 and certificates, of the proxy, of clients and of the upstream.

use std::{fs, os::unix::fs::symlink, path::Path, sync::Arc};

use metrics_proxy::Program;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    version::{TLS12, TLS13},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};

use crate::kit::{Ask, Behind, HELLO, Running, body, flags, get, soon, status, tell};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for localhost and for this user, and its key, as PEM text.
    pub(crate) fn pair(&self, user: &str, groups: &[&str]) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }

    /// A client configuration that trusts this authority.
    pub(crate) fn client(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let mut config = builder.with_root_certificates(self.roots()).with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        config
    }

    /// A client configuration that trusts this authority, with a client certificate.
    pub(crate) fn client_with(&self, own: &(String, String)) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let (chain, key) = parsed(own);
        builder.with_root_certificates(self.roots()).with_client_auth_cert(chain, key).unwrap()
    }
}

fn parsed((certificate, key): &(String, String)) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
    (chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
}

pub(crate) fn write(folder: &Path, (certificate, key): &(String, String)) {
    fs::write(folder.join("tls.crt"), certificate).unwrap();
    fs::write(folder.join("tls.key"), key).unwrap();
}

/// A proxy whose certificate is in a folder.
async fn secure(folder: &Path, ask: &Arc<Ask>, behind: &Behind, more: &[&str]) -> Running {
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.join(name).display());
    let (certificate, key) = (file("tls-cert-file", "tls.crt"), file("tls-private-key-file", "tls.key"));
    let more = [&["--secure-listen-address=127.0.0.1:0", &certificate, &key], more].concat();
    Running::new(behind, ask, &more).await
}

pub(crate) async fn connect(to: &Running, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = soon(TcpStream::connect(to.secure.unwrap())).await?;
    let name = ServerName::try_from("localhost").unwrap();
    soon(TlsConnector::from(Arc::new(config)).connect(name, stream)).await
}

/// Requests `/metrics`, and returns the status; 0 if the handshake failed.
pub(crate) async fn asked(to: &Running, config: ClientConfig, token: Option<&str>) -> u16 {
    let Ok(mut stream) = connect(to, config).await else { return 0 };
    status(&tell(&mut stream, get("/metrics", token)).await)
}

#[tokio::test]
async fn tls_version_and_cipher_flags_are_obeyed() {
    let (authority, folder) = (Authority::new("a"), tempfile::tempdir().unwrap());
    write(folder.path(), &authority.pair("localhost", &[]));
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    for (flag, old) in [("--tls-min-version=VersionTLS12", 200), ("--tls-min-version=VersionTLS13", 0)] {
        let proxy = secure(folder.path(), &ask, &behind, &[flag]).await;
        assert_eq!(asked(&proxy, authority.client(&[&TLS12]), Some("ann")).await, old, "{flag}");
        assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 200, "{flag}");
    }
    let suites = "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"; // not for our key, which is not RSA
    let proxy = secure(folder.path(), &ask, &behind, &[suites]).await;
    assert_eq!(asked(&proxy, authority.client(&[&TLS12]), Some("ann")).await, 0);
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 200);
    // The hello of a client that supports nothing newer than TLS 1.0.
    let mut stream = soon(TcpStream::connect(proxy.secure.unwrap())).await.unwrap();
    let hello = [&[22, 3, 1, 0, 49, 1, 0, 0, 45, 3, 1][..], &[7; 32], &[0, 0, 4, 0, 47, 0, 53, 1, 0, 0, 0]].concat();
    let answer = tell(&mut stream, hello).await;
    assert!(answer.starts_with('\u{15}'), "an alert: {answer:?}");
}

#[tokio::test]
async fn http2_is_on_unless_disabled() {
    let (authority, folder) = (Authority::new("a"), tempfile::tempdir().unwrap());
    write(folder.path(), &authority.pair("localhost", &[]));
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    for (flags, expected) in [(&[][..], &b"h2"[..]), (&["--http2-disable"], b"http/1.1")] {
        let proxy = secure(folder.path(), &ask, &behind, flags).await;
        let mut config = authority.client(&[&TLS13]);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = connect(&proxy, config.clone()).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(expected), "{flags:?}");
        if expected == b"h2" {
            let io = hyper_util::rt::TokioIo::new(stream);
            let executor = hyper_util::rt::TokioExecutor::new();
            let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
            tokio::spawn(connection);
            let request = http::Request::get("https://localhost/metrics").header("authorization", "Bearer ann");
            let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
            assert_eq!(soon(sender.send_request(request)).await.unwrap().status(), 200);
        } else {
            config.alpn_protocols = vec![b"h2".to_vec()];
            assert!(connect(&proxy, config).await.is_err());
        }
    }
}

#[tokio::test]
async fn rotated_certificate_is_served_and_broken_pair_ignored() {
    let (authority, folder) = (Authority::new("a"), tempfile::tempdir().unwrap());
    let volume = folder.path();
    let project = |version: &str, pair: &(String, String)| {
        fs::create_dir(volume.join(version)).unwrap();
        write(&volume.join(version), pair);
        symlink(version, volume.join("..tmp")).unwrap();
        fs::rename(volume.join("..tmp"), volume.join("..data")).unwrap();
    };
    project("..1", &authority.pair("localhost", &[]));
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), volume.join(name)).unwrap();
    }
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    let proxy = secure(volume, &ask, &behind, &[]).await;
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 200);

    // A pair that does not fit together changes nothing.
    let other = Authority::new("b");
    let (certificate, _) = other.pair("localhost", &[]);
    let (_, key) = other.pair("localhost", &[]);
    project("..2", &(certificate, key));
    (proxy.reload)();
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 200);
    project("..3", &other.pair("localhost", &[]));
    (proxy.reload)();
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 0);
    assert_eq!(asked(&proxy, other.client(&[&TLS13]), Some("ann")).await, 200);
}

#[tokio::test]
async fn client_certificate_authenticates_user() {
    let (authority, clients, folder) = (Authority::new("a"), Authority::new("b"), tempfile::tempdir().unwrap());
    write(folder.path(), &authority.pair("localhost", &[]));
    fs::write(folder.path().join("ca.crt"), clients.pem()).unwrap();
    let flag = format!("--client-ca-file={}", folder.path().join("ca.crt").display());
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    let proxy = secure(folder.path(), &ask, &behind, &[&flag, "--auth-header-fields-enabled"]).await;
    let with = |pair: &(String, String)| authority.client_with(pair);
    assert_eq!(asked(&proxy, with(&clients.pair("bob", &[])), None).await, 403, "no rights");
    assert_eq!(asked(&proxy, with(&clients.pair("ann", &["g"])), None).await, 200);
    let head = behind.seen().concat();
    assert!(head.contains("x-remote-user: ann\r\nx-remote-groups: g|system:authenticated\r\n"), "{head}");
    assert_eq!(asked(&proxy, with(&Authority::new("c").pair("ann", &[])), None).await, 0, "another authority");
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), None).await, 401);
    assert_eq!(asked(&proxy, authority.client(&[&TLS13]), Some("ann")).await, 200, "a token will do, too");

    // The new bundle applies from the next connection on.
    let others = Authority::new("d");
    fs::write(folder.path().join("ca.crt"), others.pem()).unwrap();
    (proxy.reload)();
    assert_eq!(asked(&proxy, with(&others.pair("ann", &[])), None).await, 200);
    assert_eq!(asked(&proxy, with(&clients.pair("ann", &[])), None).await, 0);
}

#[tokio::test]
async fn self_signed_certificate_is_generated_by_default() {
    let (behind, ask) = (Behind::new(HELLO).await, Arc::new(Ask::default()));
    let proxy = Running::new(&behind, &ask, &["--secure-listen-address=127.0.0.1:0"]).await;
    assert!(connect(&proxy, Authority::new("a").client(&[&TLS13])).await.is_err(), "it is self-signed");
    assert!(proxy.secure.is_some());
}

#[tokio::test]
async fn upstream_connection_uses_mutual_tls() {
    let (authority, clients, folder) = (Authority::new("a"), Authority::new("b"), tempfile::tempdir().unwrap());
    let (chain, key) = parsed(&authority.pair("localhost", &[]));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(clients.roots().into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier.build().unwrap()).with_single_cert(chain, key).unwrap();
    let (acceptor, listener) = (TlsAcceptor::from(Arc::new(config)), TcpListener::bind("127.0.0.1:0").await.unwrap());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = [0; 4096];
            if stream.read(&mut head).await.unwrap_or(0) > 0 {
                stream.write_all(HELLO.as_bytes()).await.unwrap();
            }
        }
    });
    write(folder.path(), &clients.pair("proxy", &[]));
    fs::write(folder.path().join("ca.crt"), authority.pem()).unwrap();
    let file = |flag: &str, name: &str| format!("--{flag}={}", folder.path().join(name).display());
    let upstream = format!("--upstream=https://localhost:{}/", address.port());
    let trust = file("upstream-ca-file", "ca.crt");
    let show = [file("upstream-client-cert-file", "tls.crt"), file("upstream-client-key-file", "tls.key")];
    for (more, expected) in [(vec![&upstream, &trust, &show[0], &show[1]], 200), (vec![&upstream, &trust], 502)] {
        let more: Vec<_> = more.into_iter().map(String::as_str).collect();
        let program = Program::with_reviewer(&flags(address, &more), Arc::new(Ask::default())).await.unwrap();
        let proxy = Running::run(program);
        let answer = tell(&mut proxy.connect().await, get("/metrics", Some("ann"))).await;
        assert_eq!(status(&answer), expected, "{more:?}: {}", body(&answer));
    }
    // Without its authority, the upstream's certificate is not trusted.
    fs::write(folder.path().join("ca.crt"), clients.pem()).unwrap();
    let more: Vec<_> = [&upstream, &trust, &show[0], &show[1]].into_iter().map(String::as_str).collect();
    let program = Program::with_reviewer(&flags(address, &more), Arc::new(Ask::default())).await.unwrap();
    assert_eq!(Running::run(program).get("/metrics", Some("ann")).await.0, 502);
}
