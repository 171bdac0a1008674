//! What clusters leave on the machine that runs them. A snapshot before and one after show it: whatever is only in the second one was
//! left behind.

mod rules;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::missing::{Missing, last_line};
use crate::supervisor::MEMBER_OF;
use crate::supervisor::namespaces::SYSCTLS;
use crate::tools::{Tool, Tools};
use crate::{cgroups, layout, progress};

/// How long the kernel may take to clean up what has ended.
const PATIENCE: Duration = Duration::from_secs(10);
/// The root of all hierarchies of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// What a cluster can leave behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residue {
    /// A mount in the namespace of this process.
    Mount,
    /// A network namespace that has a process.
    NetworkNamespace,
    /// A process in another network namespace than this one, which may be of a container of others.
    Process,
    /// A process that names a cluster in its environment.
    Member,
    /// A cgroup that is not that of a service of the machine or of a session, and has no process that runs beside all clusters.
    Cgroup,
    /// A loop device with a file.
    LoopDevice,
    /// A network interface.
    Interface,
    /// A rule of the packet filter, or a chain or a table.
    Rule,
    /// A setting of the kernel with its value, of those that a kubelet or the systemd of a node sets.
    Setting,
    /// A file or a folder beside those of clusters.
    File,
}

/// The state of the machine, as far as clusters change it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostState {
    found: BTreeMap<Residue, BTreeSet<String>>,
    /// The cgroups of processes that run beside all clusters. Empty ones may stay when these end.
    foreign: BTreeSet<PathBuf>,
    /// The kinds that this machine does not show, with the reason.
    unseen: BTreeMap<Residue, String>,
}

impl Residue {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Mount,
        Self::NetworkNamespace,
        Self::Process,
        Self::Member,
        Self::Cgroup,
        Self::LoopDevice,
        Self::Interface,
        Self::Rule,
        Self::Setting,
        Self::File,
    ];

    /// What a process is, if clusters can have started it.
    fn of_process(is_elsewhere: bool, is_member: bool) -> Option<Self> {
        if is_member { Some(Self::Member) } else { is_elsewhere.then_some(Self::Process) }
    }
}

impl HostState {
    /// The present state.
    ///
    /// # Errors
    ///
    /// [`Missing`] if this process is not root, which alone sees all of it.
    pub fn read() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Missing("only root sees what a cluster leaves on the machine".into()).into());
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("could not read the mounts")?;
        let mut found = processes(&layout::root());
        let mut cgroups = BTreeSet::new();
        folders(Path::new(CGROUPS), &mut cgroups);
        cgroups.retain(|folder| !folder.strip_prefix(CGROUPS).is_ok_and(is_of_system));
        let (mut foreign, cgroups): (BTreeSet<_>, BTreeSet<_>) =
            cgroups.into_iter().partition(|folder| is_of_others(folder, &layout::root()));
        without_roots(&mut foreign, &cgroups::hierarchies());
        let text = |path: PathBuf| path.display().to_string();
        let (rules, reason) = packet_filter()?;
        found.extend([
            (Residue::Mount, self::mounts(&mounts)),
            (Residue::Cgroup, cgroups.into_iter().map(text).collect()),
            (Residue::LoopDevice, loop_devices()),
            (Residue::Interface, names(Path::new("/sys/class/net")).collect()),
            (Residue::Rule, rules),
            (Residue::Setting, settings(Path::new("/proc/sys"))),
            (Residue::File, names(&layout::root()).collect()),
        ]);
        let unseen = reason.map(|reason| (Residue::Rule, reason)).into_iter().collect();
        Ok(Self { found, foreign, unseen })
    }

    /// The kinds that this machine does not show, with the reason. A comparison with this state says nothing about them.
    pub fn unseen(&self) -> impl Iterator<Item = (Residue, &str)> {
        self.unseen.iter().map(|(kind, why)| (*kind, why.as_str()))
    }

    /// What this state has more than `before`, a line for each; none if nothing was left behind. Kinds in `kept` do not count.
    pub fn left_since(&self, before: &Self, kept: &[Residue]) -> Vec<String> {
        // If the machine shows a kind only now, all of that kind would look new.
        let is_new = |kind: &Residue| before.unseen.contains_key(kind) && !self.unseen.contains_key(kind);
        let counts = self.found.iter().filter(|(kind, _)| !kept.contains(kind) && !is_new(kind));
        let none = BTreeSet::new();
        let more = counts.flat_map(|(kind, names)| {
            let known = before.found.get(kind).unwrap_or(&none);
            let others =
                names.difference(known).filter(move |name| *kind != Residue::Cgroup || !before.is_foreign(name));
            others.map(move |name| format!("{kind:?} {name}"))
        });
        more.collect()
    }

    /// The same for the state some moments from now: as soon as nothing is left, or what is left in the end.
    pub fn left_after(before: &Self, kept: &[Residue]) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            let left = Self::read()?.left_since(before, kept);
            if left.is_empty() || begun.elapsed() > PATIENCE {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(200)); // the kernel still cleans up
        }
    }

    /// Whether this cgroup, or one above it, has had a process that runs beside all clusters.
    fn is_foreign(&self, cgroup: &str) -> bool {
        Path::new(cgroup).ancestors().any(|folder| self.foreign.contains(folder))
    }
}

