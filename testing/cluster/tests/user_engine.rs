//! The ordinary way of kind, in the user's own Docker or Podman: both get the same commands. No engine runs: a script stands in for it,
//! for kind and for kubectl, and notes their calls.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use cluster::{Cluster, progress};

const STAND_IN: &str = include_str!("user_engine/stand-in.sh");
const IMAGE: &str = "kindest/node:v1.31.14";
/// Is set in the process that uses the stand-ins.
const INSIDE: &str = "OPERATORS_TEST_INSIDE";

#[test]
fn docker_and_podman_get_the_same_commands() {
    if std::env::var_os(INSIDE).is_some() {
        return use_a_cluster();
    }
    let calls = ["docker", "podman"].map(calls);
    let create = format!(
        "kind (ENGINE) create cluster --name dev --config FOLDER/state/dev/kind-config.json \
         --kubeconfig FOLDER/state/dev/kind.kubeconfig --wait=5m --image {IMAGE}"
    );
    let get_nodes = "kind (ENGINE) get nodes --name dev";
    let join = [
        "kind (ENGINE) export kubeconfig --name dev --kubeconfig FOLDER/state/dev/kind.kubeconfig",
        "ENGINE inspect --format={{.State.Pid}} {{.Id}} dev-control-plane",
        get_nodes,
    ];
    let check =
        ["kind (ENGINE) get clusters", "ENGINE inspect --format={{.Config.Image}} dev-control-plane", get_nodes];
    let expected = [
        &["kind (ENGINE) get clusters", create.as_str()][..],
        &join,
        &["kind (ENGINE) load image-archive --name dev /image.tar"],
        &check, // the second call joins the cluster
        &join,
        &check, // the third one is refused
        &[
            get_nodes,
            "kind (ENGINE) delete cluster --name dev --kubeconfig FOLDER/state/dev/kind.kubeconfig",
            get_nodes,
        ],
    ]
    .concat();
    for calls in calls {
        assert_eq!(calls, expected);
    }
}

/// What the program does with the cluster of a test run, from its creation to its deletion.
fn use_a_cluster() {
    let up = |workers| Cluster::kind("dev", workers, Some(IMAGE), &progress::quiet);
    let cluster = up(2).unwrap();
    assert_eq!(cluster.name(), "dev");
    cluster.load_image(Path::new("/image.tar")).unwrap();
    drop(up(2).unwrap());
    let refused = up(1).unwrap_err().to_string();
    assert!(refused.starts_with("the kind cluster dev already has 2 workers, not 1: "), "{refused}");
    assert_eq!(cluster::kind_nodes("dev").unwrap(), ["dev-control-plane", "dev-worker", "dev-worker2"]);
    cluster::delete_kind("dev").unwrap();
    assert!(cluster::kind_nodes("dev").unwrap().is_empty());
}

/// The calls of kind and of this engine, in a process whose user has only this engine, and has told kind to use the other one.
fn calls(engine: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let script = programs.join("stand-in");
    fs::write(&script, STAND_IN).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["docker", "podman", "kind", "kubectl"] {
        symlink("stand-in", programs.join(name)).unwrap();
    }
    fs::write(programs.join("engine"), engine).unwrap();
    fs::write(programs.join("clusters"), "").unwrap();

    let mut inside = Command::new(std::env::current_exe().unwrap());
    inside.args(["--exact", "docker_and_podman_get_the_same_commands", "--nocapture"]).env(INSIDE, "1");
    for name in ["KIND_ENGINE", "KIND_NODE_IMAGE", "KUBEBUILDER_ASSETS"] {
        inside.env_remove(name);
    }
    inside.env("KIND_EXPERIMENTAL_PROVIDER", if engine == "docker" { "podman" } else { "docker" });
    inside.env("PATH", format!("{}:/usr/bin:/bin", programs.display())).env("OPERATORS_TOOLS", &programs);
    inside.env("OPERATORS_STATE", folder.path().join("state")).env("OPERATORS_CACHE", folder.path().join("cache"));
    let output = inside.output().unwrap();
    let calls = fs::read_to_string(programs.join("calls")).unwrap_or_default();
    assert!(output.status.success(), "{calls}\n{}", String::from_utf8_lossy(&output.stderr));
    let place = folder.path().display().to_string();
    let told = calls.lines().filter(|call| !call.starts_with("kubectl ") && !call.ends_with(" info"));
    told.map(|call| call.replace(&place, "FOLDER").replace(engine, "ENGINE")).collect()
}
