//! Owns the processes of one cluster. The library `cluster` starts this program; users never do.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match cluster::supervisor::main(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}"); // the last line of the log, which the starting process shows
            ExitCode::FAILURE
        }
    }
}