/// The mounts of `/proc/self/mountinfo`, without their numbers. One of several equal ones has its position.
fn mounts(mountinfo: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let mount = |line: &str| {
        let (places, kind) = line.split_once(" - ")?;
        let mut places = places.split(' ').skip(3);
        let (root, point) = (places.next()?, places.next()?);
        if point == "/run/netns" {
            return None; // `ip netns` and Podman bind it to itself once, and leave it
        }
        let mut kind = kind.split(' ');
        let (kind, source) = (kind.next()?, kind.next()?);
        let text = format!("{point}: {root} of {source} ({kind})");
        let n = seen.entry(text.clone()).and_modify(|n| *n += 1).or_insert(1);
        Some(if *n == 1 { text } else { format!("{text}, number {n}") })
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// The network namespaces of other processes than this one, and the processes that are in one of them or name a cluster below `root`
/// in their environment.
fn processes(root: &Path) -> BTreeMap<Residue, BTreeSet<String>> {
    let own = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in entries.map(|entry| entry.path()).filter(|path| pid(path).is_some()) {
        let Ok(namespace) = fs::read_link(process.join("ns/net")) else { continue }; // it has ended
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let cgroups = fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        let is_elsewhere = namespace != own && !is_service(&cgroups); // systemd isolates some services
        if is_elsewhere {
            found.entry(Residue::NetworkNamespace).or_default().insert(namespace.display().to_string());
        }
        if let Some(kind) = Residue::of_process(is_elsewhere, is_member(&environment, root)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            let text = format!("{} {}", pid(&process).unwrap_or_default(), name.trim_end());
            found.entry(kind).or_default().insert(text);
        }
    }
    found
}

fn pid(process: &Path) -> Option<u32> {
    process.file_name().and_then(OsStr::to_str)?.parse().ok()
}

/// Whether a process with this environment belongs to a cluster whose folder is in `root`.
fn is_member(environment: &[u8], root: &Path) -> bool {
    let prefix = [MEMBER_OF.as_bytes(), b"=", root.as_os_str().as_encoded_bytes(), b"/"].concat();
    environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(&prefix))
}

/// The folders below this one, without those of links.
fn folders(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders(&entry.path(), found);
            found.insert(entry.path());
        }
    }
}

/// Whether a process in this cgroup is none that a cluster with a folder in `root` can have started. Such cgroups come and go beside all
/// clusters.
fn is_of_others(cgroup: &Path, root: &Path) -> bool {
    let own = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    pids.lines().any(|pid| {
        let process = Path::new("/proc").join(pid);
        let Ok(namespace) = fs::read_link(process.join("ns/net")) else { return false }; // it has ended
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        Residue::of_process(namespace != own, is_member(&environment, root)).is_none()
    })
}

