//! The number by which entries refer to each other.

use std::num::NonZeroU32;

/// Identifies an entry as long as it exists. Takes four bytes, also in an `Option`, because the linked lists consist of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(NonZeroU32);

/// The number of entries per allocation.
pub(super) const CHUNK: usize = 64;

impl Slot {
    /// The slot at this index of the storage.
    pub(super) fn new(index: usize) -> Self {
        let number = u32::try_from(index + 1).ok().and_then(NonZeroU32::new);
        Self(number.expect("four thousand million keys do not fit into memory"))
    }

    pub(super) fn chunk(self) -> usize {
        (self.0.get() - 1) as usize / CHUNK
    }

    pub(super) fn offset(self) -> usize {
        (self.0.get() - 1) as usize % CHUNK
    }
}
