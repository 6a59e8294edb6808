//! Numbers that look random and follow from a seed alone, for the simulator and the replayer.
//!
//! The method is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014): one addition and a mixing of 64 bits, equally distributed, no state to
//! warm up. It is not for secrets.

/// A generator whose whole course is decided by its seed.
#[derive(Debug, Clone)]
pub struct SeededRandom {
    state: u64,
}

impl SeededRandom {
    /// A generator at the beginning of the course of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, and without, `bound`. The bias of the remainder is below
    /// `bound` / 2^64, far below what a simulation could notice.
    ///
    /// # Panics
    /// Where `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        self.next_u64() % bound
    }

    /// An index into something of `length` parts.
    ///
    /// # Panics
    /// Where `length` is zero.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index is below a usize")
    }

    /// True `numerator` times in `denominator`.
    pub const fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Puts the items in an order of which each is equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.index(end + 1);
            items.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRandom;

    #[test]
    fn the_same_seed_gives_the_same_course_and_another_seed_another() {
        let course = |seed| {
            let mut random = SeededRandom::new(seed);
            (0..16).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(course(1), course(1));
        assert_ne!(course(1), course(2));
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_reaches_every_order() {
        let mut random = SeededRandom::new(3);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 6);
    }
}
