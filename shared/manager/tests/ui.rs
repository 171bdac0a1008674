//! Compiler messages for common mistakes in operators: the compiler must show our explanation at the place of the mistake.

use std::process::Command;

/// Compiles one of the programs in `tests/ui`, which must fail, and returns the compiler's output.
fn said(program: &str) -> String {
    let checked = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--package", "manager", "--features", "ui-tests", "--example", program])
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .expect("cargo runs");
    assert!(!checked.status.success(), "{program} compiles");
    String::from_utf8_lossy(&checked.stderr).into_owned()
}

fn assert_said(program: &str, sentences: &[&str]) {
    let said = said(program);
    for sentence in sentences {
        assert!(said.contains(sentence), "missing: {sentence}\n{said}");
    }
}

#[test]
fn what_is_no_function_is_told_what_is_expected() {
    assert_said(
        "reconciler_that_is_no_function",
        &[
            "`Greeter` is not a reconciler of `Greeting`",
            "expected `async fn(Arc<Greeting>, Context<Greeting>) -> Result<Action, Error>`",
        ],
    );
}

#[test]
fn a_reconciler_of_another_kind_is_told_the_right_one() {
    assert_said("reconciler_of_another_kind", &["expected function signature `fn(Arc<Greeting>, manager::Context<_>)"]);
}

#[test]
fn a_reconciler_that_is_not_async_is_told_so() {
    assert_said("reconciler_that_is_not_async", &["`Result<manager::Action, manager::Error>` is not a future"]);
}

#[test]
fn a_kind_that_is_no_child_is_told_where_to_make_it_one() {
    assert_said("child_without_a_view", &["`DaemonSet` cannot be a child yet", "add its view to `workloads`"]);
}
