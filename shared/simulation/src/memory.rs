//! How much memory is in use by the thread of a world.

use tikv_jemalloc_ctl::thread;
use tikv_jemallocator::Jemalloc;

/// It counts by thread.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Bytes that this thread has allocated and not freed. A world and everything in it is one thread.
///
/// # Panics
///
/// When the allocator does not count.
pub(crate) fn in_use() -> i64 {
    let allocated = thread::allocatedp::read().expect("the allocator counts").get();
    let freed = thread::deallocatedp::read().expect("the allocator counts").get();
    allocated.cast_signed() - freed.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_not_in_use() {
        let before = in_use();
        let bytes = std::hint::black_box(vec![0_u8; 100_000]);
        assert!(in_use() - before >= 100_000, "{}", in_use() - before);
        drop(bytes);
        assert!((in_use() - before).abs() < 10_000, "{}", in_use() - before);
    }
}
