//! Admits or refuses requests: first by checks without the API server, then by cached answers, then by a review.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::request::Parts;
use http_body::Body as _;
use parking_lot::Mutex;
use serde::Serialize;
use serving::{Origin, Peer};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    Decision, Metrics, Refusal, ReviewError, Reviewer,
    cache::{Cache, Key, Rank, Turn, Verdict},
    lane::{Lane, Unanswered},
    policy::{Attributes, Authorization, Credentials, Patterns, User, credentials, shape, user_of_certificate},
};

/// The access rules of the command line.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// If there are any, all other paths get 404.
    pub allow_paths: Patterns,
    /// Paths that need no authentication.
    pub ignore_paths: Patterns,
    /// The rules of `--config-file`.
    pub authorization: Authorization,
}

/// TTLs of cached answers, and the time limit of a review.
#[derive(Debug, Clone)]
pub struct CacheTtls {
    /// TTL of the user of a token.
    pub token: Duration,
    /// TTL of the answer that a token is invalid.
    pub no_token: Duration,
    /// TTL of a cached "allowed".
    pub allowed: Duration,
    /// TTL of a cached "denied".
    pub denied: Duration,
    /// Time limit of a review, including its wait for a free place.
    pub review: Duration,
}

impl Default for CacheTtls {
    fn default() -> Self {
        Self {
            token: Duration::from_mins(2),
            no_token: Duration::from_secs(10),
            allowed: Duration::from_mins(5),
            denied: Duration::from_secs(30),
            review: Duration::from_secs(10),
        }
    }
}

/// Cached answers of each kind, at most.
const REMEMBERED: usize = 1024;
/// Concurrent reviews of tokens that were never admitted before, and how many more wait: neither made-up tokens, nor the valid ones
/// that a tenant can create in any number, must flood the API server. The origins of the clients share these numbers, in this lane
/// and in the others, so that a crowd of one address does not keep out a scraper that is new or has a new token.
const UNKNOWN: (usize, usize) = (8, 56);
/// The same for accesses that were never granted before. No client gets here without a valid token, so made-up tokens delay none of
/// these.
const UNPROVEN: (usize, usize) = (8, 56);
/// The same for tokens that were admitted before, and for accesses that were granted before. No client gets here without access, so
/// no other client delays any of these.
const KNOWN: (usize, usize) = (8, 248);

/// Admits or refuses requests.
pub struct Guard {
    rules: Rules,
    times: CacheTtls,
    reviewer: Arc<dyn Reviewer>,
    tokens: Cache<Option<Arc<User>>>,
    accesses: Cache<Decision>,
    unknown: Arc<Lane>,
    unproven: Arc<Lane>,
    known: Arc<Lane>,
    metrics: Arc<Metrics>,
    failures: Failures,
}

/// The identity of an admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted {
    /// An authenticated and authorised user.
    User(Arc<User>),
    /// No identity: the path needs no authentication.
    Anonymous,
}

impl Guard {
    /// Makes a guard with these rules. The reviewer decides what they leave open.
    pub fn new(rules: Rules, reviewer: Arc<dyn Reviewer>, times: CacheTtls, metrics: Arc<Metrics>) -> Self {
        let (tokens, accesses) = (Cache::new(REMEMBERED), Cache::new(REMEMBERED));
        let lane = |(slots, queue)| Arc::new(Lane::new(slots, queue));
        let [unknown, unproven, known] = [UNKNOWN, UNPROVEN, KNOWN].map(lane);
        let failures = Failures::default();
        Self { rules, times, reviewer, tokens, accesses, unknown, unproven, known, metrics, failures }
    }

    /// Admits a request, and returns its identity.
    pub async fn admit(&self, request: &Parts, has_body: bool) -> Result<Admitted, Refusal> {
        let path = request.uri.path();
        if !self.rules.allow_paths.is_empty() && !self.rules.allow_paths.matches(path) {
            return Err(Refusal::NotAllowedPath);
        }
        shape(request, has_body).map_err(Refusal::Shape)?;
        if self.rules.ignore_paths.matches(path) {
            return Ok(Admitted::Anonymous);
        }
        let of = request.extensions.get::<Peer>().map(|peer| Origin::from(peer.address));
        let (user, token) = self.authenticate(request, of).await?;
        let wishes = self.rules.authorization.attributes(request);
        if wishes.is_empty() {
            return Err(Refusal::Malformed);
        }
        for wish in wishes {
            self.authorize(&user, wish, of).await?;
        }
        if let Some(token) = token {
            self.tokens.admitted(&token);
        }
        Ok(Admitted::User(user))
    }

