//! A smooth weighted rotation: a cycle in which each member comes as often as its weight says,
//! and its turns lie as evenly as they can.

/// The cycle, and for each place how many turns of the same member came before it.
#[derive(Debug)]
pub struct Rotation {
    places: Vec<(u16, u16)>,
    /// By member: turns in one cycle.
    turns: Vec<u16>,
}

impl Rotation {
    /// A cycle of at most about `places` places over members with positive weights.
    pub fn new(weights: &[(usize, f64)], places: usize) -> Self {
        let counts = share(weights, places);
        // Turn k of n is due at (2k+1)/2n of the cycle; among equals the lower member is first.
        let due = |turn: u16, count: u64| ((2 * u64::from(turn) + 1) << 32) / (2 * count);
        let mut dues: Vec<(u64, u16, u16)> = (weights.iter().zip(&counts))
            .flat_map(|((member, _), count)| {
                let turns = 0..u16::try_from(*count).expect("a share of some thousand places");
                turns.map(move |turn| (due(turn, *count), narrow(*member), turn))
            })
            .collect();
        dues.sort_unstable();
        let cycle = (dues.into_iter())
            .map(|(_, member, turn)| (member, turn))
            .collect();
        let turns_end = weights.iter().map(|(member, _)| member + 1).max();
        let mut turns = vec![0_u16; turns_end.unwrap_or(0)];
        for ((member, _), count) in weights.iter().zip(&counts) {
            turns[*member] = u16::try_from(*count).expect("a share of some thousand places");
        }
        Self {
            places: cycle,
            turns,
        }
    }

    /// Places in one cycle.
    pub fn len_u64(&self) -> u64 {
        self.places.len() as u64
    }

    /// The member at a place of the endless repetition, and how many turns it had before.
    pub fn at(&self, place: u64) -> (usize, u64) {
        let length = self.len_u64();
        let inside = usize::try_from(place % length).expect("below the length of a vector");
        let (member, before) = self.places[inside];
        let member = usize::from(member);
        let turn = place / length * u64::from(self.turns[member]) + u64::from(before);
        (member, turn)
    }
}

/// Turns of each member in a cycle of about `places`, at least one; divided by what they have in
/// common, so that equal weights give the shortest cycle.
fn share(weights: &[(usize, f64)], places: usize) -> Vec<u64> {
    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
    let counts: Vec<u64> = weights
        .iter()
        .map(|(_, weight)| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a share of some thousand places"
            )]
            let count = (weight / sum * places as f64).round() as u64;
            count.clamp(1, u64::from(u16::MAX))
        })
        .collect();
    let common = counts.iter().copied().fold(0, greatest_common_divisor);
    counts.iter().map(|count| count / common.max(1)).collect()
}

const fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 {
        left
    } else {
        greatest_common_divisor(right, left % right)
    }
}

fn narrow(member: usize) -> u16 {
    u16::try_from(member).expect("disk numbers have 16 bits")
}
