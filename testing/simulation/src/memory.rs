//! Measures the memory of a world, which runs on one thread.

use tikv_jemalloc_ctl::thread;
use tikv_jemallocator::Jemalloc;

/// jemalloc counts allocations by thread; the standard allocator does not count.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Returns the bytes that this thread has allocated and not freed. A world and everything in it runs on one thread.
///
/// # Panics
///
/// When the allocator has no counters.
pub(crate) fn in_use() -> i64 {
    let allocated = thread::allocatedp::read().expect("the allocator counts").get();
    let freed = thread::deallocatedp::read().expect("the allocator counts").get();
    allocated.cast_signed() - freed.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_not_in_use() {
        let before = in_use();
        let bytes = std::hint::black_box(vec![0_u8; 100_000]);
        assert!(in_use() - before >= 100_000, "{}", in_use() - before);
        drop(bytes);
        assert!((in_use() - before).abs() < 10_000, "{}", in_use() - before);
    }
}
