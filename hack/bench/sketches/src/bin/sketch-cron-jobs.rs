//! Runs this operator.

fn main() -> std::process::ExitCode {
    manager::main(&[&sketches::cron_jobs::CronJobs])
}
