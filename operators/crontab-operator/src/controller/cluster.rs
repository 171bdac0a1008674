//! The interface between a reconcile and the cluster. The runtime's [`Context`] implements it; in tests, a model does that can
//! crash at any request.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use manager::{Context, Creation, Error, Report};
use workloads::{JobView, Live, PodView};

use crate::{
    CronTab,
    api::v1::CronTabStatus,
    known::{Event, LiveJob},
    metrics::{Runs, Tally},
};

/// What the reconcile of one CronTab reads and writes.
pub(super) trait Cluster: Sync {
    fn now(&self) -> Timestamp;

    /// Returns the object, with this reconcile's own writes.
    fn object(&self) -> Arc<CronTab>;

    /// Returns its Jobs from the cache.
    fn owned(&self) -> Vec<LiveJob>;

    /// Returns its pods from the cache.
    fn pods(&self) -> Vec<Arc<Live<PodView>>>;

    /// [`Context::refresh_status`].
    fn refresh_status(&self) -> impl Future<Output = Result<Option<Arc<CronTab>>, Error>> + Send;

    /// [`Context::sync_cache`].
    fn sync_cache(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Reads one Job from the API server, not from the cache.
    fn get_uncached(&self, name: &str) -> impl Future<Output = Result<Option<LiveJob>, Error>> + Send;

    /// [`Context::create`].
    fn create(&self, job: Job) -> impl Future<Output = Result<Creation<JobView>, Error>> + Send;

    /// Deletes a Job. Returns whether it still existed.
    fn delete(&self, job: &Live<JobView>) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Writes the status. Unless `remember` is set, the runtime may hold the write back for a moment.
    fn report(&self, report: Report<CronTabStatus>, remember: bool) -> impl Future<Output = Result<(), Error>> + Send;

    fn emit(&self, event: Event);

    fn count(&self, tally: Tally);
}

impl Cluster for Context<CronTab> {
    fn now(&self) -> Timestamp {
        self.now()
    }

    fn object(&self) -> Arc<CronTab> {
        self.object()
    }

    fn owned(&self) -> Vec<LiveJob> {
        self.owned::<Job>()
    }

    fn pods(&self) -> Vec<Arc<Live<PodView>>> {
        self.labelled::<Pod>()
    }

    async fn refresh_status(&self) -> Result<Option<Arc<CronTab>>, Error> {
        self.refresh_status().await
    }

    async fn sync_cache(&self) -> Result<(), Error> {
        Self::sync_cache::<Job>(self).await
    }

    async fn get_uncached(&self, name: &str) -> Result<Option<LiveJob>, Error> {
        self.get_uncached::<Job>(name).await
    }

    async fn create(&self, job: Job) -> Result<Creation<JobView>, Error> {
        self.create(job).await
    }

    async fn delete(&self, job: &Live<JobView>) -> Result<bool, Error> {
        self.delete_quietly::<Job>(job).await
    }

    async fn report(&self, report: Report<CronTabStatus>, remember: bool) -> Result<(), Error> {
        if remember { self.apply_status_at_once(report).await } else { self.apply_status(report).await }
    }

    fn emit(&self, Event { type_, reason, message }: Event) {
        self.event(type_, reason, message);
    }

    fn count(&self, tally: Tally) {
        self.config::<Runs>().count(tally);
    }
}
