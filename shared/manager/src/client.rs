//! The client of the API server: finds the cluster, and counts and limits the requests.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{
    Layer, Service,
    layer::util::{Identity, Stack},
    util::{Either, option_layer},
};

use crate::{
    metrics::Metrics,
    settings::{ClusterFlags, Settings},
};

mod guarded;
mod limit;
mod warnings;

use guarded::Recheck;
pub(crate) use guarded::{guarded, is_not_leading};
use limit::Limit;
use warnings::Warnings;

/// Why no client could be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot use kubeconfig {path}: {source}")]
    Kubeconfig { path: String, source: KubeconfigError },
    #[error("found no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account ({0})")]
    NotFound(KubeconfigError),
    #[error("cannot set up a client: {}", api_errors::chain(.0))]
    Client(kube::Error),
}

/// Returns a client for short-lived commands.
pub(crate) async fn plain(cluster: &ClusterFlags) -> Result<Client, Error> {
    Client::try_from(config(cluster).await?).map_err(Error::Client)
}

/// Returns a client for the cluster that the flags, the environment or the pod name. Sends nothing yet.
pub(crate) async fn connect(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Client, Error> {
    let limit = settings.kube_api_qps.map(|rate| Limit::new(rate, settings.kube_api_burst));
    connect_with(limit, settings, metrics).await
}

/// Returns a client for the reviews of those who read metrics. Clients without credentials cause reviews, so these have no part in the
/// limit of the operators' requests: they neither use it up nor wait for it. The guard of the metrics limits them.
pub(crate) async fn for_reviews(settings: &Settings, metrics: &Arc<Metrics>) -> Result<Client, Error> {
    connect_with(None, settings, metrics).await
}

async fn connect_with(limit: Option<Limit>, settings: &Settings, metrics: &Arc<Metrics>) -> Result<Client, Error> {
    let mut config = config(&settings.cluster).await?;
    config.default_retry = false; // the queue decides about retries
    config.connect_timeout = Some(Duration::from_secs(5));
    let host = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
    let counted = Counted { metrics: metrics.clone(), host: host.into(), warnings: Arc::default() };
    let builder = ClientBuilder::try_from(config).map_err(Error::Client)?;
    Ok(builder.with_layer(&layers(counted, limit)).build())
}

/// Returns the layers of the client, the one closest to the network first. The leadership is checked after the wait for the limit.
fn layers(counted: Counted, limit: Option<Limit>) -> Stack<Stack<Counted, Recheck>, Either<Limit, Identity>> {
    Stack::new(Stack::new(counted, Recheck), option_layer(limit))
}

/// Returns the elector's own client, so that busy informers cannot starve it.
pub(crate) async fn for_election(settings: &Settings, renew_deadline: Duration) -> Result<Client, Error> {
    leader_election::client(config(&settings.cluster).await?, renew_deadline).map_err(Error::Client)
}

async fn config(cluster: &ClusterFlags) -> Result<Config, Error> {
    let options = KubeConfigOptions { context: cluster.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &cluster.kubeconfig {
        let failed = |source| Error::Kubeconfig { path: path.display().to_string(), source };
        let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
        return from_kubeconfig(kubeconfig, &options).await.map_err(failed);
    }
    if std::env::var_os("KUBECONFIG").is_none()
        && let Ok(config) = Config::incluster()
    {
        return Ok(config);
    }
    let kubeconfig = Kubeconfig::read().map_err(Error::NotFound)?;
    from_kubeconfig(kubeconfig, &options).await.map_err(Error::NotFound)
}

/// Returns a configuration that reads the file of the certificate authority again every minute, as kube does in a pod. So a
/// rotation needs no restart.
async fn from_kubeconfig(kubeconfig: Kubeconfig, options: &KubeConfigOptions) -> Result<Config, KubeconfigError> {
    let authority = authority_file(&kubeconfig, options);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, options).await?;
    config.root_cert_file = authority;
    Ok(config)
}

/// Returns the file of the certificate authority; `None` if the kubeconfig contains the certificate itself, or names none.
fn authority_file(kubeconfig: &Kubeconfig, options: &KubeConfigOptions) -> Option<PathBuf> {
    let name = options.context.as_ref().or(kubeconfig.current_context.as_ref())?;
    let context = kubeconfig.contexts.iter().find(|it| it.name == *name)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?.cluster.as_ref()?;
    cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none()).map(PathBuf::from)
}

/// Counts every request: `rest_client_requests_total{code,method,host}`. Reports the warnings of the API server.
#[derive(Clone)]
struct Counted {
    metrics: Arc<Metrics>,
    host: Arc<str>,
    warnings: Arc<Warnings>,
}

#[derive(Clone)]
struct Counting<S> {
    inner: S,
    counted: Counted,
}

impl<S> Layer<S> for Counted {
    type Service = Counting<S>;

    fn layer(&self, inner: S) -> Counting<S> {
        Counting { inner, counted: self.clone() }
    }
}

impl<S, B, C> Service<http::Request<B>> for Counting<S>
where
    S: Service<http::Request<B>, Response = http::Response<C>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    C: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (counted, method) = (self.counted.clone(), request.method().clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let result = answer.await;
            if let Ok(response) = &result {
                counted.warnings.report(response.headers(), &counted.metrics);
            }
            // Like client-go: a request without an answer counts under this code.
            let code = result.as_ref().map_or("<error>".to_owned(), |response| response.status().as_str().to_owned());
            counted.metrics.client_requests.with_label_values(&[&*code, method.as_str(), &*counted.host]).inc();
            result
        })
    }
}

#[cfg(test)]
mod tests;
