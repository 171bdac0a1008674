//! The end-to-end tests on kind: how long each phase takes, and that nothing of it stays on the machine.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use cluster::{HostState, Missing, Residue};
use images::{Store, default_store};
use installation::Profile;

use crate::report::{Counts, Outcome, seconds};
use crate::test::checks;
use crate::workspace;

/// The node image of the oldest supported minor of Kubernetes, which `kubeVersion` in Chart.yaml names. It is the last one of this
/// minor that kind has published, with kind v0.31.0. Without Docker and Podman, nodes with `kubernetes-oldest` of `hack/tools` stand in
/// for it. Their patch is an earlier one, because the Go module proxy lacks modules of later patches.
const OLDEST: &str = "kindest/node:v1.31.14";
/// What does not count with the user's own Docker or Podman: containers of others come and go there, and kind keeps its network.
const OF_OTHERS: &[Residue] = &[
    Residue::Mount,
    Residue::NetworkNamespace,
    Residue::Process,
    Residue::Cgroup,
    Residue::LoopDevice,
    Residue::Interface,
    Residue::Rule,
    Residue::Setting, // the kubelet of a published node image sets them for the whole machine
];

/// The version of kind's default image, or that of the node image that this repository builds.
pub(super) fn newest() -> Result<Outcome> {
    on(None)
}

/// The same with [`OLDEST`].
pub(super) fn oldest() -> Result<Outcome> {
    on(Some(OLDEST))
}

/// Runs the tests on nodes of this image, or of the default one.
fn on(image: Option<&str>) -> Result<Outcome> {
    // What an earlier run has left would count as there before.
    installation::delete_kind()?;
    let before = match HostState::read() {
        Ok(before) => Some(before),
        Err(error) if error.is::<Missing>() && !skip::in_ci() => None,
        Err(error) => return Err(error),
    };
    let mut phases = Phases::default();
    let tested = suite(&mut phases, image);
    let has_failed = match &tested {
        Ok(outcome) => outcome.is_failure(),
        Err(_) => true,
    };
    if has_failed {
        let kept_as = if image.is_some() { "kind-oldest" } else { "kind-newest" };
        phases.time("logs", || {
            checks::keep_logs_of_kind(kept_as);
            Ok(())
        })?;
    }
    // Also after a failure: its nodes need much memory.
    let deleted = phases.time("delete", installation::delete_kind);
    eprintln!("{phases}");
    let mut tested = tested?;
    deleted?;
    let Some(before) = before else {
        return Ok(with_skip(tested, NOTHING_STAYS, "only root sees what a cluster leaves on the machine"));
    };
    let kept = if cluster::kind_engine_is_of_user()? { OF_OTHERS } else { &[] };
    for (kind, why) in before.unseen().filter(|(kind, _)| !kept.contains(kind)) {
        tested = with_skip(tested, &format!("{NOTHING_STAYS}: {kind:?}"), why);
    }
    let mut left = HostState::left_after(&before, kept)?;
    left.extend(installation::kind_nodes()?.into_iter().map(|node| format!("Node {node}")));
    if !left.is_empty() && !tested.is_failure() {
        bail!("the deleted cluster of kind has left something on this machine:\n{}", left.join("\n"));
    }
    for line in left {
        eprintln!("left behind: {line}");
    }
    Ok(tested)
}

/// Creates the cluster, installs the operators as users get them, and runs the tests.
fn suite(phases: &mut Phases, node_image: Option<&str>) -> Result<Outcome> {
    let store = Store::open(default_store()?)?;
    let image = std::env::var("E2E_IMAGE").ok();
    if image.is_none() {
        phases.time("build", || installation::build_image(workspace::root(), &store, Profile::Release))?;
    }
    let cluster = match phases.time("create", || installation::kind_cluster(node_image)) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(Outcome::without(&error)),
    };
    phases.time("install", || {
        let image = image.map_or_else(|| installation::image_of(&cluster, Profile::Release), Ok)?;
        installation::install(&cluster, &image)
    })?;
    phases.time("suite", || super::end_to_end(&variables(node_image)))
}

/// The variables of the tests, some of which create clusters themselves. All of them run: so a test that kind does not support says
/// that, and no test is left out because the run has drawn others.
fn variables(node_image: Option<&str>) -> Vec<(&str, &str)> {
    let node_image = node_image.map(|image| (cluster::KIND_NODE_IMAGE, image));
    [("E2E_CLUSTER", "kind"), ("INSTALLATIONS", "all")].into_iter().chain(node_image).collect()
}

