//! Leader election.
//!
//! kube has none, and its users take a crate for it. The usual one, `kube-leader-election`, does not fit: 0.44 needs kube 4. So
//! this is a minimal loop in its place, with the intervals of client-go. Unlike that crate, it names in each write the version
//! that it has read, so that two candidates cannot both get the lease.

use std::time::Duration;

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use kube::{Api, Client, api::PostParams};
use tokio::time::{Instant, sleep, timeout};

use crate::PEER;

/// For how long the lease is valid.
const DURATION: Duration = Duration::from_secs(15);
/// A leader that cannot renew the lease for this long gives up.
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);

pub(crate) struct Elector {
    leases: Api<Lease>,
    identity: String,
    /// The lease as this process has written it last.
    own: Option<Lease>,
    /// The last version from another process, and since when it is known. The clocks of other machines do not matter.
    foreign: (Option<String>, Instant),
}

impl Elector {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        let identity = format!("{PEER}_{}_{:x}", std::process::id(), Timestamp::now().as_nanosecond());
        Self { leases: Api::namespaced(client, namespace), identity, own: None, foreign: (None, Instant::now()) }
    }

    /// Waits for the lease.
    pub(crate) async fn acquire(&mut self) {
        loop {
            match timeout(DEADLINE, self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "could not get the lease"),
                Err(_) => tracing::warn!("no answer about the lease"),
            }
            sleep(RETRY).await;
        }
    }

    /// Renews the lease. Returns when it is lost.
    pub(crate) async fn renew(&mut self) {
        let mut renewed = Instant::now();
        loop {
            sleep(RETRY).await;
            let begun = Instant::now();
            match timeout(DEADLINE.saturating_sub(renewed.elapsed()), self.attempt()).await {
                Ok(Ok(true)) => renewed = begun,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "could not renew the lease"),
                Err(_) => tracing::warn!("no answer about the lease"),
            }
            if renewed.elapsed() >= DEADLINE {
                return;
            }
        }
    }

    /// Gives the lease back, if this process holds it.
    pub(crate) async fn release(&mut self) {
        // The first attempt fails if a renewal was under way when the process began to end.
        for _ in 0..2 {
            match timeout(RETRY, self.try_release()).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => tracing::warn!(%error, "could not release the lease"),
                Err(_) => tracing::warn!("no answer about the lease"),
            }
        }
    }

    async fn try_release(&mut self) -> Result<(), kube::Error> {
        let lease = match self.own.take() {
            Some(lease) => Some(lease),
            None => self.leases.get_opt(PEER).await?,
        };
        if let Some(mut lease) = lease.filter(|lease| holder(lease) == self.identity) {
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.leases.replace(PEER, &PostParams::default(), &lease).await?;
        }
        Ok(())
    }

    /// Writes the lease, unless another process holds it. Without an answer, it reads the lease again next time.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let known = match self.own.take() {
            Some(lease) => Some(lease),
            None => self.leases.get_opt(PEER).await?,
        };
        let written = match known {
            Some(lease) if !self.may_write(&lease) => return Ok(false),
            Some(lease) => self.leases.replace(PEER, &PostParams::default(), &self.claimed(lease)).await?,
            None => self.leases.create(&PostParams::default(), &self.claimed(Lease::default())).await?,
        };
        self.own = Some(written);
        Ok(true)
    }

    fn may_write(&mut self, lease: &Lease) -> bool {
        if holder(lease).is_empty() || holder(lease) == self.identity {
            return true;
        }
        if self.foreign.0 != lease.metadata.resource_version {
            self.foreign = (lease.metadata.resource_version.clone(), Instant::now());
        }
        self.foreign.1.elapsed() >= DURATION
    }

    fn claimed(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        let is_new = holder(&lease) != self.identity;
        lease.metadata.name = Some(PEER.to_owned());
        let spec = lease.spec.get_or_insert_default();
        if is_new {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |transitions| transitions + 1));
        }
        spec.lease_duration_seconds = Some(15);
        spec.renew_time = Some(now);
        lease
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}
