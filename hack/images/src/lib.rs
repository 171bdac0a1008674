//! Makes OCI images without a daemon and serves them to a node.
