//! A terminal with its user: deals itself a card, draws what it says, and sees the transaction
//! through.
//!
//! A transaction that failed only because another was in its way (a deadlock) is tried again as it
//! was, and its latency counts from its first start. Any other failure ends the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::customer;
use super::deck::{Card, Deck, Pace};
use super::delivery::{self, Delivery};
use super::dialogue::{Dialogue, is_conflict};
use super::new_order::{self, NewOrder, Ordered};
use super::order_status::{self, OrderStatus};
use super::payment::{self, Payment};
use super::random::Preferences;
use super::schema::Scale;
use super::stock_level::{self, StockLevel};
use crate::measure::load::Client;

/// Where a terminal stands, and what is preferred there.
#[derive(Debug, Clone, Copy)]
pub struct Desk {
    /// How large everything is.
    pub scale: Scale,
    /// Its warehouse.
    pub home: i32,
    /// The district whose stock it watches.
    pub district: i32,
    /// What its users prefer.
    pub preferences: Preferences,
}

impl Desk {
    /// Any warehouse but this one's, where there is another.
    pub fn other_warehouse(&self, random: &mut fastrand::Rng) -> i32 {
        if self.scale.warehouses == 1 {
            return self.home;
        }
        let drawn = random.i32(1..self.scale.warehouses);
        if drawn < self.home { drawn } else { drawn + 1 }
    }
}

/// What was acknowledged, by all terminals together.
#[derive(Debug, Default)]
pub struct Tally {
    /// Orders taken.
    pub new_orders: AtomicU64,
    /// Orders rolled back for an item that does not exist.
    pub rolled_back: AtomicU64,
    /// Payments.
    pub payments: AtomicU64,
    /// Questions about an order.
    pub order_statuses: AtomicU64,
    /// Deliveries.
    pub deliveries: AtomicU64,
    /// Orders that these delivered.
    pub delivered: AtomicU64,
    /// Questions about the stock.
    pub stock_levels: AtomicU64,
    /// Transactions tried again.
    pub retries: AtomicU64,
}

/// What is drawn for a card.
enum Wish {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

/// A terminal.
pub struct Terminal {
    dialogue: Dialogue,
    desk: Desk,
    pace: Pace,
    by_procedures: bool,
    deck: Deck,
    last: Card,
    next: Option<Card>,
    tally: Arc<Tally>,
}

/// More often than this nobody is unlucky.
const TRIES_AT_MOST: u32 = 100;

impl Terminal {
    /// At a desk, over a connection, with every statement ready.
    ///
    /// # Errors
    /// What the database says.
    pub fn new(
        mut dialogue: Dialogue,
        desk: Desk,
        pace: Pace,
        by_procedures: bool,
        tally: Arc<Tally>,
    ) -> Result<Self> {
        for statement in statements(by_procedures) {
            dialogue.prepare(statement)?;
        }
        Ok(Self {
            dialogue,
            desk,
            pace,
            by_procedures,
            deck: Deck::default(),
            // The first user comes in the middle of a thought.
            last: Card::Payment,
            next: None,
            tally,
        })
    }

    fn draw(&self, card: Card, random: &mut fastrand::Rng) -> Wish {
        match card {
            Card::NewOrder => Wish::NewOrder(NewOrder::draw(&self.desk, random)),
            Card::Payment => Wish::Payment(Payment::draw(&self.desk, random)),
            Card::OrderStatus => Wish::OrderStatus(OrderStatus::draw(&self.desk, random)),
            Card::Delivery => Wish::Delivery(Delivery::draw(&self.desk, random)),
            Card::StockLevel => Wish::StockLevel(StockLevel::draw(&self.desk, random)),
        }
    }

    /// Once; what it did is counted when it is acknowledged.
    fn perform(&mut self, wish: &Wish) -> Result<()> {
        let dialogue = &mut self.dialogue;
        let count = |counter: &AtomicU64, by| {
            counter.fetch_add(by, Ordering::Relaxed);
        };
        let tally = &self.tally;
        let by_procedures = self.by_procedures;
        match wish {
            Wish::NewOrder(wish) => {
                let ordered = if by_procedures {
                    wish.call(dialogue)?
                } else {
                    wish.perform(dialogue)?
                };
                match ordered {
                    Ordered::Taken(_) => count(&tally.new_orders, 1),
                    Ordered::RolledBack => count(&tally.rolled_back, 1),
                }
            }
            Wish::Payment(wish) => {
                if by_procedures {
                    wish.call(dialogue)?;
                } else {
                    wish.perform(dialogue)?;
                }
                count(&tally.payments, 1);
            }
            Wish::OrderStatus(wish) => {
                if by_procedures {
                    wish.call(dialogue)?;
                } else {
                    wish.perform(dialogue)?;
                }
                count(&tally.order_statuses, 1);
            }
            Wish::Delivery(wish) => {
                let delivered = if by_procedures {
                    wish.call(dialogue)?
                } else {
                    wish.perform(dialogue)?
                };
                count(&tally.deliveries, 1);
                count(&tally.delivered, delivered);
            }
            Wish::StockLevel(wish) => {
                if by_procedures {
                    wish.call(dialogue)?;
                } else {
                    wish.perform(dialogue)?;
                }
                count(&tally.stock_levels, 1);
            }
        }
        Ok(())
    }
}

impl Client for Terminal {
    fn pause(&mut self, random: &mut fastrand::Rng) -> Option<Duration> {
        let next = self.deck.deal(random);
        self.next = Some(next);
        Some(self.pace.pause(self.last, next, random))
    }

    fn operate(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let card = match self.next.take() {
            Some(card) => card,
            None => self.deck.deal(random),
        };
        self.last = card;
        let wish = self.draw(card, random);
        let mut tries = 1;
        loop {
            match self.perform(&wish) {
                Ok(()) => return Ok(()),
                Err(error) if tries < TRIES_AT_MOST && is_conflict(&error) => {
                    self.dialogue.rollback()?;
                    self.tally.retries.fetch_add(1, Ordering::Relaxed);
                    tries += 1;
                }
                Err(error) => return Err(error).with_context(|| format!("{card:?}")),
            }
        }
    }
}

/// All that a terminal uses.
fn statements(by_procedures: bool) -> Vec<&'static str> {
    if by_procedures {
        return [
            new_order::PROCEDURES,
            payment::PROCEDURES,
            order_status::PROCEDURES,
            delivery::PROCEDURES,
            stock_level::PROCEDURES,
        ]
        .concat();
    }
    let mut all = new_order::statements();
    all.extend(customer::STATEMENTS);
    all.extend(payment::STATEMENTS);
    all.extend(order_status::STATEMENTS);
    all.extend(delivery::STATEMENTS);
    all.extend(stock_level::STATEMENTS);
    all
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The first desk of a company of the standard's size.
    pub fn desk(warehouses: i32) -> Desk {
        Desk {
            scale: Scale::of(warehouses),
            home: 1,
            district: 1,
            preferences: Preferences::of_fill(&mut fastrand::Rng::with_seed(1)),
        }
    }

    #[test]
    fn another_warehouse_is_any_but_ones_own_where_there_is_one() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut desk = desk(5);
        desk.home = 3;
        let mut seen = [0; 6];
        for _ in 0..1000 {
            seen[usize::try_from(desk.other_warehouse(&mut random)).unwrap()] += 1;
        }
        assert_eq!((seen[0], seen[3]), (0, 0));
        assert!(seen.iter().filter(|count| **count > 200).count() == 4);
        desk.scale.warehouses = 1;
        assert_eq!(desk.other_warehouse(&mut random), 3);
    }
}
