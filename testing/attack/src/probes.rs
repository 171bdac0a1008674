//! The probes of the chart, asked while the attack goes on. After three misses in a row, the kubelet restarts a container, or takes its
//! pod out of the Services.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result};
use futures::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    aim::{Aim, Port},
    honest,
};

/// The pause between two probes: half of the shortest in the chart.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the kubelet waits for an answer, by default.
const PATIENCE: Duration = Duration::from_secs(1);
/// Misses in a row after which the kubelet acts, by default.
const MISSES: usize = 3;
/// How long a program may take until all its probes pass.
const START: Duration = Duration::from_mins(1);

/// The probes of a container, by its name in the chart: the paths, and whether it serves them with TLS.
const OF_CONTAINERS: [(&str, &[&str], bool); 3] = [
    ("manager", &["/healthz", "/readyz"], false),
    ("metrics-proxy", &["/healthz"], true),
    ("booking-server", &["/healthz", "/readyz"], false),
];

/// A probe of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) port: Port,
    pub(crate) path: &'static str,
}

/// How the answers to all probes of a round came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Probed {
    pub(crate) asked: usize,
    pub(crate) missed: usize,
    /// The most misses in a row of one probe.
    pub(crate) in_a_row: usize,
    /// Misses in a row up to now.
    pub(crate) lately: usize,
}

/// The probes of the container of this name, which listens for them at this address.
pub(crate) fn of_container(name: &str, address: SocketAddr) -> Vec<Probe> {
    let of_it = OF_CONTAINERS.into_iter().filter(|(container, ..)| *container == name);
    let probes = of_it.flat_map(|(_, paths, is_tls)| {
        let port = Port { address, is_tls };
        paths.iter().copied().map(move |path| Probe { port, path })
    });
    probes.collect()
}

/// Waits until all probes pass, as a Deployment does.
pub(crate) async fn pass(probes: &[Probe], aim: &Aim) -> Result<()> {
    let begun = Instant::now();
    for probe in probes {
        while let Err(error) = ask(probe, aim).await {
            if begun.elapsed() > START {
                return Err(error).with_context(|| format!("{} fails before the attack", probe.path));
            }
            sleep(INTERVAL / 10).await;
        }
    }
    Ok(())
}

/// Asks all probes each second, until the end of the round.
pub(crate) async fn measure(probes: &[Probe], aim: &Aim) -> Probed {
    let measured = join_all(probes.iter().map(|probe| async move {
        let mut answers = Probed::default();
        while Instant::now() < aim.end {
            let next = Instant::now() + INTERVAL;
            answers.note(ask(probe, aim).await.is_ok());
            sleep_until(next.min(aim.end)).await;
        }
        answers
    }));
    measured.await.into_iter().fold(Probed::default(), Probed::and)
}

async fn ask(probe: &Probe, aim: &Aim) -> Result<()> {
    let request = format!("GET {} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", probe.path);
    let aim = aim.of_kubelet(probe.port);
    timeout(PATIENCE, honest::ask(&aim, &request)).await.context("no answer in time")?
}

impl Probed {
    fn note(&mut self, is_answered: bool) {
        self.asked += 1;
        if is_answered {
            self.lately = 0;
        } else {
            self.missed += 1;
            self.lately += 1;
            self.in_a_row = self.in_a_row.max(self.lately);
        }
    }

    /// The answers to the probes of both. Misses of one probe do not follow those of another.
    fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            missed: self.missed + other.missed,
            in_a_row: self.in_a_row.max(other.in_a_row),
            lately: 0,
        }
    }

    /// As many misses in a row as are a defeat.
    #[cfg(test)]
    pub(crate) fn missed_for_long() -> Self {
        Self { asked: MISSES, missed: MISSES, in_a_row: MISSES, lately: MISSES }
    }

    /// Whether the kubelet would have restarted a container, or taken its pod out of the Services.
    pub(crate) fn is_defeat(self) -> bool {
        self.in_a_row >= MISSES
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn probed(answers: &[bool]) -> Probed {
        let mut probed = Probed::default();
        for answer in answers {
            probed.note(*answer);
        }
        probed
    }

    #[test]
    fn three_misses_in_a_row_of_one_probe_are_a_defeat() {
        let cases: [(&[bool], bool); 4] = [
            (&[true, false, false, true, false, false], false),
            (&[true, false, false, false, true], true),
            (&[false; 3], true),
            (&[], false),
        ];
        for (answers, is_defeat) in cases {
            assert_eq!(probed(answers).is_defeat(), is_defeat, "{answers:?}");
        }
        let two = probed(&[true, false, false]);
        let both = two.and(two);
        assert_eq!((both.asked, both.missed, both.is_defeat()), (6, 4, false), "two of each");
        assert!(two.and(probed(&[false; 3])).is_defeat());
    }

    /// The snapshot has what the chart renders by default.
    #[test]
    fn probes_are_those_of_the_chart() {
        let snapshot = include_str!("../../../hack/chart/snapshots/default.yaml");
        let mut seen = Vec::new();
        for document in snapshot.split("\n---\n") {
            let document: Value = serde_saphyr::from_str(document.trim_start_matches("---\n")).expect("YAML");
            let containers = document.pointer("/spec/template/spec/containers").and_then(Value::as_array);
            for container in containers.into_iter().flatten() {
                let name = container["name"].as_str().expect("a name");
                let requests = ["livenessProbe", "readinessProbe"].map(|probe| &container[probe]["httpGet"]);
                let paths = requests.iter().filter_map(|it| Some(it["path"].as_str()?.to_owned())).collect::<Vec<_>>();
                seen.push((name.to_owned(), paths, requests[0]["scheme"] == "HTTPS"));
            }
        }
        for (name, paths, is_tls) in OF_CONTAINERS {
            let paths: Vec<_> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert!(seen.contains(&(name.to_owned(), paths, is_tls)), "{name}: {seen:?}");
        }
    }
}
