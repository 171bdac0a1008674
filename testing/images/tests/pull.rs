//! Builds all fixture images, serves them, and pulls them like a node: by plain HTTP, with a check of all digests.
#![expect(clippy::unwrap_used, reason = "clippy knows tests by their attribute, and these have helpers")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use images::{Digest, Reference, Store};
use serde_json::Value;

#[test]
fn a_node_can_pull_every_fixture() {
    if let Some(missing) = ["go", "apt-get", "dpkg-deb", "ldd"].into_iter().find(|program| !runs(program)) {
        return skip::lacking(format!("fixture images need {missing}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut built = Vec::new();
    images::ensure_fixtures(folder.path(), &mut |line| built.push(line.to_owned())).unwrap();
    assert_eq!(built.len(), 7, "{built:?}");

    built.clear();
    images::ensure_fixtures(folder.path(), &mut |line| built.push(line.to_owned())).unwrap();
    assert_eq!(built, [""; 0], "the second call built images again");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let root = folder.path().to_owned();
    std::thread::spawn(move || images::serve(listener, &root));

    for stored in Store::open(folder.path()).unwrap().list().unwrap() {
        pull(address, &stored.reference, &stored.digest);
    }
    let (status, _) = get(address, "/v2/library/my-awesome-cron-image/manifests/latest?ns=docker.io");
    assert_eq!(status, 404);
}

fn pull(address: SocketAddr, reference: &Reference, digest: &Digest) {
    let (registry, path) = (&reference.repository.registry, &reference.repository.path);
    let ask = |kind: &str, what: &str| {
        let (status, body) = get(address, &format!("/v2/{path}/{kind}/{what}?ns={registry}"));
        assert_eq!(status, 200, "{reference} {kind} {what}");
        body
    };
    let manifest = ask("manifests", &reference.tag);
    assert_eq!(Digest::of(&manifest), *digest, "{reference}");
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let layers = manifest["layers"].as_array().unwrap();
    for blob in layers.iter().chain([&manifest["config"]]) {
        let name = blob["digest"].as_str().unwrap();
        let content = ask("blobs", name);
        assert_eq!(blob["size"], content.len());
        assert_eq!(Digest::of(&content).to_string(), name);
    }
}

/// Sends one request and returns the status and the body. It needs no client library, because bodies have a length and the server
/// closes the connection.
fn get(address: SocketAddr, path: &str) -> (u16, Vec<u8>) {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: registry\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = Vec::new();
    connection.read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(response[..end].to_vec()).unwrap();
    assert!(head.to_lowercase().contains("content-length: "), "{head}");
    (head.split(' ').nth(1).unwrap().parse().unwrap(), response[end + 4..].to_vec())
}

fn runs(program: &str) -> bool {
    let argument = if program == "go" { "version" } else { "--version" };
    Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
}
