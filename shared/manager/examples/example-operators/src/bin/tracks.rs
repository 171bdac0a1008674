//! Runs this operator.

use example_operators::tracks::Tracks;

fn main() -> std::process::ExitCode {
    manager::main(&[Box::leak(Box::<Tracks>::default())])
}
