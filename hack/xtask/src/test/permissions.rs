//! After the end-to-end tests: what the operators may do, beside what they have done.

use std::{
    fs,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, Result, bail};
use chart::rendered::Rendered;
use cluster::{Cluster, Nodes};
use e2e::{Backend, MANAGER, permissions};

use super::Args;
use crate::report::Outcome;

/// The cluster that end-to-end tests share. It would end itself soon after the last of them.
static KEPT: Mutex<Option<Cluster>> = Mutex::new(None);

/// Keeps that cluster until its audit log has been read, where there can be one.
pub(super) fn keep() {
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = cluster::or_skip(e2e::shared_cluster());
}

/// Reads the audit log of the cluster that the tests have shared.
pub(super) fn check(args: &Args) -> Result<Outcome> {
    let _kept_until_here = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
    if args.filter.is_some() {
        return Ok(Outcome::Skipped("only some tests were run, which do not use every permission".to_owned()));
    }
    if Backend::chosen()? != Backend::Local {
        return Ok(Outcome::Skipped("only clusters of this repository keep an audit log for us".to_owned()));
    }
    let real = cluster::list().into_iter().find(|it| it.name.starts_with("shared-") && it.nodes == Nodes::Real);
    let Some(summary) = real else {
        return Ok(Outcome::Skipped("no cluster with a real node was used here".to_owned()));
    };
    let cluster = Cluster::open(&summary.name)?;
    let installed =
        fs::read_to_string(cluster.state_dir().join(e2e::INSTALLED)).context("no operators were installed")?;
    let comparison = permissions::compare(&Rendered::parse(&installed)?, MANAGER, &cluster.audit_log())?;
    eprint!("{comparison}");
    let findings = comparison.findings();
    if !findings.is_empty() {
        bail!("{}", findings.join("; "));
    }
    Ok(Outcome::Passed)
}
