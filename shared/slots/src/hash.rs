//! Which slot an object belongs to.

/// The slot of the object with this uid, below `slots`. The slots are equal ranges of the 64-bit FNV-1a hash of the uid.
///
/// `ShardedListAndWatch` of the API server selects objects by ranges of the same hash. So one range of it is one slot.
///
/// ```
/// assert!(slots::slot_of("4c2b1d9e-3c55-4a0f-9a55-0d0f4f1f9d11", 64) < 64);
/// ```
pub fn slot_of(uid: &str, slots: u16) -> u16 {
    let product = u128::from(fnv_1a(uid)) * u128::from(slots);
    u16::try_from(product >> 64).unwrap_or(u16::MAX) // never: the hash is below 2^64, so the result is below `slots`
}

fn fnv_1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_fnv_1a_as_published() {
        assert_eq!(
            ["", "a", "foobar"].map(fnv_1a),
            [0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8]
        );
    }

    #[test]
    fn slots_are_equal_ranges_of_the_hash() {
        // The hash of "a" is at 0.685 of the range, that of "foobar" at 0.522.
        assert_eq!([1, 2, 3, 10].map(|slots| slot_of("a", slots)), [0, 1, 2, 6]);
        assert_eq!([1, 2, 3, 10].map(|slots| slot_of("foobar", slots)), [0, 1, 1, 5]);
        assert_eq!(slot_of("a", 0), 0);
    }

    #[test]
    fn objects_spread_over_all_slots() {
        let mut counts = [0_u32; 16];
        for number in 0..16_000_u64 {
            // As random as a uid: multiplying by an odd number permutes the numbers.
            let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let uid =
                format!("{:08x}-{:04x}-4{:03x}-8000-{number:012x}", mixed >> 32, (mixed >> 16) & 0xffff, mixed & 0xfff);
            counts[usize::from(slot_of(&uid, 16))] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }
}
