//! The controller-manager with an allocator that counts. At its end, it prints the counts to standard error, as a line of JSON.
//! `runtime-bench -- regressions` measures it.

use std::{alloc::System, process::ExitCode};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    let code = manager::main(controller_manager::OPERATORS);
    let stats = ALLOCATOR.stats();
    let allocations = stats.allocations + stats.reallocations;
    eprintln!("{}", serde_json::json!({"allocations": allocations, "allocatedBytes": stats.bytes_allocated}));
    code
}
