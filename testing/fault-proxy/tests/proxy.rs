//! Tests of the proxy with a minimal server behind it. They check the client's answers and the requests that reach the server.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use fault_proxy::{FaultProxy, Upstream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, Config, client::Body};
use tokio::{
    net::TcpListener,
    sync::{broadcast, mpsc},
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

/// A server that records its requests, a proxy, and a client of the proxy.
struct Setting {
    proxy: FaultProxy,
    client: Client,
    asked: Arc<Mutex<Vec<String>>>,
    /// Every watch delivers the lines that are sent here.
    events: broadcast::Sender<String>,
}

async fn setting(plan: &str) -> Setting {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let events = broadcast::Sender::new(64);
    let (book, feed) = (asked.clone(), events.clone());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (book, feed) = (book.clone(), feed.clone());
            let service = service_fn(move |request| serve(request, book.clone(), feed.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    let proxy = FaultProxy::start(Upstream::service(&url).expect("a URL"), &plan.parse().expect(plan)).await;
    let proxy = proxy.expect("the proxy starts");
    let mut config = Config::new(proxy.url().parse().expect("a URL"));
    config.default_retry = false;
    Setting { client: Client::try_from(config).expect("a client"), proxy, asked, events }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn serve(
    request: Request<Incoming>,
    book: Arc<Mutex<Vec<String>>>,
    feed: broadcast::Sender<String>,
) -> Result<Answer, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    book.lock().expect("no panic").push(format!(
        "{} {} {}",
        head.method,
        head.uri.path(),
        String::from_utf8_lossy(&body)
    ));
    if head.uri.query().is_some_and(|query| query.contains("watch")) {
        let events = futures::stream::unfold(feed.subscribe(), async |mut feed| {
            let line = feed.recv().await.ok()?;
            Some((Ok(hyper::body::Frame::data(Bytes::from(line))), feed))
        });
        return Ok(Response::new(StreamBody::new(events).boxed_unsync()));
    }
    let text = match head.method {
        Method::GET => "{\"metadata\":{\"name\":\"web\",\"resourceVersion\":\"5\"}}",
        _ => "{\"metadata\":{\"name\":\"web\",\"resourceVersion\":\"7\"}}",
    };
    Ok(Response::new(Full::new(Bytes::from(text)).boxed_unsync()))
}

impl Setting {
    async fn send(&self, method: Method, path: &str, body: &str) -> Result<(StatusCode, String), String> {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.as_bytes().to_vec()));
        let response = self.client.send(request.expect("a request")).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let text = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((head.status, String::from_utf8_lossy(&text).into_owned()))
    }

    async fn create(&self) -> Result<(StatusCode, String), String> {
        self.send(Method::POST, DEPLOYMENTS, "{\"metadata\":{\"name\":\"web\"}}").await
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("no panic").len()
    }

    /// Starts a watch. The returned channel receives its lines, and ends with the stream.
    async fn watch(&self) -> mpsc::UnboundedReceiver<String> {
        let request = Request::builder().uri(format!("{DEPLOYMENTS}?watch=true")).body(Body::empty());
        let response = self.client.send(request.expect("a request")).await.expect("an answer");
        let (sender, lines) = mpsc::unbounded_channel();
        let mut body = response.into_body();
        tokio::spawn(async move {
            let mut text = String::new();
            while let Some(Ok(frame)) = body.frame().await {
                text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
                while let Some(end) = text.find('\n') {
                    drop(sender.send(text.drain(..=end).collect()));
                }
            }
            if !text.is_empty() {
                drop(sender.send(text));
            }
        });
        lines
    }

    fn event(&self, type_: &str, name: &str, version: u32) -> String {
        let line = event(type_, name, version);
        self.events.send(line.clone()).expect("there is a watch");
        line
    }
}

fn event(type_: &str, name: &str, version: u32) -> String {
    format!(
        "{{\"type\":\"{type_}\",\"object\":{{\"metadata\":{{\"namespace\":\"shop\",\"name\":\"{name}\",\"resourceVersion\":\"{version}\"}}}}}}\n"
    )
}

#[tokio::test]
async fn empty_plan_passes_and_records_all_requests() {
    let setting = setting("").await;
    let (code, text) = setting.create().await.expect("an answer");
    assert_eq!((code.as_u16(), text.contains("\"7\"")), (200, true));
    setting.send(Method::GET, &format!("{DEPLOYMENTS}/web"), "").await.expect("an answer");
    let told: Vec<String> = setting.proxy.trace().exchanges.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "create deployments.apps shop/web: served 200, told 200",
            "get deployments.apps shop/web: served 200, told 200"
        ]
    );
    assert_eq!(
        setting.asked.lock().expect("no panic")[0],
        format!("POST {DEPLOYMENTS} {{\"metadata\":{{\"name\":\"web\"}}}}")
    );
}

