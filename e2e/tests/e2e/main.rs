//! Tests of the operators on a real node: real pods, real addresses and enforced Pod Security. The manager runs from its image,
//! with only the permissions that the code declares.

mod crontab;
mod flightticket;
mod helloapp;
mod ip_families;
mod kit;
mod memcached;
mod nodes;
mod observability;
mod outages;
mod plugin;
mod root_images;
mod walk;
mod webhooks;
