//! The plugin as a program: its exit codes, where it writes what, and how kubectl completes the words after it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use cluster::{Tool, Tools, progress};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-operators");

/// Runs a command without what the user has set. Returns the exit code, the standard output and the standard error.
fn ends(command: &mut Command) -> (Option<i32>, String, String) {
    for name in ["KUBECONFIG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name);
    }
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    (status.code(), String::from_utf8(stdout).expect("text"), String::from_utf8(stderr).expect("text"))
}

fn plugin(arguments: &[&str]) -> (Option<i32>, String, String) {
    ends(Command::new(PROGRAM).args(arguments))
}

/// A kubeconfig of a cluster that does not run: no program listens on port 1.
fn unreachable_cluster() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unreachable.kubeconfig");
    let text = "{apiVersion: v1, kind: Config, current-context: a, \
                clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}], \
                contexts: [{name: a, context: {cluster: a, user: a}}]}";
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn help_and_completions_need_no_cluster() {
    let (code, help, error) = plugin(&["--help"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(help.contains("Usage: kubectl operators ") && help.contains("what is wrong first"), "{help}");
    let (code, script, error) = plugin(&["completions", "bash"]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(script.contains("kubectl-operators") && script.contains("migrate-storage"), "{script}");
}

#[test]
fn failures_have_an_exit_code_and_say_what_to_do() {
    let (code, text, error) = plugin(&["status", "--nonsense"]);
    assert_eq!((code, text.as_str()), (Some(2), ""));
    assert!(error.contains("--nonsense"), "{error}");

    let (code, text, error) = plugin(&["status", "--kubeconfig", "/nowhere/kubeconfig"]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    let advice = "; give --kubeconfig and --context, or set KUBECONFIG\n";
    assert!(error.starts_with("error: cannot read the kubeconfig: ") && error.ends_with(advice), "{error}");

    let (code, text, error) = ends(Command::new(PROGRAM).args(["status", "--kubeconfig"]).arg(unreachable_cluster()));
    assert_eq!((code, text.as_str()), (Some(1), ""));
    let (what, advice) =
        ("error: cannot read which kinds the cluster has: ", "; is the cluster of this --context running?\n");
    assert!(error.starts_with(what) && error.ends_with(advice), "{error}");
}

/// The result is lost, and a script must notice.
#[test]
fn result_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
    let (code, text, error) = ends(Command::new(PROGRAM).args(["completions", "bash"]).stdout(full));
    assert_eq!((code, text.as_str()), (Some(1), ""));
    assert!(error.starts_with("error: cannot write the result: "), "{error}");
}

/// kubectl runs this script, which finds the plugin in the `PATH`.
#[test]
fn script_for_kubectl_completes_words() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl_complete-operators");
    let folder = Path::new(PROGRAM).parent().expect("a folder");
    let (code, text, error) = ends(Command::new(script).arg("sta").env("PATH", folder));
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(text.starts_with("status\t") && text.ends_with("\n:4\n"), "{text}");
}

/// kubectl finds the plugin and the script in the `PATH`. It needs no cluster for that.
#[test]
fn kubectl_completes_the_words_after_its_plugin() {
    let built = Tools::locate_or_build(&[Tool::Kubernetes], &progress::to_stderr);
    let Some(tools) = cluster::or_skip(built) else { return };
    let folders = [Path::new(PROGRAM).parent().expect("a folder"), Path::new(env!("CARGO_MANIFEST_DIR"))];
    let path = std::env::join_paths(folders).expect("a path");
    let completed = |words: &[&str]| {
        let mut kubectl = Command::new(tools.binary("kubectl").expect("it is one of these tools"));
        kubectl.arg("__complete").args(words).env("PATH", &path).env("HOME", env!("CARGO_TARGET_TMPDIR"));
        // On standard error, kubectl says which programs it has called.
        let (code, text, error) = ends(&mut kubectl);
        assert_eq!(code, Some(0), "{error}");
        text
    };
    let text = completed(&["operat"]);
    assert!(text.starts_with("operators\t"), "{text}");
    let text = completed(&["operators", "sta"]);
    assert!(text.starts_with("status\tShow all objects") && text.ends_with("\n:4\n"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert_eq!(completed(&["operators", "status", "--output", ""]), "table\njson\n:4\n");
}
