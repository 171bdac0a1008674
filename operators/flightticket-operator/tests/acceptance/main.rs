//! What users of a FlightTicket can rely on, on a real API server and with a real booking server. The numbers are those of the
//! operator's list of acceptance tests; what is about long times alone is in `tests/in_memory`.

mod bookings;
mod campaign;
mod chaos;
mod client;
mod crashes;
mod desk;
mod objects;
mod provider;
mod troubles;
