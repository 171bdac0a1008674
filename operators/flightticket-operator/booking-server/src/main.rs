//! Sells seats over HTTP: `booking-server --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    booking_server::main()
}
