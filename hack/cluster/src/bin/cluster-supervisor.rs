//! Owns the processes of one cluster; started by the library `cluster`, never by hand.

fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    cluster::supervisor::main(&args)
}
