//! Runs this operator.

use example_operators::banners::Banners;

fn main() -> std::process::ExitCode {
    manager::main(&[Box::leak(Box::<Banners>::default())])
}
