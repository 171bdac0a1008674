//! HTTP/2 frames, written by hand: no client library misbehaves on purpose.

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:method: GET`, `:scheme: https`, from the static table of HPACK, `:authority: a` and `:path: /metrics`.
const GET: &[u8] = b"\x82\x87\x41\x01a\x44\x08/metrics";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with these identifiers and values.
pub(crate) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let bytes = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(4, 0, 0, &values.iter().flat_map(bytes).collect::<Vec<_>>())
}

/// A whole GET without credentials.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(1, END_STREAM | END_HEADERS, stream, GET)
}

/// A whole GET with a header field.
pub(crate) fn get_with(stream: u32, name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len().min(126)).unwrap_or_default();
    let text = |text: &str| [&[length(text)], &text.as_bytes()[..usize::from(length(text))]].concat();
    let field = [&[0_u8][..], &text(name), &text(value)].concat(); // a literal that no table keeps
    frame(1, END_STREAM | END_HEADERS, stream, &[GET, &field].concat())
}

/// The beginning of a head that never ends.
pub(crate) fn open_head(stream: u32) -> Vec<u8> {
    frame(1, END_STREAM, stream, GET)
}

pub(crate) fn continuation(stream: u32, fields: usize) -> Vec<u8> {
    frame(9, 0, stream, &b"\x00\x01x\x01y".repeat(fields))
}

/// A GET whose body is about to come.
pub(crate) fn get_with_body(stream: u32) -> Vec<u8> {
    frame(1, END_HEADERS, stream, GET)
}

/// A piece of a body that has no bytes, and is not the last one.
pub(crate) fn empty_data(stream: u32) -> Vec<u8> {
    frame(0, 0, stream, &[])
}

/// Adds to the window of a stream, or of the connection if the stream is 0.
pub(crate) fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(8, 0, stream, &bytes.to_be_bytes())
}

/// Says that a stream depends on another one. No server of ours gives these frames a meaning.
pub(crate) fn priority(stream: u32, on: u32) -> Vec<u8> {
    frame(2, 0, stream, &[&on.to_be_bytes()[..], &[0]].concat())
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) fn ping() -> Vec<u8> {
    frame(6, 0, 0, &[7; 8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server would end the connection at a frame of another form, and the attack would do nothing.
    #[test]
    fn frames_have_the_form_of_rfc_9113() {
        assert_eq!(window(3, 1 << 30), [0, 0, 4, 8, 0, 0, 0, 0, 3, 0x40, 0, 0, 0]);
        assert_eq!(priority(3, 5), [0, 0, 5, 2, 0, 0, 0, 0, 3, 0, 0, 0, 5, 0]);
        assert_eq!(empty_data(3), [0, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(get_with_body(3)[..9], [0, 0, 15, 1, 4, 0, 0, 0, 3]);
    }
}
