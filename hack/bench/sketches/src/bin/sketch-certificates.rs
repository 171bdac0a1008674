//! Runs this operator.

fn main() -> std::process::ExitCode {
    manager::main(&[&sketches::certificates::Certificates])
}
