//! The subcommand `schedule`, which needs no cluster.

use std::process::{Command, Output};

use crate::kit::BINARY;

fn schedule(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        Command::new(BINARY).arg("schedule").args(arguments).output().expect("the binary starts");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

#[test]
fn schedule_command_needs_no_cluster() {
    let next = ["next", "* * * * */5", "--from", "2026-11-19T12:34:56Z", "--count", "2", "--output", "json"];
    assert_eq!(
        schedule(&next),
        (Some(0), "[\n  \"2026-11-20T00:00:00Z\",\n  \"2026-11-20T00:01:00Z\"\n]\n".to_owned())
    );
    let (code, said) = schedule(&["explain", "* * * * */5"]);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("every minute, on Sunday and Friday\n"), "{said}");
    let (code, said) = schedule(&["check", "0 0 30 2 *"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("never fires"), "{said}");
    assert_eq!(schedule(&[]).0, Some(2), "a subcommand is required");
}
