//! The image of a node of kind, from parts that this repository builds or that come from package registries: Debian, kind's own
//! files out of its Go module, Kubernetes with kubeadm, containerd, runc, network plugins, and the images of the control plane.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::debian;
use super::says;
use super::steps::finish;
use super::system_images::{self, Parts};
use crate::missing::require;
use crate::supervisor::docker;
use crate::supervisor::namespaces::SYSCTLS;
use crate::tools::{Tool, Tools};

/// Raise it when a change of the code below changes the image.
pub(super) const RECIPE: u32 = 2;

/// The tools in an image with the Kubernetes of this tool.
pub(super) fn tools(kubernetes: Tool) -> Vec<Tool> {
    let kubeadm = if kubernetes.binaries().contains(&"kubeadm") { None } else { Some(Tool::Kubeadm) };
    let others = [Tool::Etcd, Tool::Containerd, Tool::Runc, Tool::Cni, Tool::Coredns, Tool::Kind];
    others.into_iter().chain([kubernetes]).chain(kubeadm).collect()
}

/// The entry point: [`keep_kernel`], then that of kind, and systemd with the version of control groups that the container has. Without the last argument, a
/// systemd of Debian 12 works in version 2 if the machine has both.
pub(super) const ENTRYPOINT: [&str; 4] = [
    "/kind/bin/keep-kernel.sh",
    "/usr/local/bin/entrypoint",
    "/sbin/init",
    "systemd.legacy_systemd_cgroup_controller=1",
];

/// Writes the file system of a node into an archive. `debian` is an archive of [`debian::NODE`], and `work` an empty folder.
pub(super) fn build(
    tools: &Tools,
    version: &str,
    debian: &Path,
    work: &Path,
    target: &Path,
    tick: &dyn Fn(),
) -> Result<()> {
    let (root, log) = (work.join("root"), work.join("log"));
    fs::create_dir_all(&root)?;
    let tar = require("tar", "tar")?;
    finish(
        Command::new(&tar).args(["--numeric-owner", "--xattrs", "-xf"]).arg(debian).arg("-C").arg(&root),
        &log,
        tick,
    )?;
    add_files_of_kind(&root)?;
    choose_units(&root)?;
    add_programs(&root, tools, version)?;
    adapt(&root)?;
    let parts = Parts { tools, version, root: &root, pause: &pause(&root)? };
    let archives = system_images::archives(&parts, work)?;
    tick();
    import(&root, tools, &archives, work, tick)?;
    let mut pack = Command::new(&tar);
    pack.args(["--numeric-owner", "--xattrs", "--sort=name", "-cf"]).arg(target).arg("-C").arg(&root).arg(".");
    finish(&mut pack, &log, tick)
}

/// Copies the files of kind's base image.
fn add_files_of_kind(root: &Path) -> Result<()> {
    let module = crate::tools::module_folder(Tool::Kind, "sigs.k8s.io/kind")?;
    let files = module.join("images/base/files");
    let mut folders = vec![files.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("kind has no {}", folder.display()))? {
            let source = entry?.path();
            if source.is_dir() {
                folders.push(source);
                continue;
            }
            let name = source.strip_prefix(&files)?;
            write(&root.join(name), &fs::read(&source)?, mode_of_kind(name))?;
        }
    }
    Ok(())
}

fn mode_of_kind(name: &Path) -> u32 {
    let is_program = name.parent().is_some_and(|folder| folder.ends_with("bin"));
    if is_program { 0o755 } else { 0o644 }
}

/// The units of Debian that a node does not start, as kind chooses them: a folder, and what the names in it contain. A node does
/// not start what packages have enabled either.
const UNWANTED: [(&str, &str); 6] = [
    ("lib/systemd/system/sysinit.target.wants", "systemd-tmpfiles-setup.service"),
    ("lib/systemd/system/multi-user.target.wants", ""),
    ("lib/systemd/system/local-fs.target.wants", ""),
    ("lib/systemd/system/sockets.target.wants", "udev"),
    ("lib/systemd/system/sockets.target.wants", "initctl"),
    ("lib/systemd/system/basic.target.wants", ""),
];

