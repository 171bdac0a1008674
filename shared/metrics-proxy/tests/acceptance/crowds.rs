//! Many slow clients at once.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::kit::{soon, usual};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_do_not_block_others() {
    let (_behind, _, proxy) = usual(&["--max-connections=200"]).await;
    let address = proxy.plain.unwrap();
    assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200);
    // More connections than the limit: silent ones, and some that never end their head.
    let crowd = join_all((0..1000).map(|n| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        if n % 2 == 0 {
            drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nx: ").await);
        }
        stream
    }));
    let crowd = soon(crowd).await;
    let mut times = Vec::new();
    for _ in 0..11 {
        let since = Instant::now();
        assert_eq!(proxy.get("/metrics", Some("ann")).await.0, 200);
        times.push(since.elapsed());
    }
    times.sort();
    assert!(times[5] < Duration::from_secs(1), "half of them took longer: {times:?}");
    drop(crowd);
}
