//! Runs this operator.

fn main() -> std::process::ExitCode {
    manager::main(&[Box::leak(Box::<example_operators::ledgers::Ledgers>::default())])
}
