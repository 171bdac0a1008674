//! The operators on a real node: real pods, real addresses, Pod Security enforced, and the manager in an image of its
//! own with only the permissions that the code declares.

mod crontab;
mod flightticket;
mod helloapp;
mod kit;
mod memcached;
mod observability;
mod outages;
mod webhooks;