fn choose_units(root: &Path) -> Result<()> {
    let units = root.join("etc/systemd/system");
    let folders = fs::read_dir(&units)?.flatten().map(|entry| entry.path());
    let enabled = folders.filter(|folder| folder.extension().is_some_and(|extension| extension == "wants"));
    let unwanted = UNWANTED.into_iter().map(|(folder, part)| (root.join(folder), part));
    for (folder, part) in enabled.map(|folder| (folder, "")).chain(unwanted) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(part) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    let wants = units.join("multi-user.target.wants");
    fs::create_dir_all(&wants)?;
    for unit in ["containerd.service", "kubelet.service", "undo-mount-hacks.service"] {
        ensure!(units.join(unit).is_file(), "kind's base image has no unit {unit}");
        symlink(format!("/etc/systemd/system/{unit}"), wants.join(unit))?;
    }
    symlink("/dev/null", units.join("systemd-binfmt.service"))?;
    let init = root.join("sbin/init");
    let _ = fs::remove_file(&init); // Debian has none without the package systemd-sysv
    symlink("/lib/systemd/systemd", &init)?;
    let journald = root.join("etc/systemd/journald.conf");
    let text = fs::read_to_string(&journald).unwrap_or_default();
    write(&journald, format!("{text}ReadKMsg=no\n").as_bytes(), 0o644)
}

