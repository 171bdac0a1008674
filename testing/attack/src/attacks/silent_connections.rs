//! Holds connections without TLS on which it sends nothing. With TLS, these are unfinished handshakes.

use super::{Attack, MANY};
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;

pub(super) const ATTACK: Attack = Attack {
    name: "silent-connections",
    about: "Holds connections without TLS on which it sends nothing",
    targets: &[Target::ManagerProbes, Target::BookingProbes],
    attackers: MANY,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let stream = aim.tcp().await?;
    aim.count();
    aim.hold(stream).await;
    Ok(())
}
