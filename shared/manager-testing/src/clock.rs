//! The operator's clock in the hands of the test.

use jiff::Timestamp;

use crate::world::World;

impl World {
    /// From now on, the operator's clock stands still at this instant, also after a restart. What it waits for it still
    /// waits for by the real clock: make it look again.
    pub fn set_clock(&self, at: Timestamp) {
        let file = self.cluster.state_dir().join(format!("{}.clock", self.namespace));
        let new = file.with_extension("clock-new");
        std::fs::write(&new, at.to_string()).expect("a file");
        std::fs::rename(new, file).expect("the file is put in place");
    }
}
