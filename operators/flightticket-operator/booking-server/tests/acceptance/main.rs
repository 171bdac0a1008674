//! The server as its clients meet it: over HTTP, and as a process that is killed.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod browser;
mod client;
mod contract;
mod durability;
mod faults;
mod numbered;
mod process;
mod program;
mod second_port;
mod served;
