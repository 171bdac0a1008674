//! A priority queue of keys with delays, de-duplication, fairness and per-key back-off.
