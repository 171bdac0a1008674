//! Tests of the traces that a collector receives: a real manager, a real API server, and a collector that the test plays.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::{
    collections::BTreeMap,
    fs::Permissions,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use cluster::{Cluster, Nodes};
use flightticket_operator::FlightTicketOperator;
use manager::Operator;
use manager_testing::World;
use memcached_operator::MemcachedOperator;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use tokio::{io::AsyncReadExt, sync::mpsc};
use tonic::{
    Request, Response, Status,
    transport::{Identity, Server, ServerTlsConfig, server::TcpIncoming},
};

/// A collector that keeps all spans and resource attributes that it receives.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    resources: Arc<Mutex<BTreeMap<String, String>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for batch in request.into_inner().resource_spans {
            let attributes = batch.resource.into_iter().flat_map(|resource| resource.attributes);
            self.resources.lock().unwrap().extend(attributes.map(|it| (it.key.clone(), text(&it))));
            self.spans.lock().unwrap().extend(batch.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text(attribute: &KeyValue) -> String {
    match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn attributes(span: &Span) -> BTreeMap<&str, String> {
    span.attributes.iter().map(|attribute| (attribute.key.as_str(), text(attribute))).collect()
}

async fn collect() -> (Collector, SocketAddr) {
    collect_with(Server::builder()).await
}

async fn collect_with(mut server: Server) -> (Collector, SocketAddr) {
    let collector = Collector::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = TcpIncoming::from(listener);
    let server = server.add_service(TraceServiceServer::new(collector.clone()));
    tokio::spawn(server.serve_with_incoming(incoming));
    (collector, address)
}

async fn world() -> Option<World> {
    let shared = || Cluster::shared(Nodes::None);
    World::prepare(&MemcachedOperator, env!("CARGO_BIN_EXE_controller-manager"), shared).await
}

const SAMPLE: &str =
    "{apiVersion: memcached.cache.example.com/v1, kind: Memcached, metadata: {name: a}, spec: {size: 1}}";

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_is_one_trace_with_a_child_span_per_request() {
    let Some(mut world) = world().await else { return };
    let (collector, address) = collect().await;
    world.run(&["--operators", "memcached", "--otlp-endpoint", &format!("http://{address}")]);
    world.apply(SAMPLE).await;

    let (root, children) = world
        .within(Duration::from_mins(1), "the trace of the first reconcile", async || {
            let spans = collector.spans.lock().unwrap().clone();
            let created = spans.iter().find(|span| span.name == "create Deployment" && in_namespace(span, &world))?;
            let root = spans.iter().find(|span| span.span_id == created.parent_span_id)?.clone();
            let children = spans.into_iter().filter(|span| span.parent_span_id == root.span_id).collect::<Vec<_>>();
            Some((root, children))
        })
        .await;
    assert_eq!(root.name, "reconcile Memcached");
    assert!(root.parent_span_id.is_empty(), "the span is a root");
    let said = attributes(&root);
    assert_eq!((said["controller"].as_str(), said["name"].as_str()), ("memcached", "a"));
    assert!(said.contains_key("queue_wait_ms"), "{said:?}");
    for child in &children {
        assert_eq!(child.trace_id, root.trace_id, "one trace");
        let said = attributes(child);
        assert!(["verb", "resource", "status_code"].iter().all(|key| said.contains_key(key)), "{said:?}");
    }
    let created = children.iter().find(|span| span.name == "create Deployment").expect("found before");
    assert_eq!(
        (attributes(created)["resource"].as_str(), attributes(created)["status_code"].as_str()),
        ("deployments", "201")
    );
    assert_eq!(collector.resources.lock().unwrap()["service.name"], "controller-manager");
}

/// A provider that never answers. It passes the head of each request to the receiver.
async fn silent_provider() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, asked) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4_096];
            let length = stream.read(&mut head).await.unwrap_or_default();
            drop(heads.send(String::from_utf8_lossy(&head[..length]).into_owned()));
        }
    });
    (address, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn booking_request_carries_the_trace_context() {
    let shared = || Cluster::shared(Nodes::None);
    let binary = env!("CARGO_BIN_EXE_controller-manager");
    let Some(mut world) = World::prepare(&FlightTicketOperator, binary, shared).await else { return };
    let ((collector, spans), (provider, mut asked)) = (collect().await, silent_provider().await);
    let (endpoint, url) = (format!("http://{spans}"), format!("http://{provider}"));
    world.run(&["--operators", "flightticket", "--otlp-endpoint", &endpoint, "--booking-url", &url]);
    world.apply(FlightTicketOperator.sample()).await;

    let head = asked.recv().await.unwrap();
    assert!(head.starts_with("POST /v1/bookings "), "{head}");
    let parent = head.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap_or_else(|| panic!("{head}"));
    let [version, trace, span, sampled] = parent.split('-').collect::<Vec<_>>()[..] else { panic!("{parent}") };
    assert_eq!((version, sampled), ("00", "01"));
    let trace = u128::from_str_radix(trace, 16).unwrap().to_be_bytes();
    let span = u64::from_str_radix(span, 16).unwrap().to_be_bytes();
    world
        .until("the collector has the reconcile with this trace", async || {
            let spans = collector.spans.lock().unwrap().clone();
            let of_it = || spans.iter().filter(|it| it.trace_id == trace);
            let asking = of_it().any(|it| it.span_id == span);
            let root = of_it().find(|it| it.parent_span_id.is_empty() && in_namespace(it, &world))?;
            (asking && root.name == "reconcile FlightTicket").then_some(())
        })
        .await;
}

fn in_namespace(span: &Span, world: &World) -> bool {
    attributes(span).get("namespace").is_some_and(|namespace| *namespace == world.namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_collector_only_drops_spans() {
    let Some(mut world) = world().await else { return };
    let closed_port = cluster::Port::reserve().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", closed_port.number());
    world.run(&["--operators", "memcached", "--otlp-endpoint", &endpoint]);
    world.apply(SAMPLE).await;
    world.until("the Deployment", async || world.get::<k8s_openapi::api::apps::v1::Deployment>("a").await).await;
    world
        .until("the metric counts dropped spans", async || {
            let text = world.operator.as_ref()?.metrics()?;
            let line = text.lines().find(|line| line.starts_with("operator_trace_spans_dropped_total "))?;
            (line.rsplit_once(' ')?.1 != "0").then_some(())
        })
        .await;
}

/// A script that runs the manager with this value of `SSL_CERT_FILE`, as the chart's value `caBundle` does.
fn manager_that_trusts(authorities: &Path, folder: &Path) -> PathBuf {
    let script = folder.join("manager");
    let manager = env!("CARGO_BIN_EXE_controller-manager");
    let text = format!("#!/bin/sh\nSSL_CERT_FILE='{}' exec '{manager}' \"$@\"\n", authorities.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_with_a_certificate_of_a_trusted_authority_gets_traces() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authorities = folder.path().join("ca.crt");
    std::fs::write(&authorities, own.cert.pem()).unwrap();
    let manager = manager_that_trusts(&authorities, folder.path());
    let shared = || Cluster::shared(Nodes::None);
    let Some(mut world) = World::prepare(&MemcachedOperator, manager, shared).await else { return };
    let identity = Identity::from_pem(own.cert.pem(), own.signing_key.serialize_pem());
    let server = Server::builder().tls_config(ServerTlsConfig::new().identity(identity)).unwrap();
    let (collector, address) = collect_with(server).await;
    world.run(&["--operators", "memcached", "--otlp-endpoint", &format!("https://{address}")]);
    world.apply(SAMPLE).await;
    world
        .until("the collector has a span of the object", async || {
            collector.spans.lock().unwrap().iter().any(|span| in_namespace(span, &world)).then_some(())
        })
        .await;
}

#[test]
fn endpoint_with_https_and_no_authorities_is_refused_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let manager = manager_that_trusts(&folder.path().join("missing"), folder.path());
    let mut command = Command::new(manager);
    command.args(["run", "--otlp-endpoint", "https://127.0.0.1:1"]).env_remove("SSL_CERT_DIR");
    let output = command.output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(says.contains("--otlp-endpoint: ") && says.contains("set SSL_CERT_FILE to a file"), "{says}");
}
