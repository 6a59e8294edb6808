//! Which version of a unit is right: pure, from the versions of its blocks and a judge.
//!
//! A unit is a page, or the block that holds several. Its blocks may lie in different extents,
//! and each may be damaged on another disk; so every combination of their versions is judged,
//! and the one that alone is good is right.

use smallvec::SmallVec;
use spindle_base::BLOCK_SIZE_BYTES;
use spindle_pages::{Choice, PageFile, Undecided, choose};

/// Beyond it the damage is too wide for a checksum of 16 bits to be believed.
const COMBINATIONS_MOST: usize = 16;

/// The versions of one block: its bytes, and a bit for each lane that has them.
pub type Versions<'a> = SmallVec<[(&'a [u8], u8); 3]>;

/// What the versions of a unit come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// There is one version, and it is not bad.
    Fine,
    /// There is one version, and it is bad.
    AllBad,
    /// For each block, which of its versions is right.
    Right(Vec<usize>),
    /// Nothing is proven, and why.
    Undecided(Undecided),
}

/// How many blocks a unit of these pages has.
pub fn unit_blocks(pages: &PageFile) -> u64 {
    (pages.page_bytes() as u64).div_ceil(BLOCK_SIZE_BYTES)
}

/// Whether a unit that lies at `offset_bytes` of its file has a bad page.
pub fn has_bad_page(pages: &PageFile, offset_bytes: u64, unit: &[u8]) -> bool {
    let page_bytes = pages.page_bytes();
    (offset_bytes / page_bytes as u64..)
        .zip(unit.chunks(page_bytes))
        .any(|(number, page)| pages.judge(number, page).is_bad())
}

/// Judges every combination of the versions of a unit's blocks, each of which has one at least.
pub fn judge_versions(pages: &PageFile, offset_bytes: u64, blocks: &[Versions<'_>]) -> Judgement {
    let combinations = blocks
        .iter()
        .try_fold(1_usize, |product, versions| {
            product.checked_mul(versions.len())
        })
        .filter(|combinations| *combinations <= COMBINATIONS_MOST);
    let Some(combinations) = combinations else {
        return Judgement::Undecided(Undecided::NoneGood);
    };
    let chosen = |combination: usize| {
        let mut rest = combination;
        blocks.iter().map(move |versions| {
            let number = rest % versions.len();
            rest /= versions.len();
            number
        })
    };
    let units: Vec<Vec<u8>> = (0..combinations)
        .map(|combination| {
            blocks
                .iter()
                .zip(chosen(combination))
                .flat_map(|(versions, number)| versions[number].0.iter().copied())
                .collect()
        })
        .collect();
    if let [only] = &units[..] {
        return if has_bad_page(pages, offset_bytes, only) {
            Judgement::AllBad
        } else {
            Judgement::Fine
        };
    }
    let units: Vec<&[u8]> = units.iter().map(|unit| &unit[..]).collect();
    let first_page = offset_bytes / pages.page_bytes() as u64;
    match choose(pages, first_page, &units) {
        Choice::Right(combination) => Judgement::Right(chosen(combination).collect()),
        Choice::Undecided(why) => Judgement::Undecided(why),
    }
}

#[cfg(test)]
mod tests {
    use super::{Judgement, Versions, judge_versions};
    use spindle_pages::postgresql::{Checksums, Cluster, PAGE_BYTES, checksum};
    use spindle_pages::{PageFile, Undecided};

    const PAGES: PageFile = PageFile::PostgreSql {
        segment: 0,
        cluster: Cluster::usual(Checksums::On),
    };

    fn page(fill: u8) -> Vec<u8> {
        let mut page = vec![fill; PAGE_BYTES];
        page[14..16].copy_from_slice(&8000_u16.to_le_bytes());
        page[18..20].copy_from_slice(&0x2004_u16.to_le_bytes());
        let sum = checksum(&page, 3);
        page[8..10].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn judge(versions: &[&[&[u8]]]) -> Judgement {
        let blocks: Vec<Versions<'_>> = versions
            .iter()
            .map(|versions| versions.iter().map(|bytes| (*bytes, 1)).collect())
            .collect();
        judge_versions(&PAGES, 3 * 8192, &blocks)
    }

    #[test]
    fn damage_in_another_block_of_each_copy_is_put_together() {
        let right = page(7);
        let mut first = right.clone();
        first[100] ^= 1;
        let mut second = right.clone();
        second[5000] ^= 1;
        let judgement = judge(&[
            &[&first[..4096], &second[..4096]],
            &[&first[4096..], &second[4096..]],
        ]);
        assert_eq!(judgement, Judgement::Right(vec![1, 0]));
    }

    #[test]
    fn an_older_good_page_beside_a_newer_one_decides_nothing() {
        let (older, newer) = (page(7), page(8));
        let judgement = judge(&[
            &[&older[..4096], &newer[..4096]],
            &[&older[4096..], &newer[4096..]],
        ]);
        assert_eq!(judgement, Judgement::Undecided(Undecided::SeveralGood));
    }

    #[test]
    fn the_only_version_is_fine_or_bad() {
        let mut page = page(7);
        let halves = |page: &[u8]| judge(&[&[&page[..4096]], &[&page[4096..]]]);
        assert_eq!(halves(&page), Judgement::Fine);
        page[77] ^= 2;
        assert_eq!(halves(&page), Judgement::AllBad);
        let mut other = page.clone();
        other[78] ^= 2;
        let judgement = judge(&[&[&page[..4096], &other[..4096]], &[&page[4096..]]]);
        assert_eq!(judgement, Judgement::Undecided(Undecided::NoneGood));
    }
}
