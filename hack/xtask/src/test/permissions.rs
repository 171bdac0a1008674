//! Compares the permissions of the operators with the requests that they sent during the end-to-end tests.

use std::fs;

use anyhow::{Context as _, Result, bail};
use chart::rendered::Rendered;
use cluster::{Cluster, Nodes};
use installation::{Backend, MANAGER, METRICS_PROXY, permissions};
use parking_lot::Mutex;

use super::Args;
use crate::report::Outcome;

/// The cluster that end-to-end tests share. This handle keeps it running; otherwise it would stop soon after the last test.
static KEPT: Mutex<Option<Cluster>> = Mutex::new(None);

/// Keeps that cluster until [`check`] has read its audit log. Does nothing where the cluster cannot run.
pub(super) fn keep() {
    *KEPT.lock() = cluster::or_skip(installation::shared_cluster());
}

/// Compares the audit log of the shared cluster with the installed roles.
pub(super) fn check(args: &Args) -> Result<Outcome> {
    let _kept_until_here = KEPT.lock().take();
    if args.is_selection() {
        return Ok(Outcome::Skipped("only some tests ran, and these do not use every permission".to_owned()));
    }
    if Backend::chosen()? != Backend::Local {
        return Ok(Outcome::Skipped("only clusters of this repository have a readable audit log".to_owned()));
    }
    let real = cluster::list().into_iter().find(|it| it.name.starts_with("shared-") && it.nodes == Nodes::Real);
    let Some(summary) = real else {
        return Ok(Outcome::Skipped("the tests used no cluster with a real node".to_owned()));
    };
    let cluster = Cluster::open(&summary.name)?;
    let installed = fs::read_to_string(cluster.state_dir().join(installation::INSTALLED))
        .context("the tests installed no operators")?;
    let (installed, log) = (Rendered::parse(&installed)?, cluster.audit_log());
    let mut findings = Vec::new();
    for account in [MANAGER, METRICS_PROXY] {
        let comparison = permissions::compare(&installed, account, &log)?;
        eprint!("{account}\n{comparison}");
        findings.extend(comparison.findings().into_iter().map(|finding| format!("{account}: {finding}")));
    }
    if !findings.is_empty() {
        bail!("{}", findings.join("; "));
    }
    Ok(Outcome::Passed)
}
