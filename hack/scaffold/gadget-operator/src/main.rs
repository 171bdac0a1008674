//! Runs this operator alone.

fn main() -> std::process::ExitCode {
    manager::main(&[&gadget_operator::GadgetOperator])
}
