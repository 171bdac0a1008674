//! HTTP/2 frames, written by hand: no client library misbehaves on purpose.

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::kit::{Authority, Server, soon};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:method: GET`, `:scheme: https`, `:path: /`, from the static table of HPACK, and `:authority: a`.
pub(crate) const GET: &[u8] = &[0x82, 0x87, 0x84, 0x41, 1, b'a'];

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        values.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// Whether these bytes end with the end of a frame.
pub(crate) fn are_whole(mut bytes: &[u8]) -> bool {
    while let Some((length, rest)) = bytes.split_first_chunk::<3>() {
        let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
        let Some((_, next)) = rest.split_at_checked(6 + length) else { return false };
        bytes = next;
    }
    bytes.is_empty()
}

/// A whole request for `/`.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, GET)
}

/// The client gives up a stream.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

/// Begins an HTTP/2 connection with these settings.
pub(crate) async fn connect(server: &Server, authority: &Authority, values: &[(u16, u32)]) -> TlsStream<TcpStream> {
    let mut config = authority.trusted(None);
    config.alpn_protocols = vec![b"h2".to_vec()];
    begun(server.connect_tls(config).await.unwrap(), values).await
}

/// Sends the preface and these settings. The server may have ended the connection already.
pub(crate) async fn begun(mut stream: TlsStream<TcpStream>, values: &[(u16, u32)]) -> TlsStream<TcpStream> {
    drop(stream.write_all(&[PREFACE, &settings(values)].concat()).await);
    stream
}

/// Reads up to the next frame of this kind on this stream, and returns its payload. `None` if the connection ends before.
pub(crate) async fn next(stream: &mut (impl AsyncRead + Unpin), kind: u8, of: u32) -> Option<Vec<u8>> {
    loop {
        let mut head = [0; 9];
        soon(stream.read_exact(&mut head)).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        soon(stream.read_exact(&mut payload)).await.ok()?;
        if head[3] == kind && u32::from_be_bytes([head[5], head[6], head[7], head[8]]) == of {
            return Some(payload);
        }
    }
}
