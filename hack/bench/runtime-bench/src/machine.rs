//! Who uses the processors: the parts of the control plane and this program, and what the machine has left.
//!
//! With these figures, a reader sees what limits a rate: the processors, if next to none of their time is idle; otherwise the time
//! that each request waits.

use std::fs;

use anyhow::Result;
use cluster::Cluster;

use crate::operator::Usage;

/// The parts of the control plane whose CPU time is recorded.
const PARTS: [&str; 3] = ["kube-apiserver", "etcd", "kube-controller-manager"];
/// This program. It creates objects, watches them, and plays the Deployment controller and the kubelet.
const THIS: &str = "runtime-bench";

/// The processes whose CPU time is recorded.
pub(crate) struct Machine {
    /// The names of the processes, and their names in `/proc`.
    processes: Vec<(&'static str, String)>,
}

/// What processes and processors have done until a moment.
pub(crate) struct Moment {
    /// The seconds of CPU of each process. One that has ended or was started again has none.
    cpu: Vec<(&'static str, Option<f64>)>,
    processors: Option<Processors>,
}

/// A line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    pub(crate) remark: &'static str,
}

/// The time of all processors together since the machine has started, in ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Processors {
    total: f64,
    idle: f64,
    stolen: f64,
}

impl Machine {
    /// Finds the processes of the cluster. After the restart of a part, find them again.
    pub(crate) fn of(cluster: &Cluster) -> Result<Self> {
        let parts = cluster::summary(cluster.name())?.status.map(|status| status.parts).unwrap_or_default();
        let mut processes = Vec::new();
        for name in PARTS {
            match parts.iter().find(|part| part.name == name).and_then(|part| part.pid) {
                Some(pid) => processes.push((name, pid.to_string())),
                None => eprintln!("warning: {name} has no process on this machine, so its CPU is not recorded"),
            }
        }
        processes.push((THIS, "self".to_owned()));
        Ok(Self { processes })
    }

    /// Reads the figures of this moment.
    pub(crate) fn now(&self) -> Moment {
        let cpu = |process: &str| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            Some(Usage::read(&stat)?.cpu)
        };
        Moment {
            cpu: self.processes.iter().map(|(name, process)| (*name, cpu(process))).collect(),
            processors: fs::read_to_string("/proc/stat").ok().as_deref().and_then(Processors::read),
        }
    }
}

impl Moment {
    /// What has happened since an earlier moment: the CPU time of each process, divided by the number of objects, and how much of
    /// the processors' time was idle or stolen. What is unknown has no line.
    #[expect(clippy::cast_precision_loss, reason = "numbers of objects are small")]
    pub(crate) fn since(&self, before: &Self, objects: usize) -> Vec<Line> {
        let spent = |(name, cpu): &(&'static str, Option<f64>)| {
            let (_, earlier) = before.cpu.iter().find(|(other, _)| other == name)?;
            let seconds = (*cpu)? - (*earlier)?;
            let value = seconds * 1_000.0 / objects as f64;
            Some(Line { what: format!("CPU of {name}"), unit: "ms", value, remark: "an object" })
        };
        let mut lines: Vec<Line> = self.cpu.iter().filter_map(spent).collect();
        if let (Some(now), Some(before)) = (self.processors, before.processors)
            && now.total > before.total
        {
            let percent = |now: f64, before: f64, total: f64| (now - before) * 100.0 / total;
            let total = now.total - before.total;
            for (what, value, remark) in [
                ("idle", percent(now.idle, before.idle, total), "of the time of all processors"),
                ("stolen", percent(now.stolen, before.stolen, total), "the same, taken by other machines of the host"),
            ] {
                lines.push(Line { what: what.to_owned(), unit: "%", value, remark });
            }
        }
        lines
    }
}

impl Processors {
    /// Reads `/proc/stat`. After these eight figures, it has the time of guests, which those before contain.
    fn read(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Option<Vec<f64>> = line.split_whitespace().take(8).map(|ticks| ticks.parse().ok()).collect();
        let ticks = ticks?;
        let &[_user, _nice, _system, idle, waits_for_disk, _interrupts, _soft_interrupts, stolen] = ticks.as_slice()
        else {
            return None;
        };
        Some(Self { total: ticks.iter().sum(), idle: idle + waits_for_disk, stolen })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn time_of_all_processors_is_read() {
        let stat = "cpu  100 5 50 800 20 3 2 20 7 0\ncpu0 50 2 25 400 10 1 1 10 3 0\nintr 1 2\n";
        let Processors { total, idle, stolen } = Processors::read(stat).unwrap();
        assert!(is(total, 1_000.0) && is(idle, 820.0) && is(stolen, 20.0), "{total} {idle} {stolen}");
        for stat in ["", "cpu  1 2 3\n", "cpu  1 2 3 x 5 6 7 8\n", "cpu0 1 2 3 4 5 6 7 8\n"] {
            assert_eq!(Processors::read(stat), None, "{stat}");
        }
    }

    #[test]
    fn lines_have_cpu_of_an_object_and_shares_of_the_time() {
        let moment = |cpu: [Option<f64>; 3], [total, idle, stolen]: [f64; 3]| Moment {
            cpu: ["kube-apiserver", "etcd", THIS].into_iter().zip(cpu).collect(),
            processors: Some(Processors { total, idle, stolen }),
        };
        let before = moment([Some(10.0), Some(3.0), Some(1.0)], [1_000.0, 500.0, 0.0]);
        let after = moment([Some(14.0), None, Some(1.5)], [2_000.0, 600.0, 50.0]);
        let lines = after.since(&before, 1_000);
        let shown: Vec<String> = lines.iter().map(|it| format!("{}: {:.2} {}", it.what, it.value, it.unit)).collect();
        assert_eq!(
            shown,
            ["CPU of kube-apiserver: 4.00 ms", "CPU of runtime-bench: 0.50 ms", "idle: 10.00 %", "stolen: 5.00 %"]
        );
    }

    #[test]
    fn machine_that_does_not_count_has_no_shares() {
        let zero = Processors { total: 0.0, idle: 0.0, stolen: 0.0 };
        for processors in [None, Some(zero)] {
            let moment = || Moment { cpu: vec![(THIS, Some(1.0))], processors };
            let lines = moment().since(&moment(), 10);
            assert_eq!(lines.iter().map(|line| line.what.as_str()).collect::<Vec<_>>(), ["CPU of runtime-bench"]);
        }
    }
}
