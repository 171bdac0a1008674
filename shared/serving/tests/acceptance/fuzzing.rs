//! Random heads and HTTP/2 frames. Whatever a client sends, the next one is served, and no connection and no memory is lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, body::Bytes, routing::post};
use fuzz::{Rng, Target};
use serving::{Drained, Http2, Limits, Listener, Observer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    runtime::Runtime,
    task::JoinHandle,
};

use crate::{
    frames,
    kit::{Authority, listener, rest, soon, tell, tls},
};

/// All requests together may use this much.
const MEMORY: usize = 64 * 1024;
/// A body that needs nearly all of it, beside the fixed cost of a request.
const LARGE: usize = 40 * 1024;

#[derive(Default)]
struct Open(AtomicUsize);

impl Observer for Open {
    fn connections(&self, open: usize) {
        self.0.store(open, Ordering::Relaxed);
    }
}

struct Victim {
    runtime: Runtime,
    address: std::net::SocketAddr,
    open: Arc<Open>,
    /// Requests that have reached the handler.
    handled: Arc<AtomicUsize>,
    task: JoinHandle<Drained>,
}

impl Victim {
    fn new(listener: impl FnOnce(&Runtime) -> Listener) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = listener(&runtime);
        let (address, open) = (listener.local_addr(), Arc::new(Open::default()));
        let limits = Limits { memory: MEMORY, connections: 4, ..Limits::default() };
        let handled = Arc::new(AtomicUsize::new(0));
        let counted = handled.clone();
        let answer = move |body: Bytes| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                // Clients give up requests at work, too.
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                body.len().to_string()
            }
        };
        let routes = Router::new().route("/", post(answer.clone()).get(answer));
        let serving = listener.limits(limits).observed_by(open.clone()).serve(routes, std::future::pending());
        let task = runtime.spawn(serving);
        Self { runtime, address, open, handled, task }
    }

    fn handled(&self) -> usize {
        self.handled.load(Ordering::Relaxed)
    }

    /// Sends this, and no more, and reads until the server ends the connection.
    fn sends(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) {
        self.runtime.block_on(async {
            // The server may end the connection at any moment.
            if stream.write_all(bytes).await.is_ok() && stream.shutdown().await.is_ok() {
                rest(&mut stream).await;
            }
        });
        self.is_left();
    }

    /// Sends a request whose answer shows that all memory is free.
    fn serves(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {LARGE}\r\n\r\n");
        let answer = self.runtime.block_on(tell(&mut stream, &(head + &"x".repeat(LARGE))));
        assert!(answer.ends_with(&LARGE.to_string()), "{answer}");
        self.is_left();
    }

    /// Waits until no connection is left.
    fn is_left(&self) {
        self.runtime.block_on(soon(async {
            while self.open.0.load(Ordering::Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
        }));
        assert!(!self.task.is_finished(), "the server has ended");
    }

    fn connect(&self) -> TcpStream {
        self.runtime.block_on(soon(TcpStream::connect(self.address))).unwrap()
    }
}

const HEADS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
    b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    b"GET http://a/?q=%20#f HTTP/1.0\r\nhost: a\r\nexpect: 100-continue\r\nupgrade: h2c\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];
const WORDS: &[&str] = &[
    "content-length: ",
    "transfer-encoding: chunked\r\n",
    "host: b\r\n",
    "GET ",
    "CONNECT ",
    "OPTIONS * ",
    "HTTP/1.1",
    "HTTP/9.9",
    "ffffffffffffffff\r\n",
    "0\r\n\r\n",
    "connection: keep-alive, close\r\n",
    "expect: 100-continue\r\n",
    "\r\n ",
    ";",
];

