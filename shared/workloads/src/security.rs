//! The security contexts of an operator's pods: the *restricted* Pod Security Standard, and two weaker profiles for images that
//! do not run under it.
//!
//! Use them with struct update syntax: `PodSpec { containers, ..SecurityProfile::Restricted.pod() }`.

use std::{fmt, str::FromStr};

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How strictly the rights of a pod are limited. A weaker profile is greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields' descriptions explain them, and the schema would lose these")]
pub enum SecurityProfile {
    #[default]
    Restricted,
    RootAllowed,
    Baseline,
}

impl SecurityProfile {
    /// All profiles, the strictest first.
    const ALL: [Self; 3] = [Self::Restricted, Self::RootAllowed, Self::Baseline];

    /// The names, the strictest first.
    pub const NAMES: [&str; 3] = ["Restricted", "RootAllowed", "Baseline"];

    /// Returns a pod spec without containers. `Restricted` forbids root. `Restricted` and `RootAllowed` give the pod neither a
    /// service account token nor environment variables for the Services of its namespace.
    pub fn pod(self) -> PodSpec {
        let security_context = PodSecurityContext {
            run_as_non_root: (self == Self::Restricted).then_some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..Default::default()
        };
        let denied = (self != Self::Baseline).then_some(false);
        PodSpec {
            automount_service_account_token: denied,
            enable_service_links: denied,
            security_context: Some(security_context),
            ..Default::default()
        }
    }

    /// The same, for a pod that runs as a service account of the user. If the user names one, the pod gets its token.
    pub fn pod_as(self, service_account: Option<&str>) -> PodSpec {
        let pod = self.pod();
        let automount_service_account_token = pod.automount_service_account_token.filter(|_| service_account.is_none());
        PodSpec { automount_service_account_token, service_account_name: service_account.map(str::to_owned), ..pod }
    }

    /// Returns the security context of each container of the pod.
    pub fn container(self) -> SecurityContext {
        let no_capabilities = || Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None };
        SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: (self != Self::Baseline).then(no_capabilities),
            run_as_non_root: (self == Self::Restricted).then_some(true),
            ..Default::default()
        }
    }
}

/// What the administrator of an operator decides about the profiles of users' pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityPolicy {
    /// The profile of objects that set none.
    default: SecurityProfile,
    /// The weakest profile that an object may set.
    weakest: SecurityProfile,
}

impl SecurityPolicy {
    /// A policy with these profiles. A default that is weaker than the weakest one becomes that one.
    pub fn new(default: SecurityProfile, weakest: SecurityProfile) -> Self {
        Self { default: default.min(weakest), weakest }
    }

    /// Returns the profile of an object that sets this one.
    ///
    /// # Errors
    ///
    /// The profile is weaker than the policy permits. The error says what to do.
    pub fn profile(self, set: Option<SecurityProfile>) -> Result<SecurityProfile, String> {
        let profile = set.unwrap_or(self.default);
        if profile <= self.weakest {
            return Ok(profile);
        }
        let Self { weakest, .. } = self;
        Err(format!(
            "{profile} is weaker than the administrator of the operator permits; set {weakest}, or ask for another \
             --weakest-security-profile"
        ))
    }
}

impl SecurityPolicy {
    /// Returns the profiles that an object may have, the strictest first.
    pub fn permitted(self) -> impl Iterator<Item = SecurityProfile> {
        SecurityProfile::ALL.into_iter().filter(move |profile| *profile <= self.weakest)
    }

    /// Returns what a user can do when an image runs as root, but its profile forbids that. Most images that start as root need
    /// capabilities, to change their user or the owner of files, so `RootAllowed` is named only if `Baseline` is not permitted.
    pub fn cure_for_root(self) -> String {
        let user = "use an image with a numeric non-root user";
        match self.weakest {
            SecurityProfile::Baseline => {
                format!("{user}, set spec.runAsUser, or set spec.securityProfile: Baseline")
            }
            SecurityProfile::RootAllowed => format!(
                "{user}, set spec.runAsUser, or set spec.securityProfile: RootAllowed (with it, an image that changes its user \
                 at the start does not run; the administrator of the operator permits no weaker profile)"
            ),
            SecurityProfile::Restricted => {
                format!(
                    "{user}, or set spec.runAsUser; the administrator of the operator permits no image to run as root"
                )
            }
        }
    }
}

