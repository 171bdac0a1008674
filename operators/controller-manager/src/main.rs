//! The binary that runs the operators: see `controller-manager --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    manager::main(controller_manager::OPERATORS)
}
