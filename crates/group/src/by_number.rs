//! Values by disk number or slot, found without a lock while new ones come.
//!
//! Invariant: a value that was put stays where it is for as long as the table lives, so that a
//! reference into it is good beside whoever adds more. What changes in a value is the value's own
//! business. All of it is memory; a crash forgets it.

use spindle_sync::atomic::{AtomicUsize, Ordering};
use std::sync::OnceLock;

const CHUNK: usize = 256;

type Chunk<T> = Box<[OnceLock<T>]>;

/// Values by a number of 16 bits.
#[derive(Debug)]
pub struct ByNumber<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
    /// Above every number that has a value.
    end: AtomicUsize,
}

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        Self {
            chunks: (0..CHUNK).map(|_| OnceLock::new()).collect(),
            end: AtomicUsize::new(0),
        }
    }
}

impl<T> ByNumber<T> {
    /// The value of that number, where one was put.
    pub fn get(&self, number: u16) -> Option<&T> {
        let number = usize::from(number);
        self.chunks[number / CHUNK].get()?[number % CHUNK].get()
    }

    /// The value of that number, made where there is none.
    pub fn get_or_put(&self, number: u16, value: impl FnOnce() -> T) -> &T {
        let index = usize::from(number);
        let chunk = self.chunks[index / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        let value = chunk[index % CHUNK].get_or_init(value);
        self.end.fetch_max(index + 1, Ordering::AcqRel);
        value
    }

    /// Every value that was put, in the order of the numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let end = u32::try_from(self.end.load(Ordering::Acquire)).unwrap_or(0);
        (0..end).filter_map(|number| {
            let number = u16::try_from(number).ok()?;
            Some((number, self.get(number)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ByNumber;

    #[test]
    fn values_stay_where_they_are_while_others_come() {
        let table = ByNumber::default();
        let first: &u64 = table.get_or_put(0, || 7);
        for number in [u16::MAX, 300, 255, 256] {
            table.get_or_put(number, || u64::from(number));
        }
        assert_eq!(*first, 7);
        assert_eq!(*table.get_or_put(0, || 8), 7);
        assert_eq!(table.get(1), None);
        let numbers: Vec<u16> = table.iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 255, 256, 300, u16::MAX]);
    }
}
