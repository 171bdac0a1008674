//! Attacks our servers without credentials, while an honest client measures them.
//!
//! A *round* is one attack on one target: the target starts as a process of its own, attackers repeat the attack at the same
//! time, the honest client sends a request every 50 ms, and the kubelet asks the probes of the chart every second. Afterwards, the round
//! reports how many attempts have reached the target, the peak of its memory, the times of the honest answers, the missed probes, and
//! whether the process has survived. All traffic stays on loopback.
//!
//! Attackers have one thread of their own, so that they use one processor at most, and addresses of their own.
//!
//! Reading order: [`ATTACKS`] is the registry. [`Target`]s are what is attacked, `program` starts them, `requests` is what they
//! get, `aim` is how attackers connect, and [`Round`] runs one attack and judges it.

mod aim;
mod api_server;
mod attacks;
mod frames;
mod honest;
mod memory;
mod probes;
mod program;
mod requests;
mod round;
mod target;

pub use attacks::{ATTACKS, Attack};
pub use program::Programs;
pub use round::{Outcome, Round, divided};
pub use target::{Target, manage, serve};
