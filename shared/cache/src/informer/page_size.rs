//! How many objects to request in one page of a list, so that its body fits into memory.

/// The most objects in a page.
const MOST: u32 = 100;
/// The body that the next page should have, in bytes.
const WANTED: usize = 2 << 20;
/// The longest body of a page of several objects, in bytes. A page is in memory as a whole while it is decoded, up to three
/// times, and four kinds list at the same time. The body of a single object has no limit: it cannot be requested in parts.
pub(super) const LONGEST: usize = 4 << 20;

/// The number of objects to request. The API server allows another one for each page of the same list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageSize(u32);

impl PageSize {
    /// The size of the first page: few lists have objects so large that it gets too long.
    pub(super) const FIRST: Self = Self(MOST);

    /// The size after a page with this many objects, whose body had this many bytes.
    pub(super) fn after(objects: usize, bytes: usize) -> Self {
        if objects == 0 {
            return Self::FIRST;
        }
        let fitting = objects.saturating_mul(WANTED) / bytes.max(1);
        Self(u32::try_from(fitting).unwrap_or(MOST).clamp(1, MOST))
    }

    /// The size after a page that was longer than [`LONGEST`]; `None` for a page of one object, which is never too long.
    pub(super) fn smaller(self) -> Option<Self> {
        (self.0 > 1).then(|| Self((self.0 / 4).max(1)))
    }

    /// The value of the parameter `limit`.
    pub(super) fn limit(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_the_length_of_the_last_page() {
        for (objects, bytes, size) in [
            (100, 500_000, 100),
            (100, WANTED, 100),
            (100, 2 * WANTED, 50),
            (25, 2_500_000, 20),
            (6, 9_000_000, 1),
            (1, 1_500_000, 1),
            (1, 90_000_000, 1),
            (1, 5_000, 100),
            (3, 0, 100),
            (0, 100, 100),
            (usize::MAX, 1, 100),
        ] {
            assert_eq!(PageSize::after(objects, bytes), PageSize(size), "{objects} objects in {bytes} bytes");
        }
    }

    #[test]
    fn size_shrinks_to_one_object() {
        let sizes = std::iter::successors(Some(PageSize::FIRST), |size| size.smaller());
        assert_eq!(sizes.map(PageSize::limit).collect::<Vec<_>>(), [100, 25, 6, 1]);
    }
}
