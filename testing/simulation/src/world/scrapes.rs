//! What the metrics of the processes tell: whether a reconcile has panicked, and whether the queue is empty.

use manager::harness::Harness;
use tokio::time::sleep;

use super::{TICK, World};

/// How often the queue is checked, one tick apart, until it is empty.
const LOOKS: usize = 8;

impl World {
    /// Checks that no reconcile has panicked and that the queue is empty. It checks the queue several times, because an object may be
    /// due at this very moment.
    pub(super) async fn process_is_clean(&self) -> Result<(), String> {
        self.processes.iter().flatten().try_for_each(has_not_panicked)?;
        let mut left = None;
        for _ in 0..LOOKS {
            let scrapes = self.processes.iter().flatten().map(Harness::scrape);
            // The queue of a standby is not empty.
            let scrape: String = scrapes.filter(|scrape| self.plan.replicas == 1 || leads(scrape)).collect();
            let open = ["workqueue_depth", "controller_runtime_active_workers"];
            left = open.into_iter().find_map(|series| not_zero(&scrape, series));
            if left.is_none() {
                break;
            }
            sleep(TICK).await;
        }
        left.map_or(Ok(()), Err)
    }
}

/// Checks that no reconcile of this process has panicked, whether it leads or not.
pub(super) fn has_not_panicked(process: &Harness) -> Result<(), String> {
    not_zero(&process.scrape(), "controller_runtime_reconcile_panics_total").map_or(Ok(()), Err)
}

/// The first series of this metric that is not zero, or a complaint that there is none: without any, nothing would be checked.
fn not_zero(scrape: &str, metric: &str) -> Option<String> {
    let mut series = scrape.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).peekable();
    if series.peek().is_none() {
        return Some(format!("no process shows {metric}"));
    }
    series.find(|line| !line.ends_with(" 0")).map(str::to_owned)
}

fn leads(scrape: &str) -> bool {
    scrape.lines().any(|line| line.starts_with("leader_election_master_status{") && line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_that_is_not_zero_or_not_there_is_found() {
        let scrape = "# HELP a\na{b=\"c\"} 0\na{b=\"d\"} 2\nab{b=\"c\"} 0\n";
        assert_eq!(not_zero(scrape, "a").as_deref(), Some("a{b=\"d\"} 2"));
        assert_eq!(not_zero(scrape, "ab"), None);
        assert_eq!(not_zero(scrape, "abc").as_deref(), Some("no process shows abc"));
    }
}
