//! Skips tests where a cluster cannot run.

use anyhow::Result;

use crate::missing::{Missing, Unsupported};

/// Returns the cluster; or `None` if the machine lacks something, or if an existing cluster does not support what the test needs.
/// In that case this records the test as skipped, and the test must `return`.
///
/// # Panics
///
/// On any other error, and under `CI` also if the machine lacks something.
///
/// ```ignore
/// let Some(cluster) = cluster::or_skip(Cluster::shared(Nodes::Real)) else { return };
/// ```
pub fn or_skip<T>(cluster: Result<T>) -> Option<T> {
    unless_missing(cluster, skip::in_ci()).map_err(skip::unasked).ok()
}

/// Returns the cluster, or the reason to skip the test.
fn unless_missing<T>(cluster: Result<T>, ci: bool) -> Result<T, String> {
    match cluster {
        Ok(cluster) => Ok(cluster),
        Err(error) if error.is::<Unsupported>() || error.is::<Missing>() && !ci => Err(format!("{error:#}")),
        Err(error) => panic!("no cluster to test with: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Result<()> {
        Err(Missing("real nodes need root".into()).into())
    }

    #[test]
    fn missing_requirement_skips_outside_ci() {
        assert_eq!(unless_missing(missing(), false), Err("real nodes need root".to_owned()));
        assert_eq!(unless_missing(Ok(()), false), Ok(()));
    }

    #[test]
    #[should_panic(expected = "real nodes need root")]
    fn missing_requirement_fails_in_ci() {
        let _ = unless_missing(missing(), true);
    }

    #[test]
    fn unsupported_cluster_skips_even_in_ci() {
        for ci in [false, true] {
            let refused = Err::<(), _>(Unsupported("only clusters of this repository".into()).into());
            assert_eq!(unless_missing(refused, ci), Err("only clusters of this repository".to_owned()));
        }
    }

    #[test]
    #[should_panic(expected = "etcd ended")]
    fn a_failure_is_never_skipped() {
        let _ = unless_missing::<()>(Err(anyhow::anyhow!("etcd ended")), false);
    }
}
