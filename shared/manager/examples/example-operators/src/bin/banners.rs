//! Runs this operator.

fn main() -> std::process::ExitCode {
    manager::main(&[&example_operators::banners::Banners])
}
