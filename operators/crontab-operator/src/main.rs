//! A binary with only this operator, for development and tests.

fn main() -> std::process::ExitCode {
    manager::main(&[&crontab_operator::CronTabOperator])
}
