//! Every task of the repository, one subcommand each.

fn main() {}
