//! The memory limits of the chart, and the memory of a process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::target::Target;

/// The folder of the chart in this checkout.
pub(crate) fn chart() -> PathBuf {
    chart_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// The folder of the chart in the checkout in this folder.
pub(crate) fn chart_of(checkout: &Path) -> PathBuf {
    checkout.join("charts/operators")
}

/// The memory limit of a target in bytes, as the chart in this folder sets it.
pub(crate) fn limit(chart: &Path, target: Target) -> Result<u64> {
    let values = chart.join("values.yaml");
    let text = std::fs::read_to_string(&values).with_context(|| format!("could not read {}", values.display()))?;
    let values: Value = serde_saphyr::from_str(&text).context("values.yaml is not YAML")?;
    let path = target.resources();
    let memory = values.pointer(&format!("{path}/limits/memory")).and_then(Value::as_str);
    let mebibytes = memory.and_then(|text| text.strip_suffix("Mi")?.parse::<u64>().ok());
    Ok(mebibytes.with_context(|| format!("values.yaml has no limit of memory in Mi at {path}"))? << 20)
}

/// A line of `/proc/PID/status` in bytes: `VmRSS` for the resident memory, `VmHWM` for its peak. `None` if the process has ended.
pub(crate) fn of_process(pid: u32, line: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':'))?;
    Some(value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_a_limit_and_this_process_has_memory() {
        for target in Target::ALL {
            assert!(limit(&chart(), target).expect("a limit") >= 16 << 20, "{target:?}");
        }
        let [now, peak] = ["VmRSS", "VmHWM"].map(|line| of_process(std::process::id(), line).expect("memory"));
        assert!(now > 0 && peak >= now);
    }
}
