//! One connection over a pipe, in paused time.

use bytes::Bytes;
use http_body_util::Empty;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncWriteExt, DuplexStream, duplex},
    time::interval,
};

use super::*;
use crate::connections::Connections;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
/// `:method: GET`, `:scheme: https`, `:path: /`, from the static table of HPACK, and `:authority: a`.
const GET: &[u8] = &[0x82, 0x87, 0x84, 0x41, 1, b'a'];

/// A frame without flags, so that a head has no end.
fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
}

/// Receives why connections end.
#[derive(Default)]
struct Teller(Mutex<Vec<Dropped>>);

impl Observer for Teller {
    fn dropped(&self, why: Dropped) {
        self.0.lock().push(why);
    }
}

/// Serves a connection of HTTP/2 until it ends. Returns after how many seconds it has ended, and why.
async fn served(limits: Limits, stream: DuplexStream) -> (u64, Vec<Dropped>) {
    let teller = Arc::new(Teller::default());
    let budget = Budget::new(&limits, Connections::new(1, teller.clone()));
    let drain = CancellationToken::new();
    let rules = Rules { limits, http2: Some(Http2::default()), budget, observer: teller.clone(), drain };
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let (client, activity) = (Client { address, identity: None }, Arc::new(Activity::new(address.into())));
    let service = tower::service_fn(|_: Request<Body>| ready(Ok::<_, BoxError>(Response::new(Empty::<Bytes>::new()))));
    let begun = Instant::now();
    requests(stream, client, true, activity, Arc::new(rules), service).await;
    let why = teller.0.lock().clone();
    (begun.elapsed().as_secs(), why)
}

/// More parts of the head do not extend its time. The library permits a few, and ends the connection after more.
#[tokio::test(start_paused = true)]
async fn http2_head_without_end_times_out() {
    let (mut client, server) = duplex(64 * 1024);
    let trickle = async {
        client.write_all(&[PREFACE, &frame(SETTINGS, 0, &[]), &frame(HEADERS, 1, GET)].concat()).await.expect("room");
        let mut ticks = interval(Duration::from_secs(2));
        for _ in 0..4 {
            ticks.tick().await;
            client.write_all(&frame(CONTINUATION, 1, b"\x00\x01x\x01y")).await.expect("room");
        }
        std::future::pending::<()>().await;
    };
    let limits = Limits { header_read: Duration::from_secs(10), ..Limits::default() };
    let ended = tokio::select! {
        ended = served(limits, server) => ended,
        () = trickle => panic!("it never ends"),
    };
    assert_eq!(ended, (10, vec![Dropped::Waited]));
}

/// Each asks for an acknowledgement. A client that reads none of them soon stops the server, which reads no more either.
#[tokio::test(start_paused = true)]
async fn unread_acknowledgements_of_settings_time_out() {
    let (mut client, server) = duplex(1024);
    let flood = async {
        client.write_all(&[PREFACE, &frame(SETTINGS, 0, &[])].concat()).await.expect("the server reads");
        let many = frame(SETTINGS, 0, &[]).repeat(1000);
        while client.write_all(&many).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let limits = Limits { write: Duration::from_secs(5), ..Limits::default() };
    let ended = tokio::select! {
        ended = served(limits, server) => ended,
        () = flood => panic!("it never ends"),
    };
    assert_eq!(ended, (5, vec![Dropped::Unread]));
}
