use super::*;

const NEEDED: [&str; 3] = ["metrics-proxy", "--secure-listen-address=:8443", "--upstream=http://127.0.0.1:8080/"];

fn parse(more: &[&str]) -> Result<Settings, String> {
    parse_all(&[&NEEDED[..], more].concat())
}

fn parse_all(arguments: &[&str]) -> Result<Settings, String> {
    let flags = Flags::try_parse_from(arguments).map_err(|error| error.to_string())?;
    flags.settings().map_err(|error| error.to_string())
}

#[test]
fn minimal_flags_give_defaults() {
    let settings = parse(&[]).unwrap();
    assert_eq!(settings.secure, Some("[::]:8443".parse().unwrap()));
    assert_eq!((settings.insecure, settings.endpoints), (None, None));
    assert_eq!((settings.scheme, settings.authority.as_str()), (Scheme::HTTP, "127.0.0.1:8080"));
    assert_eq!(settings.http2, Some(Http2 { max_concurrent_streams: 32, stream_window: 262_144, ..Http2::default() }));
    assert_eq!(settings.times.token, Duration::from_mins(2));
    assert!(!settings.identity.enabled && settings.ignored.is_empty());
}

#[test]
fn flags_match_kube_rbac_proxy_semantics() {
    let settings = parse(&[
        "--proxy-endpoints-port=8643",
        "--allow-paths=/metrics,/api/*",
        "--allow-paths=/more",
        "--http2-disable=true",
        "--auth-header-fields-enabled",
        "--auth-header-groups-field-separator=;",
        "--tls-min-version=VersionTLS13",
        "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "--authorization-webhook-cache-authorized-ttl=1m30s",
    ])
    .unwrap();
    assert_eq!(settings.endpoints, Some("[::]:8643".parse().unwrap()));
    assert!(["/metrics", "/api/x", "/more"].iter().all(|path| settings.rules.allow_paths.matches(path)));
    assert_eq!(settings.http2, None);
    assert!(settings.identity.enabled);
    assert_eq!(settings.identity.separator, ";");
    assert_eq!(settings.min_version, MinVersion::Tls13);
    assert_eq!(settings.times.allowed, Duration::from_secs(90));
    assert!(parse(&["--http2-disable=false"]).unwrap().http2.is_some());
}

#[test]
fn ineffective_flags_are_accepted_and_reported() {
    // The flags of kube-rbac-proxy's own test of such flags.
    let flags = [
        "--add-dir-header=true",
        "--alsologtostderr=true",
        "--log-backtrace-at=0",
        "--log-dir=mustnotexist",
        "--log-file=mustnotexist",
        "--log-file-max-size=1800",
        "--one-output=true",
        "--skip-headers=true",
        "--skip-log-headers=true",
        "--stderrthreshold=2",
        "--v=10",
    ];
    assert_eq!(parse(&flags).unwrap().ignored.len(), 10);
    let ignored = parse(&["--logtostderr", "--tls-reload-interval=1m", "-v", "3"]).unwrap().ignored;
    assert_eq!(ignored, ["logtostderr", "tls-reload-interval"]);
}

#[test]
fn invalid_flags_are_rejected_with_reason() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "authorization:\n  statics: []\n").unwrap();
    let config = format!("--config-file={}", file.path().display());
    for (flags, because) in [
        (&["--nonsense"][..], "unexpected argument '--nonsense'"),
        (&["--allow-paths=/a", "--ignore-paths=/b"], "cannot be used with"),
        (&["--allow-paths=/[a"], "--allow-paths: \"/[a\" is not a pattern for paths: [ without ]"),
        (&["--ignore-paths=metrics"], "--ignore-paths: \"metrics\" is not a pattern for paths: it must begin with /"),
        (&["--tls-min-version=VersionTLS11"], "--tls-min-version: unknown TLS version \"VersionTLS11\""),
        (&["--tls-cipher-suites=RC4"], "--tls-cipher-suites: cipher suite \"RC4\" is not offered"),
        (&["--tls-cert-file=a"], "--tls-private-key-file"),
        (&["--upstream-client-key-file=a"], "--upstream-client-cert-file"),
        (&["--upstream-ca-file=a"], "need an --upstream that begins with https"),
        (&["--auth-header-user-field-name=a b"], "\"a b\" is not the name of a header"),
        (&["--proxy-endpoints-port=70000"], "70000"),
        (&["--upstream-timeout=0s"], "expected a time such as 30s"),
        (&["--oidc-issuer=https://a"], "--oidc-* is not supported"),
        (&["--config-file=/nowhere"], "--config-file /nowhere: No such file"),
        (&[&config], "statics"),
    ] {
        let error = parse(flags).expect_err(&flags.join(" "));
        assert!(error.contains(because), "{flags:?}: {error}");
    }
    for (arguments, because) in [
        (&["p"][..], "--upstream"),
        (&["p", "--upstream=http://a"], "give --secure-listen-address"),
        (&["p", "--upstream=http://a", "--insecure-listen-address=:1", "--proxy-endpoints-port=1"], "needs --secure"),
        (&["p", "--upstream=http://a", "--insecure-listen-address=:1", "--client-ca-file=a"], "needs --secure"),
        (&["p", "--upstream=http://a", "--secure-listen-address=8443"], "is no address to listen on"),
        (&["p", "--upstream=127.0.0.1:8080", "--secure-listen-address=:1"], "is no URL of a server"),
        (&["p", "--upstream=ftp://a/", "--secure-listen-address=:1"], "is no URL of a server"),
        (&["p", "--upstream=http://a/path", "--secure-listen-address=:1"], "is no URL of a server"),
        (&["p", "--upstream=https://a", "--secure-listen-address=:1", "--upstream-force-h2c"], "needs an --upstream"),
    ] {
        let error = parse_all(arguments).expect_err(&arguments.join(" "));
        assert!(error.contains(because), "{arguments:?}: {error}");
    }
}
