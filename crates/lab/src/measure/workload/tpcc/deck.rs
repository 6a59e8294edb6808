//! Which transaction a terminal asks for next, and how long its user takes over it.

use std::time::Duration;

/// A transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Card {
    /// An order of 5 to 15 lines is taken.
    NewOrder,
    /// A customer pays.
    Payment,
    /// What became of a customer's last order.
    OrderStatus,
    /// The oldest waiting order of each district is delivered.
    Delivery,
    /// How many items of recent orders run short.
    StockLevel,
}

/// For each: how often it is in a deck, the seconds that keying it in takes, and the mean of the
/// seconds that its user then thinks.
const CARDS: [(Card, u32, f64, f64); 5] = [
    (Card::NewOrder, 10, 18.0, 12.0),
    (Card::Payment, 10, 3.0, 12.0),
    (Card::OrderStatus, 1, 2.0, 10.0),
    (Card::Delivery, 1, 2.0, 5.0),
    (Card::StockLevel, 1, 2.0, 5.0),
];

/// Longer than so many times its mean nobody thinks.
const LONGEST_THOUGHT: f64 = 10.0;

/// The cards of a terminal: dealt to the last one, then shuffled anew. So the shares of the mix hold
/// in every 23 transactions, and not only in the long run.
#[derive(Debug, Default)]
pub struct Deck {
    left: Vec<Card>,
}

impl Deck {
    /// The next card.
    pub fn deal(&mut self, random: &mut fastrand::Rng) -> Card {
        loop {
            if let Some(card) = self.left.pop() {
                return card;
            }
            for (card, count, _, _) in CARDS {
                for _ in 0..count {
                    self.left.push(card);
                }
            }
            random.shuffle(&mut self.left);
        }
    }
}

/// How long users take: the standard's proportions between the transactions, scaled by what a
/// New-Order takes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    /// Keying a New-Order in: 18 s in the standard.
    pub keying_time: Duration,
    /// Mean time to think after a New-Order: 12 s in the standard.
    pub think_time: Duration,
}

impl Pace {
    fn keying_s(self, card: Card) -> f64 {
        let (_, _, keying, _) = of(card);
        let (_, _, longest, _) = of(Card::NewOrder);
        self.keying_time.as_secs_f64() * keying / longest
    }

    fn thinking_s(self, card: Card) -> f64 {
        let (_, _, _, thinking) = of(card);
        let (_, _, _, longest) = of(Card::NewOrder);
        self.think_time.as_secs_f64() * thinking / longest
    }

    /// From the answer to `last` until `next` is sent: a thought, exponentially distributed, then
    /// the keying, which always takes the same.
    pub fn pause(self, last: Card, next: Card, random: &mut fastrand::Rng) -> Duration {
        // `f64` gives zero but never one: the logarithm is finite.
        let thought = (-(1.0 - random.f64()).ln()).min(LONGEST_THOUGHT);
        Duration::from_secs_f64(self.thinking_s(last) * thought + self.keying_s(next))
    }

    /// The mean over a deck.
    pub fn mean_pause(self) -> Duration {
        let count: f64 = CARDS.iter().map(|(_, count, _, _)| f64::from(*count)).sum();
        let sum: f64 = CARDS
            .iter()
            .map(|(card, count, _, _)| {
                f64::from(*count) * (self.keying_s(*card) + self.thinking_s(*card))
            })
            .sum();
        Duration::from_secs_f64(sum / count)
    }
}

fn of(card: Card) -> (Card, u32, f64, f64) {
    CARDS
        .into_iter()
        .find(|(other, ..)| *other == card)
        .expect("every card is listed")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_23_transactions_hold_the_standards_mix_in_an_order_of_their_own() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut deck = Deck::default();
        let mut orders = Vec::new();
        for _ in 0..50 {
            let dealt: Vec<Card> = (0..23).map(|_| deck.deal(&mut random)).collect();
            let mut counts = BTreeMap::new();
            for card in &dealt {
                *counts.entry(*card).or_insert(0) += 1;
            }
            assert_eq!(
                counts.into_iter().collect::<Vec<_>>(),
                [
                    (Card::NewOrder, 10),
                    (Card::Payment, 10),
                    (Card::OrderStatus, 1),
                    (Card::Delivery, 1),
                    (Card::StockLevel, 1)
                ]
            );
            orders.push(dealt);
        }
        orders.sort_unstable();
        orders.dedup();
        assert!(orders.len() > 45, "{}", orders.len());
    }

    #[test]
    fn users_take_what_the_standard_says_or_a_stated_part_of_it() {
        let standard = Pace {
            keying_time: Duration::from_secs(18),
            think_time: Duration::from_secs(12),
        };
        // (10 x 30 + 10 x 15 + 12 + 7 + 7) / 23.
        let mean = standard.mean_pause().as_secs_f64();
        assert!((mean - 476.0 / 23.0).abs() < 1e-9, "{mean}");
        let mut random = fastrand::Rng::with_seed(4);
        let mut sum = 0.0;
        for _ in 0..20_000 {
            let pause = standard.pause(Card::StockLevel, Card::Payment, &mut random);
            assert!((3.0..=53.0).contains(&pause.as_secs_f64()), "{pause:?}");
            sum += pause.as_secs_f64();
        }
        assert!((sum / 20_000.0 - 8.0).abs() < 0.2, "{sum}");
        let none = Pace::default();
        assert_eq!(none.mean_pause(), Duration::ZERO);
        let pause = none.pause(Card::NewOrder, Card::NewOrder, &mut random);
        assert_eq!(pause, Duration::ZERO);
    }
}
