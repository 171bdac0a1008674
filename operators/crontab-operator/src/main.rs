//! This operator alone, for the development loop.

fn main() -> std::process::ExitCode {
    manager::main(&[&crontab_operator::CronTabOperator])
}