/// The name of the comparison after the tests.
const NOTHING_STAYS: &str = "nothing stays on the machine";

/// The result with one more test, which was skipped.
fn with_skip(outcome: Outcome, test: &str, why: &str) -> Outcome {
    match outcome {
        Outcome::Tests(counts, mut skips) => {
            skips.entry(why.to_owned()).or_default().insert(test.to_owned());
            Outcome::Tests(Counts { skipped: counts.skipped + 1, ..counts }, skips)
        }
        other => other,
    }
}

/// How long each phase has taken.
#[derive(Debug, Default)]
struct Phases {
    took: Vec<(&'static str, Duration)>,
}

impl Phases {
    /// Does the work of a phase. A phase that fails has a time, too.
    fn time<T>(&mut self, phase: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let done = work();
        self.took.push((phase, begun.elapsed()));
        done
    }
}

impl Display for Phases {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let width = self.took.iter().map(|(phase, _)| phase.len()).max().unwrap_or_default().max("phase".len());
        writeln!(f, "  {:width$}    time", "phase")?;
        for (phase, took) in &self.took {
            writeln!(f, "  {phase:width$}  {:>6}", seconds(*took))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Skips;

    fn read(path: &str) -> String {
        std::fs::read_to_string(workspace::root().join(path)).unwrap()
    }

    #[test]
    fn phases_are_a_table_in_their_order_and_a_failed_one_is_in_it() {
        let mut phases = Phases::default();
        assert_eq!(phases.time("create", || Ok(1)).unwrap(), 1);
        assert!(phases.time("install", || -> Result<()> { bail!("no room") }).is_err());
        phases.took = phases.took.iter().map(|(phase, _)| (*phase, Duration::from_millis(93_400))).collect();
        assert_eq!(phases.to_string(), "  phase      time\n  create   93.4 s\n  install  93.4 s\n");
    }

    #[test]
    fn comparison_that_did_not_take_place_is_no_passed_test() {
        let counts = Counts { passed: 5, failed: 0, skipped: 1 };
        let Outcome::Tests(counts, skips) = with_skip(Outcome::Tests(counts, Skips::new()), NOTHING_STAYS, "no root")
        else {
            panic!("these were tests")
        };
        assert_eq!((counts.passed, counts.skipped), (5, 2));
        assert_eq!(skips["no root"].len(), 1);
        let failed = Outcome::Failed("no room".to_owned());
        assert_eq!(with_skip(failed.clone(), NOTHING_STAYS, "no root"), failed);
    }

    #[test]
    fn clusters_that_the_tests_create_have_the_chosen_node_image() {
        let of_all = [("E2E_CLUSTER", "kind"), ("INSTALLATIONS", "all")];
        assert_eq!(variables(Some(OLDEST)), [&of_all[..], &[("KIND_NODE_IMAGE", OLDEST)]].concat());
        assert_eq!(variables(None), of_all, "the user may have set the other one");
    }

    #[test]
    fn other_containers_of_the_users_engine_are_not_left_behind() {
        let counts: Vec<_> = Residue::ALL.into_iter().filter(|kind| !OF_OTHERS.contains(kind)).collect();
        assert_eq!(counts, [Residue::Member, Residue::File]);
    }

    #[test]
    fn workflows_upload_the_logs_of_failed_clusters() {
        let logs = format!("~/.local/state/operators/{}", cluster::FAILED_CLUSTERS);
        for name in ["ci", "e2e-kind", "nightly"] {
            let workflow = format!(".github/workflows/{name}.yaml");
            assert!(read(&workflow).lines().any(|line| line.trim() == logs), "{workflow} has no line {logs}");
        }
    }

    #[test]
    fn oldest_image_has_the_minimum_version_of_the_chart_and_is_that_of_the_workflow() {
        let minor = OLDEST.split(['v', '.']).nth(2).unwrap();
        let minimum = format!("\nkubeVersion: \">=1.{minor}.0-0\"\n");
        assert!(read("charts/operators/Chart.yaml").contains(&minimum), "{minimum}");
        assert!(read(".github/workflows/e2e-kind.yaml").contains(&format!("node: {OLDEST}\n")));
    }
}
