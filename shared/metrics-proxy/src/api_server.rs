//! The reviewer in production: the API server, by `TokenReview` and `SubjectAccessReview`.

use std::{path::Path, time::Duration};

use api_errors::chain;
use futures::{FutureExt as _, future::BoxFuture};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    Decision, ReviewError, Reviewer,
    policy::{Attributes, Target, User},
};

/// The API server as a reviewer. Needs `create` on `tokenreviews` and `subjectaccessreviews`, as in the cluster role
/// `system:auth-delegator`.
#[derive(Clone)]
pub struct ApiServer {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    audiences: Vec<String>,
}

impl ApiServer {
    /// Sends reviews with this client. A token must be for one of the audiences, or for the API server itself if there are none.
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self { tokens: Api::all(client.clone()), accesses: Api::all(client), audiences }
    }
}

impl Reviewer for ApiServer {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        let audiences = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let spec = TokenReviewSpec { token: text(token), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        async move {
            let review = self.tokens.create(&PostParams::default(), &review).await.map_err(failed)?;
            user(review, &self.audiences)
        }
        .boxed()
    }

    fn access<'a>(&'a self, user: &'a User, to: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        let review = SubjectAccessReview { spec: access(user, to), ..SubjectAccessReview::default() };
        async move {
            let review = self.accesses.create(&PostParams::default(), &review).await.map_err(failed)?;
            let status = review.status.ok_or_else(|| ReviewError("the answer has no status".to_owned()))?;
            let denied = status.denied.unwrap_or(false);
            // With several authorizers, an error may come with the decision of another one. Without a decision, it is a failure.
            match status.evaluation_error {
                Some(error) if !status.allowed && !denied && !error.is_empty() => Err(ReviewError(error)),
                _ => Ok(Decision { allowed: status.allowed && !denied, reason: status.reason.unwrap_or_default() }),
            }
        }
        .boxed()
    }
}

/// A field with this text. The token of a review is optional in k8s-openapi up to 1.35, so the field is a `String` or an `Option`.
fn text<T: From<String>>(text: &str) -> T {
    T::from(text.to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failed(error: kube::Error) -> ReviewError {
    // The error does not contain the request, so it contains no token.
    ReviewError(chain(&error))
}

/// The user of a reviewed token; `None` if the token is invalid or for another audience.
fn user(review: TokenReview, audiences: &[String]) -> Result<Option<User>, ReviewError> {
    let status = review.status.ok_or_else(|| ReviewError("the answer has no status".to_owned()))?;
    if !status.authenticated.unwrap_or(false) {
        return Ok(None);
    }
    let accepted = status.audiences.unwrap_or_default();
    // An authenticator that does not know audiences accepts a token for any audience.
    if !audiences.is_empty() && !audiences.iter().any(|audience| accepted.contains(audience)) {
        return Ok(None);
    }
    let Some(user) = status.user else { return Ok(None) };
    let name = user.username.filter(|name| !name.is_empty());
    Ok(name.map(|name| User {
        name,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    }))
}

fn access(user: &User, to: &Attributes) -> SubjectAccessReviewSpec {
    let User { name, uid, groups, extra } = user.clone();
    let verb = Some(to.verb.to_owned());
    let set = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let (path, resource) = match &to.target {
        Target::Path(path) => (Some(NonResourceAttributes { path: Some(path.clone()), verb }), None),
        Target::Resource { namespace, group, version, resource, subresource, name } => {
            let resource = ResourceAttributes {
                namespace: set(namespace),
                group: set(group),
                version: set(version),
                resource: set(resource),
                subresource: set(subresource),
                name: set(name),
                verb,
                ..ResourceAttributes::default()
            };
            (None, Some(resource))
        }
    };
    SubjectAccessReviewSpec {
        user: Some(name),
        uid: set(&uid),
        groups: Some(groups),
        extra: (!extra.is_empty()).then_some(extra),
        non_resource_attributes: path,
        resource_attributes: resource,
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("--kubeconfig {path}: {source}")]
    Kubeconfig {
        /// Which file.
        path: String,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// No kubeconfig is given, and the process does not run in a pod.
    #[error("not in a pod with a service account ({0}); outside of a cluster, give --kubeconfig")]
    InCluster(kube::config::InClusterError),
    /// The configuration was found, but cannot be used.
    #[error("cannot set up a client: {0}")]
    Client(String),
}

/// Makes a client from a kubeconfig, or from the pod's service account. Sends no request.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        None => Config::incluster().map_err(ClientError::InCluster)?,
        Some(path) => {
            let failed = |source| ClientError::Kubeconfig { path: path.display().to_string(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?
        }
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    config.default_retry = false; // the scraper retries
    Client::try_from(config).map_err(|error| ClientError::Client(failed(error).0))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};

    use super::*;

    fn review(authenticated: Option<bool>, audiences: Option<&[&str]>, name: Option<&str>) -> Option<String> {
        let status = TokenReviewStatus {
            authenticated,
            audiences: audiences.map(|it| it.iter().map(ToString::to_string).collect()),
            user: name.map(|name| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }),
            error: None,
        };
        let review = TokenReview { status: Some(status), ..TokenReview::default() };
        user(review, &["metrics".to_owned()]).unwrap().map(|user| user.name)
    }

    #[test]
    fn token_review_needs_user_and_matching_audience() {
        let ours = Some(&["x", "metrics"][..]);
        assert_eq!(review(Some(true), ours, Some("ann")).as_deref(), Some("ann"));
        assert_eq!(review(Some(false), ours, Some("ann")), None);
        assert_eq!(review(None, ours, Some("ann")), None);
        assert_eq!(review(Some(true), Some(&["other"]), Some("ann")), None);
        assert_eq!(review(Some(true), None, Some("ann")), None, "an answer without audiences");
        assert_eq!(review(Some(true), ours, None), None);
        assert_eq!(review(Some(true), ours, Some("")), None);
        assert!(user(TokenReview::default(), &[]).is_err());
    }

    #[test]
    fn path_review_has_no_resource_attributes() {
        let user = User { name: "ann".to_owned(), ..User::default() };
        let spec = access(&user, &Attributes { verb: "get", target: Target::Path("/metrics".to_owned()) });
        assert_eq!(spec.resource_attributes, None);
        assert_eq!(spec.non_resource_attributes.unwrap().path.as_deref(), Some("/metrics"));
    }
}
