//! What the operator itself is told.

use workloads::SecurityProfile;

/// What holds for every CronTab that does not say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// `--default-security-profile`, which is a flag of the runtime.
    pub security_profile: SecurityProfile,
}
