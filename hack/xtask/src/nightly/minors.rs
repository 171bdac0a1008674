//! The nightly steps `newest` and `oldest`: tests on the newest and on the oldest supported minor of Kubernetes. All other tests run
//! the one that `hack/tools/kubernetes` pins.

use std::ffi::OsString;

use anyhow::{Context as _, Result, bail};
use cluster::{Tool, Tools, progress};

use crate::report::Outcome;
use crate::test::nextest;

/// The clusters themselves, the binary of each operator, kubectl, which is of the same version, each object of the chart, and the life
/// of a release on a node.
const FILTER: &str = "package(operators-cluster) & binary(clusters) | binary(acceptance) | binary(kubectl) \
                      | package(chart) & test(/^strict::/) \
                      | package(e2e) & binary(chart) & test(/^(lifecycle|metrics|scopes)::/)";

/// The test programs of [`FILTER`].
const PROGRAMS: [&str; 4] = ["clusters", "acceptance", "kubectl", "chart"];

/// The folder with finished programs that these steps set. It takes precedence over those that the tests would build, see
/// `cluster::tools`.
const FINISHED: &str = "OPERATORS_TOOLS";
/// All such folders. Programs in one of the user would run in place of those of the chosen version.
const ALL_FINISHED: [&str; 2] = [FINISHED, "KUBEBUILDER_ASSETS"];

pub(super) fn newest() -> Result<Outcome> {
    on(Tool::KubernetesNewest)
}

pub(super) fn oldest() -> Result<Outcome> {
    on(Tool::KubernetesOldest)
}

/// Runs the tests with the programs of this tool.
fn on(kubernetes: Tool) -> Result<Outcome> {
    if let Some(name) = finished(std::env::var_os) {
        bail!("unset {name}: its programs would run in place of those of {}", kubernetes.name());
    }
    let tools = Tools::locate_or_build(&[kubernetes], &progress::to_stderr)?;
    let folder = tools.binary("kube-apiserver")?.parent().context("the program is in no folder")?;
    let folder = folder.to_str().context("the path of the cache is not Unicode")?;
    let environment = [(FINISHED, folder), ("HELM_VERSIONS", "all")];
    let programs = &PROGRAMS;
    nextest::run(&nextest::Selection {
        filter: Some(FILTER),
        programs,
        profile: Some("nightly"),
        environment: &environment,
        ..Default::default()
    })
}

/// The variable with a folder of the user, if there is one.
fn finished(variable: impl Fn(&'static str) -> Option<OsString>) -> Option<&'static str> {
    ALL_FINISHED.into_iter().find(|&name| variable(name).is_some_and(|folder| !folder.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn programs_of_the_user_would_run_in_place_of_the_chosen_ones() {
        for name in ["OPERATORS_TOOLS", "KUBEBUILDER_ASSETS"] {
            let set = |folder: &str| finished(|it| (it == name).then(|| folder.into()));
            assert_eq!([set("/programs"), set("")], [Some(name), None]);
        }
    }

    /// The minor version that a folder of `hack/tools` pins, such as "1.37".
    fn pinned(folder: &str) -> String {
        let go_mod = read(&format!("hack/tools/{folder}/go.mod"));
        let version = go_mod.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v")).unwrap();
        version.rsplit_once('.').unwrap().0.to_owned()
    }

    fn read(path: &str) -> String {
        std::fs::read_to_string(workspace::root().join(path)).unwrap()
    }

    #[test]
    fn newest_minor_that_runs_is_the_newest_of_the_schemas() {
        let minor = pinned("kubernetes-newest");
        let schemas = format!("const VERSION: &str = \"{minor}.");
        assert!(read("hack/chart/src/schemas.rs").contains(&schemas), "the schemas are not of {minor}");
        assert!(read("docs/versions.md").contains(&format!(" {minor}")), "docs/versions.md does not name {minor}");
    }

    #[test]
    fn oldest_minor_that_runs_is_the_minimum_of_the_chart() {
        let minimum = format!("\nkubeVersion: \">={}.0-0\"\n", pinned("kubernetes-oldest"));
        assert!(read("charts/operators/Chart.yaml").contains(&minimum), "{minimum}");
    }
}
