//! Runs this operator alone, for development.

fn main() -> std::process::ExitCode {
    manager::main(&[&memcached_operator::MemcachedOperator])
}
