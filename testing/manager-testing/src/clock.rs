//! Lets a test set the operator's clock.

use jiff::Timestamp;

use crate::world::World;

impl World {
    /// Stops the operator's clock at this instant, also for later restarts. Timers of the operator still run by the real clock,
    /// so request a reconcile afterwards.
    pub fn set_clock(&self, at: Timestamp) {
        let file = self.cluster.state_dir().join(format!("{}.clock", self.namespace));
        let new = file.with_extension("clock-new");
        std::fs::write(&new, at.to_string()).expect("a file");
        std::fs::rename(new, file).expect("the file is renamed");
    }
}
