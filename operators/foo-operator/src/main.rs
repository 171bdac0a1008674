//! Runs this operator alone, for development.

fn main() -> std::process::ExitCode {
    manager::main(&[&foo_operator::FooOperator])
}
