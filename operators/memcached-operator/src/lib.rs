//! Independent memcached servers behind one headless Service.