#[tokio::test]
async fn plan_actions_apply_to_requests() {
    // The plan; the number of requests that reach the server; the answer to the client.
    for (plan, asked, told) in [
        ("before create * -> drop", 0, Err(())),
        ("after create * -> drop", 1, Err(())),
        ("before create * -> answer 409", 0, Ok((409, "\"reason\":\"Conflict\""))),
        ("after create * -> answer 504", 1, Ok((504, "\"reason\":\"Timeout\""))),
        ("before create * -> answer 502 html", 0, Ok((502, "<html>"))),
        ("before create * -> answer 503 empty", 0, Ok((503, ""))),
        ("before create * -> duplicate", 2, Ok((200, "\"7\"}}"))),
        ("after create * -> truncate 11", 1, Ok((200, "{\"metadata\""))),
        ("after create * -> trickle 3 1ms", 1, Ok((200, "\"7\"}}"))),
        ("before create * #2 -> drop", 1, Ok((200, "\"7\"}}"))),
        ("before create pods.core -> drop", 1, Ok((200, "\"7\"}}"))),
    ] {
        let setting = setting(plan).await;
        let answer = setting.create().await;
        assert_eq!(setting.asked(), asked, "{plan}");
        assert_eq!(setting.proxy.trace().exchanges[0].served.len(), asked, "{plan}");
        match (answer, told) {
            (Ok((code, text)), Ok((expected, part))) => {
                assert_eq!(code.as_u16(), expected, "{plan}");
                assert!(text.ends_with(part) || text.contains(part) && !part.is_empty(), "{plan}: {text}");
                assert!(!plan.contains("empty") || text.is_empty(), "{plan}: {text}");
            }
            (Err(_), Err(())) => {}
            (answer, _) => panic!("{plan}: {answer:?}"),
        }
    }
}

#[tokio::test]
async fn injected_response_has_planned_headers() {
    let setting = setting("before get * -> answer 429 retry-after=\"7\" content-type=\"text/plain\"").await;
    let request = Request::get(format!("{DEPLOYMENTS}/web")).body(Body::empty()).expect("a request");
    let response = setting.client.send(request).await.expect("an answer");
    assert_eq!(response.headers()["retry-after"], "7");
    assert_eq!(response.headers()["content-type"], "text/plain");
}

#[tokio::test]
async fn dropped_response_resets_connection() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let setting = setting("before GET * -> drop").await;
    let address = setting.proxy.url().replace("http://", "");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    stream.write_all(b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("the proxy accepts it");
    let error = stream.read(&mut [0; 16]).await.expect_err("no answer");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_stalled_request_waits_until_it_is_released() {
    let setting = setting("before create * -> stall").await;
    let mut answer = Box::pin(setting.create());
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut answer).await.is_err());
    assert_eq!(setting.asked(), 0);
    setting.proxy.release();
    assert!(answer.await.is_ok());
}

#[tokio::test]
async fn signal_handler_completes_before_request_continues() {
    let setting = setting("before create * -> signal now; delivered create * -> signal then").await;
    let (called, mut calls) = mpsc::unbounded_channel();
    let asked = setting.asked.clone();
    setting.proxy.on_signal(move |signal| {
        let (called, asked) = (called.clone(), asked.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let asked = asked.lock().expect("no panic").len();
            called.send(format!("{} at {}, asked {asked}", signal.name, signal.request)).expect("the test listens");
        }
    });
    setting.create().await.expect("an answer");
    assert_eq!(calls.recv().await.as_deref(), Some("now at create deployments.apps shop/web, asked 0"));
    assert_eq!(calls.recv().await.as_deref(), Some("then at create deployments.apps shop/web, asked 1"));
}

#[tokio::test]
async fn clients_are_distinguished_by_token() {
    let setting = setting("before GET * as old -> answer 401").await;
    let code = async |token: &str| {
        let request = Request::get("/version").header("authorization", format!("Bearer {token}")).body(Body::empty());
        setting.client.send(request.expect("a request")).await.expect("an answer").status().as_u16()
    };
    assert_eq!((code("old").await, code("new").await), (401, 200));
}