/// Leaves the roots of the hierarchies out. In a container with version 1, they have its processes, and each cluster has its cgroups
/// below them.
fn without_roots(foreign: &mut BTreeSet<PathBuf>, roots: &[PathBuf]) {
    foreign.retain(|folder| !roots.contains(folder));
}

/// Whether the systemd of the machine has made this cgroup, a path below the root, for a service, a mount or a session. These come and
/// go beside all clusters. A node of kind has a systemd too, whose cgroups are below that of the node.
fn is_of_system(cgroup: &Path) -> bool {
    const UNITS: [&str; 5] = [".service", ".mount", ".socket", ".swap", ".automount"];
    let parts: Vec<_> = cgroup.iter().map(OsStr::to_string_lossy).collect();
    let is_unit = |parts: &[Cow<'_, str>]| match parts {
        [slice, ..] if slice == "user.slice" => true,
        [slice, unit, ..] if slice == "system.slice" => UNITS.iter().any(|kind| unit.ends_with(kind)),
        _ => false,
    };
    // With version 1, the name of the hierarchy comes first.
    parts.get(..).is_some_and(is_unit) || parts.get(1..).is_some_and(is_unit)
}

/// Whether a process with this file `/proc/PID/cgroup` is in such a cgroup.
fn is_service(cgroups: &str) -> bool {
    let path =
        |line: &str| line.splitn(3, ':').nth(2).is_some_and(|path| is_of_system(path.trim_start_matches('/').as_ref()));
    cgroups.lines().any(path)
}