fn add_programs(root: &Path, tools: &Tools, version: &str) -> Result<()> {
    for (program, folder) in [
        ("containerd", "usr/local/bin"),
        ("containerd-shim-runc-v2", "usr/local/bin"),
        ("ctr", "usr/local/bin"),
        ("runc", "usr/local/sbin"),
        ("ptp", "opt/cni/bin"),
        ("loopback", "opt/cni/bin"),
        ("host-local", "opt/cni/bin"),
        ("kubeadm", "usr/bin"),
        ("kubelet", "usr/bin"),
    ] {
        let target = root.join(folder).join(program);
        fs::create_dir_all(target.with_file_name(""))?;
        fs::copy(tools.binary(program)?, &target).with_context(|| format!("could not copy {program}"))?;
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    symlink("kubelet", root.join("usr/bin/kubectl"))?; // one program, which looks at its name
    // kind asks for the images of each node when it collects logs, and its error would hide the rest.
    let crictl = "#!/bin/sh\n[ \"$*\" = images ] && exec ctr --namespace=k8s.io images list\n\
                  echo 'this node has no crictl: use ctr' >&2\nexit 1\n";
    write(&root.join("usr/local/bin/crictl"), crictl.as_bytes(), 0o755)?;
    write(&root.join("kind/version"), format!("{version}\n").as_bytes(), 0o644)?;
    // Each container of a pod gets the identity of its node, as in kind's own image.
    let mut spec: Value = serde_json::from_str(&says(Command::new(tools.binary("ctr")?).args(["oci", "spec"]))?)?;
    spec["hooks"]["createContainer"] = serde_json::json!([{"path": "/kind/bin/mount-product-files.sh"}]);
    spec["process"].as_object_mut().context("ctr printed no process")?.remove("rlimits");
    write(&root.join("etc/containerd/cri-base.json"), spec.to_string().as_bytes(), 0o644)?;
    fs::create_dir_all(root.join("etc/kubernetes/manifests"))?;
    Ok(())
}

/// Changes what would reach beyond the node, and what a machine may forbid.
fn adapt(root: &Path) -> Result<()> {
    // Debian's settings are for the kernel of the machine. Those of kind are for the network of the node.
    for entry in fs::read_dir(root.join("usr/lib/sysctl.d")).into_iter().flatten().flatten() {
        fs::remove_file(entry.path())?;
    }
    for file in ["etc/sysctl.d/99-sysctl.conf", "etc/sysctl.conf"] {
        let _ = fs::remove_file(root.join(file)); // not every release has them
    }
    write(&root.join(&ENTRYPOINT[0][1..]), keep_kernel().as_bytes(), 0o755)?;
    let unit = "[Service]\nOOMScoreAdjust=\n"; // lowering it needs CAP_SYS_RESOURCE
    write(&root.join("etc/systemd/system/containerd.service.d/10-oom.conf"), unit.as_bytes(), 0o644)?;
    let file = root.join("etc/containerd/config.toml");
    write(&file, containerd_config(&fs::read_to_string(&file)?)?.as_bytes(), 0o644)?;
    let hosts = images::registry::hosts_toml(docker::registry());
    write(&root.join("etc/containerd/certs.d/_default/hosts.toml"), hosts.as_bytes(), 0o644)
}

/// The first program of a node. It keeps systemd and the kubelet from changing the kernel's settings for the whole machine: these are
/// read-only in the node, and the kubelet sees the values that it requires in files over them.
fn keep_kernel() -> String {
    use std::fmt::Write as _;
    let mut script = "#!/bin/sh\nset -e\nmkdir -p /run/sysctls\n".to_owned();
    script.push_str("for area in fs kernel vm; do\n  mount --bind \"/proc/sys/$area\" \"/proc/sys/$area\"\n");
    script.push_str("  mount -o remount,bind,ro \"/proc/sys/$area\"\ndone\n");
    script.push_str("show() {\n  [ -e \"/proc/sys/$1\" ] || return 0\n  file=/run/sysctls/$(echo \"$1\" | tr / .)\n");
    script.push_str("  echo \"$2\" >\"$file\"\n  mount --bind \"$file\" \"/proc/sys/$1\"\n}\n");
    for (name, value) in SYSCTLS {
        let _ = writeln!(script, "show {name} {value}"); // a String accepts all writes
    }
    script.push_str("exec \"$@\"\n");
    script
}

/// kind's configuration of containerd, with our registry, and without scores that need `CAP_SYS_RESOURCE`.
fn containerd_config(of_kind: &str) -> Result<String> {
    let old = "restrict_oom_score_adj = false";
    ensure!(of_kind.contains(old), "kind's configuration of containerd has no {old:?}: adapt this function to it");
    let changed = of_kind.replace(old, "restrict_oom_score_adj = true");
    Ok(format!(
        "{changed}\n[plugins.\"io.containerd.grpc.v1.cri\".registry]\n  config_path = \"/etc/containerd/certs.d\"\n"
    ))
}

/// The image that holds the namespaces of pods, which kind's configuration of containerd names.
fn pause(root: &Path) -> Result<String> {
    let config = fs::read_to_string(root.join("etc/containerd/config.toml"))?;
    sandbox_image(&config).map(str::to_owned).context("kind's configuration of containerd names no sandbox_image")
}

fn sandbox_image(config: &str) -> Option<&str> {
    let value = config.lines().find_map(|line| line.trim().strip_prefix("sandbox_image")?.trim().strip_prefix('='))?;
    Some(value.trim().trim_matches('"'))
}

/// Puts images into the store of the node's containerd. Each node unpacks them when it needs them.
fn import(root: &Path, tools: &Tools, archives: &[PathBuf], work: &Path, tick: &dyn Fn()) -> Result<()> {
    let (store, socket, log) = (root.join("var/lib/containerd"), work.join("containerd.sock"), work.join("log"));
    fs::create_dir_all(&store)?;
    let config = work.join("containerd.toml");
    fs::write(
        &config,
        format!(
            "version = 3\nroot = '{}'\nstate = '{}'\ndisabled_plugins = ['io.containerd.grpc.v1.cri', \
             'io.containerd.cri.v1.runtime', 'io.containerd.cri.v1.images']\n[grpc]\naddress = '{}'\n[ttrpc]\naddress = '{}.ttrpc'\n",
            store.display(),
            work.join("state").display(),
            socket.display(),
            socket.display(),
        ),
    )?;
    // In namespaces of its own, so that its mounts and its processes end with it.
    let mut containerd = Command::new(require("unshare", "util-linux")?);
    containerd.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--"]);
    containerd.arg(tools.binary("containerd")?).arg("--config").arg(&config).stdin(Stdio::null());
    let output = fs::File::create(work.join("containerd.log"))?;
    let mut containerd =
        containerd.stdout(output.try_clone()?).stderr(output).spawn().context("could not start containerd")?;
    let imported = wait_for(&socket).and_then(|()| {
        archives.iter().try_for_each(|archive| {
            let mut ctr = Command::new(tools.binary("ctr")?);
            ctr.arg("--address").arg(&socket).args([
                "--namespace=k8s.io",
                "images",
                "import",
                "--local",
                "--no-unpack",
            ]);
            finish(ctr.arg(archive), &log, tick)
        })
    });
    containerd.kill()?;
    containerd.wait()?;
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_ok() && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50)); // the kernel ends it after `unshare`
    }
    imported?;
    let folders = fs::read_dir(&store)?.flatten().map(|entry| entry.path());
    for folder in folders.filter(|folder| !keeps(folder)) {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}

