//! Owns the processes of one cluster; started by the library `cluster`, never by hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match cluster::supervisor::main(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}"); // the last line of the log: whoever started us shows it
            ExitCode::FAILURE
        }
    }
}