#[test]
fn fuzz_heads() {
    let victim = Victim::new(|runtime| runtime.block_on(listener()));
    Target::new("heads", env!("CARGO_MANIFEST_DIR")).run(
        |random| {
            let requests = random.usize(1..4);
            (0..requests).flat_map(|_| fuzz::bytes(random, HEADS, WORDS)).collect()
        },
        |bytes| {
            let before = victim.handled();
            // At the end of the input, the server takes the client for gone, unless something follows the request. Half of them stay.
            let more: &[u8] = if bytes.len().is_multiple_of(2) { b"\r\n" } else { b"" };
            victim.sends(victim.connect(), &[bytes, more].concat());
            let is_handled = victim.handled() > before;
            victim.serves(victim.connect());
            is_handled
        },
    );
}

/// Frames that mostly belong together. Most connections survive them; some frames are wrong.
fn some_frames(random: &mut Rng) -> Vec<u8> {
    const SETTINGS: &[(u16, u32)] =
        &[(1, 0), (1, 4096), (3, 0), (3, 100), (4, 0), (4, 1), (4, 65_535), (5, 16_384), (6, 1), (99, 1)];
    let (mut bytes, mut last) = (Vec::new(), 1);
    for _ in 0..random.usize(1..30) {
        let stream = 1 + 2 * random.u32(..=last / 2);
        let frame = match random.u8(..32) {
            0..10 => {
                last += 2;
                frames::get(last)
            }
            10..13 => {
                // A request whose body follows.
                last += 2;
                frames::frame(frames::HEADERS, 4, last, frames::GET)
            }
            13..17 => frames::frame(frames::DATA, random.u8(..2), last, &vec![b'x'; random.usize(..3000)]),
            17..21 => frames::reset(stream),
            21..24 => frames::settings(&[random.choice(SETTINGS).copied().unwrap_or_default()]),
            24..27 => frames::frame(8, 0, stream * random.u32(..2), &random.u32(1..1000).to_be_bytes()),
            27 => frames::frame(6, 0, 0, &[7; 8]),
            28 => frames::frame(9, random.u8(..8), stream, b"\x00\x01x\x01y"),
            29 => {
                let payload: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
                frames::frame(random.u8(..12), random.u8(..), stream, &payload)
            }
            30 => {
                last += 2;
                frames::frame(frames::HEADERS, 5, last, &fuzz::bytes(random, &[frames::GET], &["\u{1}", "@", "?"]))
            }
            _ => frames::settings(&[(random.u16(..8), random.u32(..))]),
        };
        bytes.extend(frame);
    }
    if random.u8(..8) == 0 { fuzz::bytes(random, &[&bytes], &["\0\0\0"]) } else { bytes }
}

#[test]
fn fuzz_http2_frames() {
    let authority = Authority::new();
    let tls = tls(&authority.pair(2100));
    let victim = Victim::new(|runtime| {
        let listener = runtime.block_on(listener());
        // Frames that are kept for a stream belong to its share of the memory.
        listener.tls_with_http2(tls, Http2 { max_concurrent_streams: 4, ..Http2::default() }).unwrap()
    });
    let connect = |protocol: &[u8]| {
        let mut config = authority.trusted(None);
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = victim.connect();
        victim.runtime.block_on(soon(connector.connect("localhost".try_into().unwrap(), stream))).unwrap()
    };
    Target::new("http2-frames", env!("CARGO_MANIFEST_DIR")).run(some_frames, |bytes| {
        let before = victim.handled();
        let mut is_taken_in = false;
        let mut stream = victim.runtime.block_on(frames::begun(connect(b"h2"), &[]));
        let unfinished = if frames::are_whole(bytes) {
            // The answer to this shows that the server has taken in all frames before.
            let ping = frames::frame(6, 0, 0, b"the last");
            let taken_in = async {
                stream.write_all(&[bytes, &ping].concat()).await.ok()?;
                while frames::next(&mut stream, 6, 0).await? != b"the last" {}
                Some(())
            };
            is_taken_in = victim.runtime.block_on(taken_in).is_some();
            &[]
        } else {
            // The last frame would swallow the ping, and the server waits for the rest of it.
            bytes
        };
        victim.sends(stream, unfinished);
        // Of the others, the server has ended the connection, or no request was whole.
        let is_handled = is_taken_in && victim.handled() > before;
        victim.serves(connect(b"http/1.1"));
        is_handled
    });
}
