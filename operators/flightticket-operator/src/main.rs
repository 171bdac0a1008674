//! This operator alone, for the development loop.

fn main() -> std::process::ExitCode {
    manager::main(&[&flightticket_operator::FlightTicketOperator])
}
