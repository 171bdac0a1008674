//! The settings of the operator itself.

use workloads::SecurityProfile;

/// Defaults for every HelloApp that does not set the field itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// `--default-security-profile`, a flag of the runtime.
    pub security_profile: SecurityProfile,
}
