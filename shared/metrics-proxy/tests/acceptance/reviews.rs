//! When the proxy asks the reviewer, and what it does without an answer.

use std::sync::atomic::Ordering;

use crate::kit::usual;

#[tokio::test]
async fn review_answers_are_cached() {
    let (_behind, ask, proxy) = usual(&[]).await;
    for _ in 0..5 {
        assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200);
        assert_eq!(proxy.get("/metrics", Some("bob")).await.0, 403);
        assert_eq!(proxy.get("/metrics", Some("unknown")).await.0, 401);
    }
    assert_eq!((ask.tokens.load(Ordering::Relaxed), ask.accesses.load(Ordering::Relaxed)), (3, 2));
}

#[tokio::test]
async fn only_cached_users_pass_while_reviewer_is_down() {
    let short = "--authentication-token-webhook-cache-ttl=1s";
    let (behind, ask, proxy) = usual(&[short]).await;
    ask.away.store(true, Ordering::Relaxed);
    assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 503, "closed, not open");
    ask.away.store(false, Ordering::Relaxed);
    assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200, "an error is not remembered");
    ask.away.store(true, Ordering::Relaxed);
    assert_eq!(proxy.get("/api/x", Some("ann")).await.0, 503, "a token that is known, but an access that is not");
    // Until the cached token expires.
    let mut last = 200;
    while last == 200 {
        last = proxy.get("/metrics", Some("ann")).await.0;
    }
    assert_eq!(last, 503);
    behind.seen();
    assert_eq!(proxy.get("/metrics", None).await.0, 401, "no review is needed");
    assert_eq!(behind.seen(), <[&str; 0]>::default());
}

#[tokio::test]
async fn concurrent_callers_share_one_review() {
    let (_behind, ask, proxy) = usual(&[]).await;
    let crowd = (0..50).map(|_| proxy.get("/metrics", Some("ann")));
    let answers = futures::future::join_all(crowd).await;
    assert!(answers.iter().all(|(status, _)| *status == 200), "{answers:?}");
    assert_eq!((ask.tokens.load(Ordering::Relaxed), ask.accesses.load(Ordering::Relaxed)), (1, 1));
}

mod as_a_layer {
    use std::sync::{Arc, atomic::Ordering};

    use axum::{Extension, Router, middleware, routing::get};
    use metrics_proxy::{Admitted, CacheTtls, Guard, Metrics, Rules};
    use serving::{Limits, Listener};
    use tokio_util::sync::CancellationToken;

    use crate::kit::{Ask, status, tell};

    /// The same guard as a layer in front of one's own handler, without a second container.
    #[tokio::test]
    async fn guard_layer_protects_custom_handler() {
        let (ask, metrics) = (Arc::new(Ask::default()), Arc::new(Metrics::new().unwrap()));
        let guard = Arc::new(Guard::new(Rules::default(), ask.clone(), CacheTtls::default(), metrics.clone()));
        let handler = async |Extension(admitted): Extension<Admitted>, headers: http::HeaderMap| {
            assert!(!headers.contains_key("authorization"));
            let Admitted::User(user) = admitted else { panic!("no user") };
            format!("hello {}", user.name)
        };
        let routes = Router::new()
            .route("/metrics", get(handler))
            .layer(middleware::from_fn_with_state(guard, metrics_proxy::admit));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap().limits(Limits::default());
        let (address, stop) = (listener.local_addr(), CancellationToken::new());
        let task = tokio::spawn(listener.serve(routes, stop.clone().cancelled_owned()));
        let ask_for = async |token| {
            let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
            tell(&mut stream, crate::kit::get("/metrics", token)).await
        };
        assert!(ask_for(Some("ann")).await.ends_with("hello ann"));
        assert_eq!(status(&ask_for(Some("bob")).await), 403);
        assert_eq!(status(&ask_for(None).await), 401);
        assert_eq!(ask.tokens.load(Ordering::Relaxed), 2);
        let text = metrics.text().unwrap();
        assert!(text.contains("metrics_proxy_requests_total{code=\"403\"} 1\n"), "{text}");
        stop.cancel();
        task.await.unwrap();
    }
}
