//! Acceptance tests of FlightTicket, on a real API server and with a real booking server. The numbers in the names (`t01`) are
//! those of the operator's list of acceptance tests. Tests of long periods are in `tests/in_memory`.

mod bookings;
mod campaign;
mod chaos;
mod client;
mod crashes;
mod desk;
mod objects;
mod provider;
mod tls;
mod troubles;