    /// Returns the user, and the key of the token unless the user has shown a certificate.
    async fn authenticate(&self, request: &Parts, of: Option<Origin>) -> Result<(Arc<User>, Option<Key>), Refusal> {
        let peer = request.extensions.get::<Peer>();
        if let Some(user) = peer.and_then(|peer| user_of_certificate(peer.certificate.as_ref()?)) {
            return Ok((Arc::new(user), None));
        }
        let Credentials::Token(token) = credentials(&request.headers) else { return Err(Refusal::Unauthorized) };
        let CacheTtls { token: known, no_token, review, .. } = self.times;
        let lasts = move |user: &Option<Arc<User>>| if user.is_some() { known } else { no_token };
        let key = Sha256::digest(token.as_bytes()).into();
        let ask = |turn: Turn<Option<Arc<User>>>| {
            let lane = if turn.was_admitted { &self.known } else { &self.unknown }.clone();
            let (reviewer, token) = (self.reviewer.clone(), token.to_owned());
            async move {
                let asked = async { reviewer.token(&token).await.map(|user| user.map(Arc::new)) };
                lane.review(of, review, turn.or_review(asked)).await
            }
        };
        let (answer, known) = self.tokens.get(key, of, lasts, ask).await;
        self.metrics.reviewed("token", known, answer.as_ref().map(Option::is_some));
        let user = answer.map_err(|why| unavailable(why, &self.failures))?.ok_or(Refusal::Unauthorized)?;
        Ok((user, Some(key)))
    }

    async fn authorize(&self, user: &Arc<User>, wish: Attributes, of: Option<Origin>) -> Result<(), Refusal> {
        if self.rules.authorization.allows(user, &wish) {
            return Ok(());
        }
        let CacheTtls { allowed, denied, review, .. } = self.times;
        let lasts = move |decision: &Decision| if decision.allowed { allowed } else { denied };
        let key = digest(&(&**user, &wish)).map_err(|error| unavailable(Unanswered::Failed(error), &self.failures))?;
        let ask = |turn: Turn<Decision>| {
            let lane = if turn.was_admitted { &self.known } else { &self.unproven }.clone();
            let reviewer = self.reviewer.clone();
            let (user, wish) = (user.clone(), wish.clone());
            async move { lane.review(of, review, turn.or_review(reviewer.access(&user, &wish))).await }
        };
        let (answer, known) = self.accesses.get(key, of, lasts, ask).await;
        self.metrics.reviewed("access", known, answer.as_ref().map(|decision| decision.allowed));
        let Decision { allowed, reason } = answer.map_err(|why| unavailable(why, &self.failures))?;
        if allowed {
            return Ok(());
        }
        tracing::debug!(user = user.name, ?wish, reason, "forbidden");
        Err(Refusal::Forbidden(Box::new((User::clone(user), wish))))
    }
}

impl Verdict for Option<Arc<User>> {
    fn rank(&self) -> Rank {
        if self.is_some() { Rank::Authenticated } else { Rank::Refused }
    }
}

impl Verdict for Decision {
    fn rank(&self) -> Rank {
        if self.allowed { Rank::Admitted } else { Rank::Refused }
    }
}

fn unavailable(why: Unanswered, failures: &Failures) -> Refusal {
    match why {
        Unanswered::Crowded => {
            tracing::debug!("too many reviews wait; refusing the request");
            Refusal::Crowded
        }
        Unanswered::Failed(error) => {
            if let Some(more) = failures.due(Instant::now()) {
                tracing::warn!(%error, more, "the review failed; refusing the request");
            }
            Refusal::Unavailable
        }
    }
}

/// How often failed reviews are logged at most. Each made-up token needs one, so clients without credentials cause them.
const LOGGED: Duration = Duration::from_secs(10);

/// When failed reviews were logged last, and how many failed since.
#[derive(Debug, Default)]
struct Failures(Mutex<(Option<Instant>, u64)>);

impl Failures {
    /// Counts a failure. Returns the number of those before it that were not logged, if it is time to log.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut known = self.0.lock();
        if known.0.is_some_and(|last| now.saturating_duration_since(last) < LOGGED) {
            known.1 += 1;
            return None;
        }
        Some(std::mem::replace(&mut *known, (Some(now), 0)).1)
    }
}

fn digest(of: &impl Serialize) -> Result<Key, ReviewError> {
    let text = serde_json::to_vec(of).map_err(|error| ReviewError(error.to_string()))?;
    Ok(Sha256::digest(&text).into())
}

/// Passes only admitted requests to the handlers behind it: for `axum::middleware::from_fn_with_state`. The handlers find an
/// [`Admitted`] in the request's extensions, and no token.
pub async fn admit(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let answer = match guard.admit(&parts, !body.is_end_stream()).await {
        Err(refusal) => refusal.answer(parts.version),
        Ok(admitted) => {
            parts.headers.remove(http::header::AUTHORIZATION);
            parts.extensions.insert(admitted);
            next.run(Request::from_parts(parts, body)).await
        }
    };
    guard.metrics.answered(answer.status());
    answer
}

#[cfg(test)]
mod tests;
