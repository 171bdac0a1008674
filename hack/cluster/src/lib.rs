//! Builds and runs real Kubernetes clusters for tests and demos.
