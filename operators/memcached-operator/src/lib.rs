//! Independent memcached servers behind one headless Service.

pub mod api;
