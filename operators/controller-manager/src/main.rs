//! Hosts the operators: `controller-manager --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    manager::main(controller_manager::OPERATORS)
}