fn loop_devices() -> BTreeSet<String> {
    let device = |name: String| {
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        Some(format!("{name} {}", file.trim_end()))
    };
    names(Path::new("/sys/block")).filter(|name| name.starts_with("loop")).filter_map(device).collect()
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The settings of the kernel that a kubelet and the systemd of a node set, with their values. `folder` is `/proc/sys`.
fn settings(folder: &Path) -> BTreeSet<String> {
    let protected = names(&folder.join("fs")).filter(|name| name.starts_with("protected_"));
    let names = SYSCTLS.iter().map(|(name, _)| (*name).to_owned()).chain(protected.map(|name| format!("fs/{name}")));
    let setting = |name: String| {
        let value = fs::read_to_string(folder.join(&name)).ok()?; // a kernel may lack it
        Some(format!("{} = {}", name.replace('/', "."), value.trim()))
    };
    names.filter_map(setting).collect()
}

/// The rules of nftables, which are also those of the newer iptables, and the tables of the older one that are in use. With the reason
/// if this machine does not show the rules.
fn packet_filter() -> Result<(BTreeSet<String>, Option<String>)> {
    let nft = Tools::locate_or_build(&[Tool::Nft], &progress::to_stderr)?;
    let mut list = Command::new(nft.binary("nft")?);
    let output = list.args(["--stateless", "list", "ruleset"]).stdin(Stdio::null()).output();
    let output = output.context("could not run nft")?;
    let (mut found, reason) = listed(&output);
    for tables in ["ip_tables_names", "ip6_tables_names"] {
        let text = fs::read_to_string(format!("/proc/net/{tables}")).unwrap_or_default(); // absent if none was ever used
        found.extend(text.lines().map(|table| format!("{tables}: {table}")));
    }
    Ok((found, reason))
}

/// The rules in the output of `nft`, or the reason why this machine does not list them. The reason also stands in place of the rules.
/// So if `nft` fails only after the clusters have run, the comparison reports that, instead of finding no rules and passing.
fn listed(output: &Output) -> (BTreeSet<String>, Option<String>) {
    if output.status.success() {
        return (rules::of(&String::from_utf8_lossy(&output.stdout)), None);
    }
    let reason = format!("the rules of the packet filter cannot be listed: {}", last_line(&output.stderr));
    (BTreeSet::from([reason.clone()]), Some(reason))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    fn state(found: &[(Residue, &str)]) -> HostState {
        let mut state = HostState::default();
        for (kind, name) in found {
            state.found.entry(*kind).or_default().insert((*name).to_owned());
        }
        state
    }

    #[test]
    fn cgroup_with_a_process_beside_all_clusters_is_of_others() {
        let cgroup = tempfile::tempdir().unwrap();
        let is_foreign = |pids: &str| {
            fs::write(cgroup.path().join("cgroup.procs"), pids).unwrap();
            is_of_others(cgroup.path(), Path::new("/clusters"))
        };
        assert!(is_foreign(&format!("{}\n", std::process::id())));
        assert!(!is_foreign(""), "what has ended leaves an empty one");
        assert!(!is_foreign("4194305\n"), "more than the kernel counts to");
        let environment = format!("{MEMBER_OF}=/clusters/dev");
        let mut sleep = Command::new("sleep").arg("60").env(MEMBER_OF, "/clusters/dev").spawn().unwrap();
        let is_member_foreign = is_foreign(&format!("{}\n", sleep.id()));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
        assert!(!is_member_foreign, "{environment} is left by a cluster");
    }

    #[test]
    fn only_what_was_not_there_before_was_left_behind() {
        let before = state(&[(Residue::Mount, "/a"), (Residue::Process, "1 sh"), (Residue::Interface, "lo")]);
        let after =
            state(&[(Residue::Mount, "/a"), (Residue::Mount, "/b"), (Residue::Interface, "br0"), (Residue::Rule, "r")]);
        assert_eq!(after.left_since(&before, &[]), ["Mount /b", "Interface br0", "Rule r"]);
        assert_eq!(after.left_since(&before, &[Residue::Interface, Residue::Rule]), ["Mount /b"]);
        assert_eq!(after.left_since(&after, &[]), Vec::<String>::new());
    }

    #[test]
    fn empty_cgroup_of_a_process_of_others_is_not_left_behind() {
        let before = HostState { foreign: [PathBuf::from("/c/memory/a")].into(), ..HostState::default() };
        let left = ["/c/memory/a", "/c/memory/a/b", "/c/memory/ab", "/c/memory/operators-kind-1"];
        let after = state(&left.map(|cgroup| (Residue::Cgroup, cgroup)));
        assert_eq!(after.left_since(&before, &[]), ["Cgroup /c/memory/ab", "Cgroup /c/memory/operators-kind-1"]);
    }

    #[test]
    fn cgroups_below_the_root_of_a_hierarchy_are_not_all_of_others() {
        let mut foreign = BTreeSet::from(["/c/memory", "/c/memory/a"].map(PathBuf::from));
        without_roots(&mut foreign, &["/c/memory", "/c/cpu"].map(PathBuf::from));
        assert_eq!(foreign, BTreeSet::from([PathBuf::from("/c/memory/a")]));
    }

    #[test]
    fn changed_setting_of_the_kernel_is_left_behind() {
        let proc = tempfile::tempdir().unwrap();
        let set = |name: &str, value: &str| {
            let file = proc.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, value).unwrap();
        };
        let read = || HostState { found: [(Residue::Setting, settings(proc.path()))].into(), ..HostState::default() };
        set("vm/overcommit_memory", "0\n");
        set("vm/swappiness", "60\n"); // nodes do not set it
        set("fs/protected_fifos", "0\n");
        let before = read();
        assert_eq!(read().left_since(&before, &[]), Vec::<String>::new());
        set("vm/overcommit_memory", "1\n");
        set("vm/swappiness", "10\n");
        set("fs/protected_fifos", "1\n");
        let left = read().left_since(&before, &[]);
        assert_eq!(left, ["Setting fs.protected_fifos = 1", "Setting vm.overcommit_memory = 1"]);
    }

    #[test]
    fn rules_that_nft_may_not_list_are_uncompared_and_not_equal() {
        let output = |code: i32| Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: b"table ip nat {\n}\n".to_vec(),
            stderr: b"Operation not permitted\n".to_vec(),
        };
        let state = |(rules, reason): (BTreeSet<String>, Option<String>)| HostState {
            found: [(Residue::Rule, rules)].into(),
            unseen: reason.map(|reason| (Residue::Rule, reason)).into_iter().collect(),
            ..HostState::default()
        };
        let [seen, unseen] = [0, 1].map(|code| state(listed(&output(code))));
        assert_eq!(seen.unseen().count(), 0);
        let why = "the rules of the packet filter cannot be listed: Operation not permitted";
        assert_eq!(unseen.unseen().collect::<Vec<_>>(), [(Residue::Rule, why)]);
        assert_eq!(seen.left_since(&unseen, &[]), Vec::<String>::new(), "nothing is known of the state before");
        assert_eq!(unseen.left_since(&seen, &[]), [format!("Rule {why}")], "it was possible before");
    }

    #[test]
    fn second_mount_on_the_same_place_is_another_one() {
        let line = |number: u8| format!("{number} 1 0:5 / /run rw,nosuid shared:2 - tmpfs none rw\n");
        let one = mounts(&line(20));
        assert_eq!(one.iter().collect::<Vec<_>>(), ["/run: / of none (tmpfs)"]);
        assert_eq!(mounts(&line(99)), one, "the number is a new one at each mount");
        let two = mounts(&(line(20) + &line(21)));
        assert_eq!(two.difference(&one).collect::<Vec<_>>(), ["/run: / of none (tmpfs), number 2"]);
    }

    #[test]
    fn services_of_the_machine_are_not_those_of_a_node() {
        for ours in [
            "operators-kind-1/3f9a/system.slice/kubelet.service",
            "memory/kubelet/system.slice/a.service",
            "operators-kind-1/kubelet.service",
        ] {
            assert!(!is_of_system(ours.as_ref()), "{ours}");
        }
        assert!(!is_of_system("system.slice/docker-3f9a.scope".as_ref()), "a container of the machine's Docker");
        for theirs in ["memory/system.slice/cron.service", "system.slice/tmp.mount", "user.slice/user-0.slice"] {
            assert!(is_of_system(theirs.as_ref()), "{theirs}");
        }
        assert!(is_service("0::/system.slice/systemd-hostnamed.service\n"));
        assert!(!is_service("5:memory:/operators-kind-1/3f9a/system.slice/kubelet.service\n0::/\n"));
    }

    #[test]
    fn process_belongs_to_clusters_below_the_folder() {
        let environment = |value: &str| format!("A=b\0{MEMBER_OF}={value}\0C=d").into_bytes();
        assert!(is_member(&environment("/state/one"), Path::new("/state")));
        for other in ["/states/one", "/other/one"] {
            assert!(!is_member(&environment(other), Path::new("/state")), "{other}");
        }
    }

    #[test]
    fn process_that_names_a_cluster_is_not_one_of_others() {
        assert_eq!([true, false].map(|elsewhere| Residue::of_process(elsewhere, true)), [Some(Residue::Member); 2]);
        assert_eq!(Residue::of_process(true, false), Some(Residue::Process));
        assert_eq!(Residue::of_process(false, false), None);
    }

    #[test]
    fn process_in_a_network_of_its_own_is_seen_until_it_ends() {
        let before = match HostState::read() {
            Ok(before) => before,
            Err(error) if error.is::<Missing>() => return skip::lacking(error),
            Err(error) => panic!("{error:#}"),
        };
        let mut child = Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
        let own = format!("Process {} sleep", child.id());
        let left = || HostState::read().unwrap().left_since(&before, &[]);
        while !left().contains(&own) {
            if child.try_wait().unwrap().is_some() {
                return skip::lacking("this machine refuses network namespaces");
            }
            std::thread::yield_now(); // `unshare` has not become `sleep` yet
        }
        assert!(left().iter().any(|line| line.starts_with("NetworkNamespace net:[")));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!left().contains(&own));
    }
}
