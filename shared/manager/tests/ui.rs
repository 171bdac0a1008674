//! Compiler messages for common mistakes in operators: the compiler must show our explanation at the place of the mistake.

use std::process::Command;

/// Compiles one of the programs in `tests/ui`, which must fail, and returns the compiler's output.
fn said(program: &str) -> String {
    // With all packages selected, the dependencies have the same features as for clippy, which has checked them already.
    let mut cargo = Command::new(env!("CARGO"));
    // Build scripts depend on the variables in which nextest describes the package of this test. With them, cargo compiles again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|start| name.to_string_lossy().starts_with(start)) {
            cargo.env_remove(name);
        }
    }
    let checked = cargo
        .args(["check", "--quiet", "--workspace", "--features", "operators-manager/ui-tests", "--example", program])
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .expect("cargo runs");
    assert!(!checked.status.success(), "{program} compiles");
    String::from_utf8_lossy(&checked.stderr).into_owned()
}

fn assert_compiler_output(program: &str, sentences: &[&str]) {
    let said = said(program);
    for sentence in sentences {
        assert!(said.contains(sentence), "missing: {sentence}\n{said}");
    }
}

#[test]
fn non_function_reconciler_error_names_expected_signature() {
    assert_compiler_output(
        "reconciler_that_is_no_function",
        &[
            "`Greeter` is not a reconciler of `Greeting`",
            "expected `async fn(Arc<Greeting>, Context<Greeting>) -> Result<Action, Error>`",
        ],
    );
}

#[test]
fn wrong_kind_reconciler_error_names_the_expected_kind() {
    assert_compiler_output(
        "reconciler_of_another_kind",
        &["expected function signature `fn(Arc<Greeting>, manager::Context<_>)"],
    );
}

#[test]
fn non_async_reconciler_is_rejected_as_not_a_future() {
    assert_compiler_output(
        "reconciler_that_is_not_async",
        &["`Result<manager::Action, manager::Error>` is not a future"],
    );
}

#[test]
fn non_child_kind_error_names_the_wrapper() {
    assert_compiler_output(
        "child_without_a_view",
        &["`DaemonSet` cannot be a child yet", "use `Whole<DaemonSet>` for one of another crate"],
    );
}

#[test]
fn cluster_scoped_child_of_a_namespaced_kind_is_explained() {
    assert_compiler_output(
        "cluster_scoped_child",
        &[
            "an object in a namespace cannot own a cluster-scoped object",
            "the garbage collector would delete the child",
        ],
    );
}

#[test]
fn watched_kind_without_a_view_error_names_the_wrapper() {
    assert_compiler_output(
        "watched_without_a_view",
        &["`DaemonSet` cannot be cached yet", "use `Whole<DaemonSet>` for one of another crate"],
    );
}

#[test]
fn reference_to_cluster_scoped_objects_error_names_both_scopes() {
    assert_compiler_output(
        "cluster_scoped_reference",
        &["type mismatch resolving", "NamespaceResourceScope", "ClusterResourceScope"],
    );
}

#[test]
fn config_that_the_controller_lacks_is_a_type_error() {
    assert_compiler_output(
        "reconciler_without_config",
        &["type mismatch in function arguments", "expected function signature"],
    );
}

#[test]
fn view_of_no_kind_error_names_the_trait() {
    assert_compiler_output("view_of_no_kind", &["ViewOf<DaemonSet>` is not satisfied"]);
}

#[test]
fn status_without_conditions_error_names_the_standard_status() {
    assert_compiler_output(
        "status_without_conditions",
        &["the runtime cannot report to the status `Count`", "use `status = \"StandardStatus\"`"],
    );
}
