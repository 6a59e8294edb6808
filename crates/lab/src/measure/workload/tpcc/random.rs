//! What the standard draws at random: numbers that prefer some values, last names, texts.

use std::ops::RangeInclusive;

/// The parts of a last name, by digit.
const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];

/// What the description of an original item or stock contains.
pub const ORIGINAL: &str = "ORIGINAL";

const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A preference: the larger `mask`, the more values share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preference {
    mask: u32,
    constant: u32,
}

impl Preference {
    /// A number of `range`: two uniform draws are joined bit by bit, which makes numbers with many
    /// set bits more frequent, and the constant says where in the range those lie.
    ///
    /// # Panics
    /// On an empty range.
    pub fn draw(self, random: &mut fastrand::Rng, range: RangeInclusive<i32>) -> i32 {
        let (low, high) = (i64::from(*range.start()), i64::from(*range.end()));
        let joined = i64::from(random.u32(0..=self.mask)) | random.i64(low..=high);
        let drawn = (joined + i64::from(self.constant)) % (high - low + 1) + low;
        i32::try_from(drawn).expect("a remainder lies within the range")
    }
}

/// The three preferences of a load, with constants of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferences {
    /// Of last names, 0 to 999.
    pub last_name: Preference,
    /// Of customers.
    pub customer: Preference,
    /// Of items.
    pub item: Preference,
}

impl Preferences {
    /// Those of a fill.
    pub fn of_fill(random: &mut fastrand::Rng) -> Self {
        let mut preference = |mask| Preference {
            mask,
            constant: random.u32(0..=mask),
        };
        Self {
            last_name: preference(255),
            customer: preference(1023),
            item: preference(8191),
        }
    }

    /// Those of a load over data of `fill`: the popular last names of the two lie as far from each
    /// other as the standard asks, so that the load does not find only what the fill made popular.
    pub fn of_load(fill: Self, random: &mut fastrand::Rng) -> Self {
        loop {
            let drawn = Self::of_fill(random);
            let apart = drawn.last_name.constant.abs_diff(fill.last_name.constant);
            if (65..=119).contains(&apart) && apart != 96 && apart != 112 {
                return drawn;
            }
        }
    }
}

/// The last name of a number: a syllable for each of its last three digits.
pub fn last_name(number: i32) -> String {
    let number = usize::try_from(number).expect("last names count from 0");
    [number / 100 % 10, number / 10 % 10, number % 10]
        .map(|digit| SYLLABLES[digit])
        .concat()
}

/// A text of letters and digits.
pub fn letters(random: &mut fastrand::Rng, length: RangeInclusive<usize>) -> String {
    (0..random.usize(length))
        .map(|_| char::from(LETTERS[random.usize(..LETTERS.len())]))
        .collect()
}

/// A text of digits.
pub fn digits(random: &mut fastrand::Rng, length: usize) -> String {
    (0..length)
        .map(|_| char::from(LETTERS[LETTERS.len() - 10 + random.usize(..10)]))
        .collect()
}

/// What items and stock say of themselves: one of ten says somewhere that it is original.
pub fn description(random: &mut fastrand::Rng) -> String {
    let mut text = letters(random, 26..=50);
    if random.u32(..10) == 0 {
        let from = random.usize(0..=text.len() - ORIGINAL.len());
        text.replace_range(from..from + ORIGINAL.len(), ORIGINAL);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(preference: Preference, range: RangeInclusive<i32>) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(5);
        let low = *range.start();
        let mut counts = vec![0; usize::try_from(*range.end() - low + 1).unwrap()];
        for _ in 0..300_000 {
            let value = preference.draw(&mut random, range.clone());
            assert!(range.contains(&value), "{value}");
            counts[usize::try_from(value - low).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn preferred_numbers_stay_in_their_range_reach_most_of_it_and_are_not_alike() {
        let mut random = fastrand::Rng::with_seed(1);
        let preferences = Preferences::of_fill(&mut random);
        for (preference, range) in [
            (preferences.last_name, 0..=999),
            (preferences.customer, 1..=3000),
        ] {
            let mut counts = drawn(preference, range);
            let seen = counts.iter().filter(|count| **count > 0).count();
            assert!(seen > counts.len() * 8 / 10, "{seen}");
            // Were all alike, the most frequent tenth would have a tenth of the draws, and a little.
            counts.sort_unstable_by(|one, other| other.cmp(one));
            let first: u32 = counts[..counts.len() / 10].iter().sum();
            assert!(first > 60_000, "{first}");
        }
        let items = drawn(preferences.item, 1..=100_000);
        assert!(items.iter().filter(|count| **count > 20).count() > 100);
    }

    #[test]
    fn the_load_prefers_other_last_names_than_the_fill() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let fill = Preferences::of_fill(&mut random);
            let load = Preferences::of_load(fill, &mut random);
            let apart = fill.last_name.constant.abs_diff(load.last_name.constant);
            assert!((65..=119).contains(&apart) && apart != 96 && apart != 112);
            assert!(load.last_name.constant <= 255);
        }
    }

    #[test]
    fn a_last_name_has_a_syllable_for_each_digit() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(999), "EINGEINGEING");
    }

    #[test]
    fn one_description_of_ten_is_original() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut original = 0;
        for _ in 0..10_000 {
            let text = description(&mut random);
            assert!((26..=50).contains(&text.len()), "{text}");
            original += i32::from(text.contains("ORIGINAL"));
        }
        assert!((900..=1100).contains(&original), "{original}");
    }
}