/// Whether the images are in this folder of containerd.
fn keeps(folder: &Path) -> bool {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("io.containerd.content") || name.starts_with("io.containerd.metadata")
}

fn wait_for(socket: &Path) -> Result<()> {
    let begun = Instant::now();
    while !socket.exists() {
        if begun.elapsed() > Duration::from_secs(30) {
            bail!("containerd did not start: see {}", socket.with_file_name("containerd.log").display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn write(file: &Path, content: &[u8], mode: u32) -> Result<()> {
    let put = || -> std::io::Result<()> {
        fs::create_dir_all(file.with_file_name(""))?;
        fs::write(file, content)?;
        fs::set_permissions(file, fs::Permissions::from_mode(mode))
    };
    put().with_context(|| format!("could not write {}", file.display()))
}

/// The inputs of the image that no tool's sources show.
pub(super) fn inputs() -> String {
    format!("{RECIPE} {:?} {ENTRYPOINT:?} {}", debian::NODE, keep_kernel())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\n  # use fixed sandbox image\n  \
        sandbox_image = \"registry.k8s.io/pause:3.10\"\n  restrict_oom_score_adj = false\n";

    #[test]
    fn containerd_pulls_from_our_registry_and_keeps_to_the_rest_of_kind() {
        let config = containerd_config(CONFIG).unwrap();
        assert!(config.contains("restrict_oom_score_adj = true"));
        assert!(config.ends_with("config_path = \"/etc/containerd/certs.d\"\n"));
        assert_eq!(sandbox_image(&config), Some("registry.k8s.io/pause:3.10"));
        assert!(containerd_config("version = 3\n").unwrap_err().to_string().contains("adapt this function"));
    }

    #[test]
    fn programs_of_kind_are_executable() {
        let mode = |name: &str| mode_of_kind(Path::new(name));
        assert_eq!([mode("usr/local/bin/entrypoint"), mode("kind/bin/undo-mount-hacks.sh")], [0o755, 0o755]);
        assert_eq!([mode("etc/systemd/system/kubelet.service"), mode("kind/README.txt")], [0o644, 0o644]);
    }

    #[test]
    fn settings_of_the_machine_are_read_only_and_the_kubelet_sees_what_it_would_set() {
        let script = keep_kernel();
        assert!(script.starts_with("#!/bin/sh\n"));
        for (name, value) in SYSCTLS {
            assert!(script.contains(&format!("\nshow {name} {value}\n")), "{script}");
            assert!(["fs/", "kernel/", "vm/"].iter().any(|area| name.starts_with(area)), "{name} is not protected");
        }
        assert!(script.ends_with("exec \"$@\"\n"));
        let checked = Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
        assert!(checked.success());
    }
}
