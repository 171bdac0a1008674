//! The *restricted* Pod Security Standard, as the starting point of every pod that an operator makes.
//!
//! Meant for struct update: `PodSpec { containers, ..restricted::pod() }`.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext};

/// A pod without containers that is nobody: not root, no credentials, no list of its neighbours.
pub fn pod() -> PodSpec {
    PodSpec {
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The security context of each of its containers.
pub fn container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        run_as_non_root: Some(true),
        ..Default::default()
    }
}