impl Default for SecurityPolicy {
    fn default() -> Self {
        Self::new(SecurityProfile::default(), SecurityProfile::Baseline)
    }
}

impl fmt::Display for SecurityProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Restricted => "Restricted",
            Self::RootAllowed => "RootAllowed",
            Self::Baseline => "Baseline",
        })
    }
}

impl FromStr for SecurityProfile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.to_string() == name);
        found.ok_or_else(|| format!("expected one of {}", Self::NAMES.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn named_service_account_gets_its_token() {
        let token = |account| SecurityProfile::Restricted.pod_as(account).automount_service_account_token;
        assert_eq!((token(None), token(Some("robot"))), (Some(false), None));
        let named = SecurityProfile::Baseline.pod_as(Some("robot")).service_account_name;
        assert_eq!(named.as_deref(), Some("robot"));
    }

    #[test]
    fn each_profile_sets_its_restrictions() {
        let block =
            |profile: SecurityProfile| -> Value { json!({"pod": profile.pod(), "container": profile.container()}) };
        assert_eq!(
            block(SecurityProfile::Restricted),
            json!({
                "pod": {
                    "automountServiceAccountToken": false, "enableServiceLinks": false, "containers": [],
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                },
                "container": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                },
            })
        );
        assert_eq!(
            block(SecurityProfile::RootAllowed),
            json!({
                "pod": {
                    "automountServiceAccountToken": false, "enableServiceLinks": false, "containers": [],
                    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                },
                "container": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            })
        );
        assert_eq!(
            block(SecurityProfile::Baseline),
            json!({
                "pod": {"containers": [], "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
                "container": {"allowPrivilegeEscalation": false},
            })
        );
    }

    #[test]
    fn policy_refuses_weaker_profiles_than_it_permits() {
        use SecurityProfile::{Baseline, Restricted, RootAllowed};
        let policy = SecurityPolicy::new(Restricted, RootAllowed);
        assert_eq!(policy.profile(None), Ok(Restricted));
        assert_eq!(policy.profile(Some(RootAllowed)), Ok(RootAllowed));
        let refused = policy.profile(Some(Baseline)).expect_err("too weak");
        assert!(refused.contains("set RootAllowed"), "{refused}");
        assert_eq!(SecurityPolicy::new(Baseline, Restricted).profile(None), Ok(Restricted));
        assert_eq!(SecurityPolicy::default().profile(Some(Baseline)), Ok(Baseline), "nothing is forbidden by default");
    }

    #[test]
    fn cure_for_root_names_only_profiles_that_help_and_are_permitted() {
        use SecurityProfile::{Baseline, Restricted, RootAllowed};
        for (weakest, named) in [(Baseline, Some("Baseline")), (RootAllowed, Some("RootAllowed")), (Restricted, None)] {
            let cure = SecurityPolicy::new(Restricted, weakest).cure_for_root();
            assert!(cure.contains("numeric non-root user") && cure.contains("spec.runAsUser"), "{cure}");
            for name in SecurityProfile::NAMES {
                assert_eq!(cure.contains(&format!("securityProfile: {name}")), named == Some(name), "{cure}");
            }
        }
    }

    #[test]
    fn profile_names_round_trip() {
        for name in SecurityProfile::NAMES {
            assert_eq!(name.parse::<SecurityProfile>().map(|it| it.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(
            "restricted".parse::<SecurityProfile>(),
            Err("expected one of Restricted, RootAllowed, Baseline".to_owned())
        );
    }
}
