//! The plugin `kubectl operators`: see `kubectl operators --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    kubectl_operators::main()
}
