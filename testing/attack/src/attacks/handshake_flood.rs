//! Begins TLS handshakes, and does not use them.

use super::Attack;
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;

pub(super) const ATTACK: Attack = Attack {
    name: "handshake-flood",
    about: "Begins TLS handshakes, and does not use them",
    targets: &Target::ALL,
    attackers: 128,
    leaves_answers: false,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    if fastrand::bool() {
        drop(aim.connect().await?);
    } else {
        // Begins a handshake, and never goes on.
        aim.hold(aim.tcp().await?).await;
    }
    Ok(())
}
