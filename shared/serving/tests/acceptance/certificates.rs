//! Certificates that change while serving.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serving::{Certificates, ClientAuthorities, Limits, Tls};
use tokio::io::AsyncWriteExt;

use crate::kit::{Authority, Pair, Server, Told, ask, expiry, hello, soon, teller};

const NEVER: Duration = Duration::from_hours(24);

fn write(folder: &Path, pair: &Pair) {
    fs::write(folder.join("tls.crt"), &pair.certificate).unwrap();
    fs::write(folder.join("tls.key"), &pair.key).unwrap();
}

/// Writes a pair as the kubelet does: a new folder for each version, and a symbolic link that is moved to it.
fn project(volume: &Path, version: &str, pair: &Pair) {
    fs::create_dir(volume.join(version)).unwrap();
    write(&volume.join(version), pair);
    symlink(version, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_certificates_rotate() {
    let authority = Authority::new();
    let pairs = [authority.pair(2100), authority.pair(2101)];
    let certificates = Certificates::from_pem(pairs[0].certificate.as_bytes(), pairs[0].key.as_bytes()).unwrap();
    let server = Arc::new(Server::tls(Tls::new(certificates.clone()), Limits::default(), hello()).await);
    let (done, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]));
    let stop = Arc::new(AtomicBool::new(false));
    let clients = [(); 4].map(|()| {
        let (server, done, seen, stop) = (server.clone(), done.clone(), seen.clone(), stop.clone());
        let (mut config, ders) = (authority.trusted(None), pairs.clone().map(|pair| der(&pair)));
        config.resumption = rustls::client::Resumption::disabled(); // A resumed session does not show the certificate.
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let mut stream = server.connect_tls(config.clone()).await.unwrap();
                let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                seen[ders.iter().position(|der| *der == *shown).unwrap()].fetch_add(1, Ordering::Relaxed);
                for _ in 0..4 {
                    ask(&mut stream).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        })
    });
    for rotation in 1..=20 {
        let next = &pairs[rotation % 2];
        certificates.replace(next.certificate.as_bytes(), next.key.as_bytes()).unwrap();
        let before = done.load(Ordering::Relaxed);
        let used = async {
            while done.load(Ordering::Relaxed) < before + 20 {
                tokio::task::yield_now().await;
            }
        };
        soon(used).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        soon(client).await.unwrap();
    }
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{seen:?}");
}

fn der(pair: &Pair) -> Vec<u8> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn swapped_secret_mount_is_reloaded() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let volume = folder.path();
    project(volume, "..1", &authority.pair(2100));
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), volume.join(name)).unwrap();
    }
    let every = Duration::from_millis(5);
    let certificates = Certificates::from_files_every(every, volume.join("tls.crt"), volume.join("tls.key")).unwrap();
    let (teller, mut told) = teller();
    certificates.observe(teller);
    let server = Server::tls(Tls::new(certificates), Limits::default(), hello()).await;
    assert_eq!(soon(told.recv()).await, Some(Told::Certificate(expiry(2100))));
    let mut before = server.connect_tls(authority.trusted(None)).await.unwrap();
    ask(&mut before).await;

    let next = authority.pair(2101);
    project(volume, "..2", &next);
    fs::remove_dir_all(volume.join("..1")).unwrap();
    // A poll during the swap may have read the certificate and the key of different pairs. That pair was refused.
    while soon(told.recv()).await != Some(Told::Certificate(expiry(2101))) {}
    let mut after = server.connect_tls(authority.trusted(None)).await.unwrap();
    assert_eq!(*after.get_ref().1.peer_certificates().unwrap()[0], *der(&next));
    ask(&mut after).await;
    ask(&mut before).await; // The open connection goes on.
}

#[tokio::test]
async fn unusable_pair_keeps_old_pair_and_is_reported_once() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let (first, second) = (authority.pair(2100), authority.pair(2101));
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    write(folder.path(), &first);
    let certificates = Certificates::from_files_every(NEVER, &certificate, &key).unwrap();
    let (teller, mut told) = teller();
    certificates.observe(teller);
    assert_eq!(told.try_recv(), Ok(Told::Certificate(expiry(2100))));
    let mut refused = |because: &str| {
        certificates.reload();
        certificates.reload();
        match told.try_recv() {
            Ok(Told::Refused(error)) => assert!(error.contains(because), "{error:?} instead of {because:?}"),
            other => panic!("{because}: {other:?}"),
        }
        assert!(told.try_recv().is_err(), "{because} is reported once");
        assert_eq!(certificates.not_after(), expiry(2100), "{because}");
    };

    fs::write(&certificate, &second.certificate).unwrap();
    refused("the certificate and the key cannot be used together");
    fs::write(&certificate, &second.certificate[..second.certificate.len() / 2]).unwrap();
    refused("the certificate is not PEM text");
    fs::write(&certificate, "").unwrap();
    refused("there is no certificate");
    fs::write(&certificate, &second.certificate).unwrap();
    fs::write(&key, &second.key[..second.key.len() / 2]).unwrap();
    refused("the key is not PEM text");
    fs::remove_file(&key).unwrap();
    refused("could not read");
    fs::remove_file(&certificate).unwrap();
    refused("could not read");

    write(folder.path(), &first);
    certificates.reload();
    assert_eq!(told.try_recv(), Ok(Told::Reloaded), "the first pair is back");
    assert_eq!(told.try_recv(), Ok(Told::Certificate(expiry(2100))));
    write(folder.path(), &second);
    certificates.reload();
    assert_eq!(told.try_recv(), Ok(Told::Reloaded));
    assert_eq!(told.try_recv(), Ok(Told::Certificate(expiry(2101))));
    certificates.reload();
    assert!(told.try_recv().is_err(), "nothing has changed");
}

#[tokio::test]
async fn unusable_certificate_is_rejected_at_start() {
    let authority = Authority::new();
    let (one, other) = (authority.pair(2100), authority.pair(2101));
    let error = Certificates::from_pem(one.certificate.as_bytes(), other.key.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "the certificate and the key cannot be used together");
    let error = Certificates::from_files("/nowhere/tls.crt", "/nowhere/tls.key").unwrap_err();
    assert_eq!(error.to_string(), "could not read /nowhere/tls.crt");
    let error = ClientAuthorities::from_pem(b"nothing").unwrap_err();
    assert_eq!(error.to_string(), "there is no certificate in the bundle");
}

#[tokio::test]
async fn dropped_handle_stops_file_polling() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    write(folder.path(), &authority.pair(2100));
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let certificates = Certificates::from_files_every(Duration::from_millis(1), certificate, key).unwrap();
    let (teller, mut told) = teller();
    certificates.observe(teller);
    drop(certificates);
    // Only the polling task could still hold the observer.
    while soon(told.recv()).await.is_some() {}
}

#[tokio::test]
async fn plain_http_on_tls_listener_is_dropped() {
    let server = Server::tls(crate::kit::tls(&Authority::new().pair(2100)), Limits::default(), hello()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let answer = crate::kit::rest(&mut stream).await;
    assert!(!answer.contains("HTTP/1.1"), "{answer}");
}
