//! What a test does where a cluster cannot run.

use anyhow::Result;

use crate::missing::Missing;

/// The cluster; or nothing, and the reason on standard error, on a machine that lacks what it needs. The test then ends
/// with `return`.
///
/// Under `CI` nothing may be skipped, so there, and after any other error, this panics.
///
/// ```ignore
/// let Some(cluster) = cluster::or_skip(Cluster::shared(Nodes::Real)) else { return };
/// ```
#[expect(clippy::missing_panics_doc, reason = "said above")]
pub fn or_skip<T>(cluster: Result<T>) -> Option<T> {
    let ci = std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false");
    match cluster {
        Ok(cluster) => Some(cluster),
        Err(error) if error.is::<Missing>() && !ci => {
            eprintln!("skipped: {error:#}");
            None
        }
        Err(error) => panic!("no cluster to test with: {error:#}"),
    }
}
