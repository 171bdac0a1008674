//! The operator's own settings, from the flags of the runtime.

use workloads::SecurityProfile;

/// Defaults for `CronTab`s that do not set the field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// The value of `--default-security-profile`.
    pub security_profile: SecurityProfile,
}
