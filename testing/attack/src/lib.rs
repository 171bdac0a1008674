//! Attacks our servers without credentials, while an honest client measures them.
//!
//! A *round* is one attack on one target: the target starts as a process of its own, attackers repeat the attack at the same
//! time, and the honest client sends a request every 50 ms. Afterwards, the round reports the peak of the target's memory, the
//! times of the honest answers, and whether the process has survived. All traffic stays on loopback.
//!
//! Reading order: [`ATTACKS`] is the registry. `target` are the programs, `aim` is how attackers connect, and [`Round`] runs one
//! attack and judges it.

mod aim;
mod attacks;
mod frames;
mod honest;
mod memory;
mod program;
mod round;
mod target;

pub use attacks::{ATTACKS, Attack};
pub use round::{Outcome, Round};
pub use target::{Target, serve};