#[tokio::test]
async fn plan_actions_apply_to_watch_events() {
    let (one, two, three) = (event("ADDED", "a", 1), event("MODIFIED", "a", 2), event("MODIFIED", "b", 3));
    let expired = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"injected by a fault plan","reason":"Expired","code":410}}"#.to_owned() + "\n";
    let joined = format!("{}{one}", one.trim_end());
    let one_half: String = one.chars().take(30).collect();
    // The plan; the lines that the client receives; whether the stream then ends.
    for (plan, expected, ends) in [
        ("", vec![&one, &two, &three], false),
        ("frame ADDED * -> drop", vec![&two, &three], false),
        ("frame * deployments.apps */a #1 -> duplicate", vec![&one, &one, &two, &three], false),
        ("frame * * #1 -> join", vec![&joined, &two, &three], false),
        ("frame * * #1 -> replace \"x\"", vec![&"x\n".to_owned(), &two, &three], false),
        ("frame * * #2 -> delay 20ms", vec![&one, &two, &three], false),
        ("frame * * #2 -> trickle 1 0ms", vec![&one, &two, &three], false),
        ("frame ADDED */a -> hold", vec![&two, &three], false), // the second event replaces the held one
        ("frame MODIFIED */a -> hold", vec![&one, &three], false),
        ("frame MODIFIED */a -> cut", vec![&one, &two], true),
        ("frame MODIFIED */a -> gone", vec![&one, &expired], true),
        ("frame ADDED * -> truncate 30", vec![&one_half], true),
        ("frame * * #2 -> stall", vec![&one], false),
        ("after watch * -> cut", vec![], true),
        ("after watch * -> cut 2", vec![&one, &two], true),
        ("after watch pods.core -> cut", vec![&one, &two, &three], false),
    ] {
        let plan =
            plan.replace("frame ADDED */a", "frame ADDED * */a").replace("frame MODIFIED */a", "frame MODIFIED * */a");
        let setting = setting(&plan).await;
        let mut lines = setting.watch().await;
        for line in [&one, &two, &three] {
            drop(setting.events.send(line.clone())); // fails if the stream has ended
        }
        let mut seen = Vec::new();
        while seen.len() < expected.len() {
            let line = tokio::time::timeout(Duration::from_secs(5), lines.recv()).await;
            seen.push(line.unwrap_or_else(|_| panic!("{plan}: only {seen:?}")).expect("a line"));
        }
        assert_eq!(seen.iter().collect::<Vec<_>>(), expected, "{plan}");
        let rest = tokio::time::timeout(Duration::from_millis(if ends { 5_000 } else { 50 }), lines.recv()).await;
        assert_eq!(rest.ok(), ends.then_some(None), "{plan}");
    }
}

#[tokio::test]
async fn held_events_are_delivered_on_release() {
    let setting = setting("frame ADDED deployments.apps */a -> hold; frame * deployments.apps */c -> stall").await;
    let mut lines = setting.watch().await;
    let held = setting.event("ADDED", "a", 1);
    let other = setting.event("ADDED", "b", 2);
    assert_eq!(lines.recv().await, Some(other));
    setting.proxy.release();
    assert_eq!(lines.recv().await, Some(held));
    let stalled = setting.event("ADDED", "c", 3);
    let behind = setting.event("ADDED", "d", 4);
    assert!(tokio::time::timeout(Duration::from_millis(50), lines.recv()).await.is_err());
    setting.proxy.release();
    assert_eq!(lines.recv().await, Some(stalled));
    assert_eq!(lines.recv().await, Some(behind));
    assert!(setting.proxy.unused().is_empty());
}

#[tokio::test]
async fn own_write_event_is_recognised_before_its_response() {
    let setting = setting("frame * * own -> drop; after create * -> delay 100ms").await;
    let mut lines = setting.watch().await;
    let (answer, ()) = tokio::join!(setting.create(), async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        setting.event("ADDED", "web", 7); // the version in the answer of the create
    });
    answer.expect("an answer");
    let other = setting.event("MODIFIED", "web", 8);
    assert_eq!(lines.recv().await, Some(other));
}

#[tokio::test]
async fn new_plan_resets_rule_counters() {
    let setting = setting("before create * #1 -> drop").await;
    setting.create().await.expect_err("dropped");
    setting.create().await.expect("the second passes");
    setting.proxy.set_plan(&"before create * #1 -> answer 500; before delete * -> drop".parse().expect("a plan"));
    assert_eq!(setting.create().await.expect("an answer").0, 500);
    assert_eq!(setting.proxy.unused(), ["before delete * -> drop"]);
    assert_eq!(setting.proxy.trace().exchanges.len(), 3);
    setting.proxy.clear();
    assert!(setting.proxy.trace().exchanges.is_empty());
    setting.create().await.expect("an answer");
    assert_eq!(setting.proxy.drain().exchanges.len(), 1);
    assert!(setting.proxy.drain().exchanges.is_empty());
}
