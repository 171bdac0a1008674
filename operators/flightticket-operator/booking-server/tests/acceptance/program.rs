//! The program: flags, exit codes, signals.

use std::{fs, time::Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    client::{Ask, until},
    process::{Process, command},
    served::{database, sound},
};

fn run(flags: &[&str]) -> (Option<i32>, String, String) {
    let output = command().args(flags).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn help_and_version_exit_0() {
    let (code, help, _) = run(&["--help"]);
    assert_eq!(code, Some(0));
    for flag in [
        "--listen",
        "--admin-listen",
        "--db",
        "--token-file",
        "--routes-file",
        "--unknown-routes",
        "--default-seats",
        "--confirm-delay",
        "--fault-injection",
        "--insecure",
        "BOOKING_TOKEN_FILE",
        "Try it:",
    ] {
        assert!(help.contains(flag), "{flag}");
    }
    assert_eq!(run(&["--version"]).0, Some(0));
}

#[test]
fn invalid_flags_print_one_line_and_exit_2() {
    let missing = "--routes-file /nowhere/routes.json";
    for (flags, told) in [
        (vec![], "--token-file is not set"),
        (vec!["--insecure", "--token-file", "x"], "contradict"),
        (vec!["--insecure", "--unknown-routes", "maybe"], "[possible values: allow, reject]"),
        (vec!["--insecure", "--confirm-delay", "soon"], "not a time such as 500ms"),
        (vec!["--insecure", "--default-seats", "10001"], "10001 is not in 0..=10000"),
        (vec!["--insecure", "--tls-cert-file", "x"], "need each other"),
        (vec!["--insecure", "--log-level", "a=b=c"], "--log-level"),
        (vec!["--insecur"], "unexpected argument '--insecur'"),
        ([vec!["--insecure"], missing.split(' ').collect()].concat(), missing),
    ] {
        let (code, out, err) = run(&flags);
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(2), "", 1), "{flags:?}: {err}");
        assert!(err.starts_with("error: ") && err.contains(told), "{flags:?}: {err}");
    }
}

#[test]
fn unusable_database_exits_1_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file("text", &"no database\n".repeat(100));
    let newer = database(folder.path());
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let newer = newer.to_str().unwrap();
    for (db, told) in [
        ("/nowhere/bookings.db", "does not exist: make it"),
        (text.as_str(), "file is not a database"),
        (newer, "the database has version 99, this program knows 1"),
    ] {
        let any = "127.0.0.1:0";
        let (code, _, err) = run(&["--insecure", "--listen", any, "--admin-listen", any, "--db", db]);
        assert_eq!(code, Some(1), "{db}: {err}");
        assert!(err.contains(told), "{db}: {err}");
    }
}

#[tokio::test]
async fn sigterm_finishes_requests_and_checkpoints_wal() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path(), &["--fault-injection"]);
    let fault = json!({"op": "create", "mode": "delay", "delayMs": 500});
    process.admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap();
    let api = process.api.clone();
    let running = tokio::spawn(async move { api.ask(Ask::book("r", "Paris", 1)).await });
    until(&process.admin, Ask::new("GET", "/admin/faults"), |answer| answer.json()["items"][0]["fired"] == 1).await;
    process.signal(Signal::TERM);
    until(&process.admin, Ask::new("GET", "/readyz"), |answer| answer.status == 500).await;
    assert_eq!(running.await.unwrap().unwrap().status, 201);
    assert_eq!(process.wait().code(), Some(0));
    let log_length = fs::metadata(folder.path().join("bookings.db-wal")).map_or(0, |file| file.len());
    assert_eq!(log_length, 0, "everything is in the database file");
    assert_eq!(sound(folder.path()).seats_taken, 1);
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(folder.path(), &["--fault-injection"]);
    let fault = json!({"op": "create", "mode": "hang"});
    process.admin.raw(Ask::new("POST", "/admin/faults").json(&fault)).await.unwrap();
    let api = process.api.clone();
    let hanging = tokio::spawn(async move { api.ask(Ask::book("r", "Paris", 1)).await });
    until(&process.admin, Ask::new("GET", "/admin/faults"), |answer| answer.json()["items"][0]["fired"] == 1).await;
    process.signal(Signal::TERM);
    until(&process.admin, Ask::new("GET", "/readyz"), |answer| answer.status == 500).await;
    let asked = Instant::now();
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code(), Some(1));
    assert!(asked.elapsed().as_secs() < 8, "it waited for the request");
    hanging.await.unwrap().unwrap_err();
}

#[tokio::test]
async fn settings_are_read_from_environment() {
    let folder = tempfile::tempdir().unwrap();
    let routes = folder.path().join("routes.json");
    fs::write(&routes, r#"[{"from":"London","to":"Paris","seats":2}]"#).unwrap();
    let mut command = command();
    command
        .env("BOOKING_DB", database(folder.path()))
        .env("BOOKING_LISTEN", "127.0.0.1:0")
        .env("BOOKING_ADMIN_LISTEN", "127.0.0.1:0")
        .env("BOOKING_INSECURE", "true")
        .env("BOOKING_ROUTES_FILE", &routes)
        .env("BOOKING_UNKNOWN_ROUTES", "reject");
    let process = Process::of(command);
    assert_eq!(process.api.must(Ask::book("a", "Paris", 2)).await.status, 201);
    assert_eq!(process.api.must(Ask::book("b", "Paris", 1)).await.code(), "INSUFFICIENT_SEATS");
    assert_eq!(process.api.must(Ask::book("c", "Rome", 1)).await.code(), "ROUTE_NOT_FOUND");
    // Each day has seats of its own, as many as its route.
    let order = json!({"reference": "d", "from": "LONDON", "to": "Paris", "number": 2, "departureDate": "2999-12-31"});
    assert_eq!(process.api.must(Ask::order("d", &order)).await.status, 201);
    assert_eq!(sound(folder.path()).seats_taken, 4);
}
