//! Begins TLS handshakes, and does not use them.

use super::{Attack, WITH_TLS};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;

pub(super) const ATTACK: Attack = Attack {
    name: "handshake-flood",
    about: "Begins TLS handshakes, and does not use them",
    targets: WITH_TLS,
    attackers: 128,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    if fastrand::bool() {
        let stream = aim.connect().await?;
        aim.count();
        drop(stream);
    } else {
        // Begins a handshake, and never goes on.
        let stream = aim.tcp().await?;
        aim.count();
        aim.hold(stream).await;
    }
    Ok(())
}
