//! The runtime of the containers that are nodes of kind: `runc`, with no capability that this machine withholds.
//!
//! Docker before version 23 gives a privileged container every capability that the kernel knows. On a machine that withholds one,
//! such as a sandbox, runc then refuses the container.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// The name under which Docker calls the supervisor's program as a runtime.
pub(super) const NAME: &str = "runc-within-bounds";

/// The name of each capability, without its prefix, in the order of their numbers.
const CAPABILITIES: &str = "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE \
    NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT \
    SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE \
    MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE";

/// Becomes runc with these arguments, after removing withheld capabilities from the file that describes the process.
pub(super) fn run(args: &[&str]) -> Result<()> {
    if let Some(file) = description(args) {
        let status = fs::read_to_string("/proc/self/status").context("could not read the capabilities")?;
        restrict(&file, bounding_set(&status).context("the kernel tells no capabilities")?)
            .with_context(|| format!("could not change {}", file.display()))?;
    }
    Err(Command::new("/usr/sbin/runc").args(args).exec()).context("could not start runc")
}

/// The file that describes the process which this call starts, if it starts one.
fn description(args: &[&str]) -> Option<PathBuf> {
    let value = |names: [&str; 2]| {
        args.iter().enumerate().find_map(|(n, arg)| match arg.split_once('=') {
            Some((name, value)) if names.contains(&name) => Some(value),
            None if names.contains(arg) => args.get(n + 1).copied(),
            _ => None,
        })
    };
    if args.contains(&"create") || args.contains(&"run") {
        return Some(Path::new(value(["--bundle", "-b"]).unwrap_or(".")).join("config.json"));
    }
    args.contains(&"exec").then(|| value(["--process", "-p"]).map(PathBuf::from)).flatten()
}

fn bounding_set(status: &str) -> Option<u64> {
    let bits = status.lines().find_map(|line| line.strip_prefix("CapBnd:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

fn restrict(file: &Path, bounds: u64) -> Result<()> {
    let mut described: Value = serde_json::from_slice(&fs::read(file)?)?;
    retain(&mut described, bounds);
    Ok(fs::write(file, serde_json::to_vec(&described)?)?)
}

/// Removes the capabilities outside of the bounds from a container's configuration, or from the description of one process.
fn retain(described: &mut Value, bounds: u64) {
    let process = if described["process"].is_object() { &mut described["process"] } else { described };
    let Some(sets) = process.get_mut("capabilities").and_then(Value::as_object_mut) else { return };
    let withheld = |capability: &Value| {
        let name = capability.as_str().unwrap_or_default().trim_start_matches("CAP_");
        let number = CAPABILITIES.split_whitespace().position(|known| known == name);
        number.is_some_and(|number| bounds & (1 << number) == 0)
    };
    for set in sets.values_mut().filter_map(Value::as_array_mut) {
        set.retain(|capability| !withheld(capability));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn description_is_found_in_each_form_of_the_arguments() {
        let found = |line: &str| description(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(found("--root /r --log /l create --bundle /b --pid-file /p id"), Some("/b/config.json".into()));
        assert_eq!(found("create -b /b id"), Some("/b/config.json".into()));
        assert_eq!(found("create --bundle=/b id"), Some("/b/config.json".into()));
        assert_eq!(found("run id"), Some("./config.json".into()));
        assert_eq!(found("--root /r exec --process /p/one --detach id"), Some("/p/one".into()));
        assert_eq!(found("--root /r start id"), None);
        assert_eq!(found("delete --force id"), None);
    }

    #[test]
    fn only_withheld_capabilities_are_removed() {
        let bounds = bounding_set("Name:\tx\nCapBnd:\t000001fffeffffff\n").unwrap(); // all but SYS_RESOURCE
        let sets = json!({"bounding": ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_NEW"], "effective": ["CAP_SYS_RESOURCE"]});
        let expected = json!({"bounding": ["CAP_CHOWN", "CAP_NEW"], "effective": []});
        let mut container = json!({"process": {"capabilities": sets}, "root": {}});
        retain(&mut container, bounds);
        assert_eq!(container, json!({"process": {"capabilities": expected}, "root": {}}));
        let mut process = json!({"args": ["sh"], "capabilities": sets});
        retain(&mut process, bounds);
        assert_eq!(process["capabilities"], expected);
    }

    #[test]
    fn capabilities_are_in_the_order_of_their_numbers() {
        let known: Vec<_> = CAPABILITIES.split_whitespace().collect();
        assert_eq!(
            (known.len(), known[12], known[21], known[24], known[40]),
            (41, "NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE", "CHECKPOINT_RESTORE")
        );
    }
}
