//! The program itself: its command line, its exit codes, its log.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Output, Stdio},
};

use crate::kit::{Behind, HELLO, get, soon, status, tell};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-proxy"));
    command.args(arguments).env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    command
}

fn ends(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(arguments).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn help_lists_every_effective_flag() {
    let (code, help, _) = ends(&["--help"]);
    assert_eq!(code, Some(0));
    for flag in [
        "--secure-listen-address",
        "--insecure-listen-address",
        "--upstream",
        "--upstream-force-h2c",
        "--upstream-ca-file",
        "--upstream-client-cert-file",
        "--upstream-client-key-file",
        "--config-file",
        "--allow-paths",
        "--ignore-paths",
        "--proxy-endpoints-port",
        "--tls-cert-file",
        "--tls-private-key-file",
        "--tls-min-version",
        "--tls-cipher-suites",
        "--client-ca-file",
        "--auth-header-fields-enabled",
        "--auth-header-user-field-name",
        "--auth-header-groups-field-name",
        "--auth-header-groups-field-separator",
        "--auth-token-audiences",
        "--http2-disable",
        "--http2-max-concurrent-streams",
        "--http2-max-size",
        "--kubeconfig",
    ] {
        assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}[")), "{flag}");
    }
    assert!(!help.contains("oidc") && !help.contains("logtostderr"));
}

#[test]
fn usage_error_prints_one_line_and_exits_2() {
    let usual = ["--upstream=http://127.0.0.1:1/", "--secure-listen-address=127.0.0.1:0"];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "authorization: {rewrites: {byQueryParameter: {name: a}}}").unwrap();
    let config = format!("--config-file={}", file.path().display());
    let key = format!("--tls-private-key-file={}", file.path().display());
    for (flags, because) in [
        (&["--nonsense"][..], "unexpected argument '--nonsense' found"),
        (&["--allow-paths=[a"], "--allow-paths: \"[a\" is not a pattern"),
        (&[&config], "authorization.rewrites needs authorization.resourceAttributes"),
        (&["--kubeconfig=/nowhere"], "--kubeconfig /nowhere"),
        (&[], "outside of a cluster, give --kubeconfig"),
        (&["--upstream-timeout=x"], "expected a time such as 30s"),
    ] {
        let (code, out, error) = ends(&[&usual[..], flags].concat());
        assert_eq!((code, &*out), (Some(2), ""), "{flags:?}: {error}");
        assert!(error.contains(because) && error.trim_end().lines().count() == 1, "{flags:?}: {error}");
    }
    let (code, _, error) = ends(&["--upstream=http://a", "--secure-listen-address=:1", &key]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--tls-cert-file"), "{error}");
}

/// Reads the log up to the line with the address of the proxy, and returns the address.
fn address(log: &mut impl BufRead, seen: &mut String) -> String {
    loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).unwrap() > 0, "the log ended: {seen}");
        seen.push_str(&line);
        if let Some((_, rest)) = line.split_once("\"address\":\"") {
            return rest.split('"').next().unwrap().to_owned();
        }
    }
}

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
async fn tokens_are_not_logged_and_sigterm_stops_program() {
    let behind = Behind::new(HELLO).await;
    let folder = tempfile::tempdir().unwrap();
    // No API server listens here: the log reports that.
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        r#"{"apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}"#,
    )
    .unwrap();
    let (upstream, file) =
        (format!("--upstream=http://{}/", behind.address), format!("--kubeconfig={}", kubeconfig.display()));
    let mut command =
        command(&["--insecure-listen-address=127.0.0.1:0", &upstream, &file, "--v=10", "--logtostderr=true"]);
    let mut child = Ends(command.stderr(Stdio::piped()).spawn().unwrap());
    let (mut log, mut seen) = (BufReader::new(child.0.stderr.take().unwrap()), String::new());
    let address = address(&mut log, &mut seen);
    let mut stream = soon(tokio::net::TcpStream::connect(&address)).await.unwrap();
    let answer = tell(&mut stream, get("/metrics?token=verysecret", Some("verysecret"))).await;
    assert_eq!(status(&answer), 503, "{answer}");

    let pid = child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, rest) = tokio::task::spawn_blocking(move || {
        let mut rest = String::new();
        log.read_to_string(&mut rest).unwrap();
        (child.0.wait().unwrap().code(), rest)
    })
    .await
    .unwrap();
    seen.push_str(&rest);
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("\"path\":\"/metrics\"") && seen.contains("the review failed"), "the log: {seen}");
    assert!(seen.contains("--logtostderr has no effect"), "{seen}");
    assert!(!seen.contains("verysecret"), "{seen}");
}
