//! Answers that harm a client that trusts them, for the `hostile` fault; see [`Hostile`].

use std::{convert::Infallible, io::Write as _, time::Duration};

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::faults::Hostile;

/// Size of the large answers, in bytes, after decompression.
const LARGE: usize = 100 << 20;
const CHUNK: usize = 1 << 16;

/// Builds the answer of this kind.
pub(crate) fn answer(kind: Hostile, status: u16) -> Response {
    let mut response = match kind {
        Hostile::Redirect => {
            // No server listens on this port, so a client that follows the redirect fails visibly.
            let to = (header::LOCATION, "http://127.0.0.1:9/v1/bookings");
            return (StatusCode::TEMPORARY_REDIRECT, [to]).into_response();
        }
        Hostile::Huge => streamed(stream::iter(chunks())),
        Hostile::GzipBomb => {
            let mut response = Response::new(Body::from(bomb()));
            response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response
        }
        Hostile::ControlCharacters => Response::new(Body::from(poisoned())),
        Hostile::WrongTypes => Response::new(Body::from(
            r#"{"id":17,"reference":{"a":1},"from":["x"],"number":"two","state":null,"version":-1.5e300}"#,
        )),
        Hostile::Malformed => Response::new(Body::from(r#"{"id":"BK-0000000000","reference":"#)),
        Hostile::Truncated => announced(streamed(stream::iter([Bytes::from_static(b"{\"id\":")]))),
        Hostile::Trickle => announced(streamed(stream::repeat(Bytes::from_static(b" ")).then(|byte| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            byte
        }))),
        Hostile::HeadersOnly => announced(streamed(stream::pending())),
    };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn streamed(chunks: impl futures::Stream<Item = Bytes> + Send + 'static) -> Response {
    Response::new(Body::from_stream(chunks.map(Ok::<_, Infallible>)))
}

/// Announces a length that the body will not reach.
fn announced(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("100000"));
    response
}

fn chunks() -> impl Iterator<Item = Bytes> {
    let (head, chunk) = ([Bytes::from_static(b"{\"id\":\"")], Bytes::from(vec![b'A'; CHUNK]));
    head.into_iter().chain(std::iter::repeat_n(chunk, LARGE / CHUNK))
}

fn bomb() -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail.
    for chunk in chunks() {
        drop(encoder.write_all(&chunk));
    }
    encoder.finish().unwrap_or_default()
}

fn poisoned() -> String {
    let poison = "\u{1b}[31mred\u{1b}[0m\r\nlevel=error msg=\"forged\"\u{0}\u{202e}<script>alert(1)</script>";
    json!({
        "id": poison, "reference": poison, "from": poison, "to": poison, "number": 1, "cabin": "Economy",
        "state": "CONFIRMED", "confirmationCode": poison, "seats": [poison], "version": 1, "message": poison.repeat(50),
        "createdAt": "2027-01-01T00:00:00Z", "updatedAt": "2027-01-01T00:00:00Z",
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_bomb_is_small_and_unpacks_large() {
        let bomb = bomb();
        assert!(bomb.len() < 200_000, "{}", bomb.len());
        let mut unpacked = flate2::read::GzDecoder::new(bomb.as_slice());
        assert!(std::io::copy(&mut unpacked, &mut std::io::sink()).unwrap() >= LARGE as u64);
    }
}
