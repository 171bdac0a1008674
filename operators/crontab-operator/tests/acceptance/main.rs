//! Acceptance tests of CronTab on a real API server. The numbers in the names (`t02`) are those of the operator's list of
//! acceptance tests. Tests that concern only the clock are in `in_memory`, with simulated time. Only `node`
//! has nodes: the other tests act as the other controllers, and set the operator's clock.

mod campaign;
mod commands;
mod crowd;
mod fence;
mod kit;
mod node;
mod runs;
mod schedules;
