//! Who the clients are, and what they have under way.

use std::sync::atomic::Ordering;

use spindle_device::words::fence;

use crate::Leases;
use crate::layout::{
    Blocks, CLIENTS_COUNT, ClientNumber, KIND, KIND_BITS, Mode, OPERATIONS_COUNT, OVERTAKEN,
    Record, TORN, WAITS, WRITE, mode_of,
};

/// A client that was let in: its number, and what the number's word says as long as it is this client's:
/// above the process, how many had the number before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    number: ClientNumber,
    word: u64,
}

impl Client {
    /// Which one.
    #[must_use]
    pub const fn number(self) -> ClientNumber {
        self.number
    }

    /// Its process, as the owner names it. 0 is none.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "its lower half")]
    pub const fn process_id(self) -> u32 {
        self.word as u32
    }
}

/// An operation that was announced and has not ended, or ended torn.
#[derive(Debug)]
pub struct UnderWay<'a> {
    record: Record<'a>,
    client: ClientNumber,
    state: u64,
    blocks: Blocks,
    mode: Mode,
}

impl Leases {
    /// Lets a process in. `None` where there are as many as can be.
    ///
    /// Only the owner calls this, one thread at a time.
    ///
    /// # Panics
    /// For process 0, which nobody has.
    #[must_use]
    pub fn let_in(&self, process_id: u32) -> Option<Client> {
        let is_free = |number: &ClientNumber| self.client(*number).is_none();
        let number = ClientNumber::all_others().find(is_free)?;
        Some(self.give_number(number, process_id))
    }

    /// As [`Self::let_in`], of the owner itself: for what goes through the mount.
    ///
    /// # Panics
    /// As [`Self::let_in`].
    pub fn let_in_owner(&self, process_id: u32) -> Client {
        self.give_number(ClientNumber::OWNER, process_id)
    }

    fn give_number(&self, number: ClientNumber, process_id: u32) -> Client {
        assert_ne!(process_id, 0, "a process");
        // An owner that was killed as it let the former one go has left something.
        self.forget_all_of(number);
        let word = self.client_word(number);
        let before_count = word.load(Ordering::Relaxed) >> 32;
        let value = (before_count + 1) << 32 | u64::from(process_id);
        word.store(value, Ordering::Release);
        Client {
            number,
            word: value,
        }
    }

    /// Who has the number now.
    #[must_use]
    pub fn client(&self, number: ClientNumber) -> Option<Client> {
        let word = self.client_word(number).load(Ordering::Acquire);
        let client = Client { number, word };
        (client.process_id() != 0).then_some(client)
    }

    pub(crate) fn is_client(&self, client: Client) -> bool {
        self.client(client.number) == Some(client)
    }

    /// Those that were let in, but for the owner: for the next owner too.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        (ClientNumber::all_others())
            .filter_map(|number| self.client(number))
            .collect()
    }

    /// What the client has announced and not ended.
    pub(crate) fn under_way_of(&self, client: ClientNumber) -> Vec<UnderWay<'_>> {
        if self.client(client).is_none() {
            return Vec::new();
        }
        (0..OPERATIONS_COUNT)
            .filter_map(|index| self.under_way_at(client, index))
            .collect()
    }

    pub(crate) fn under_way_at(&self, client: ClientNumber, index: usize) -> Option<UnderWay<'_>> {
        let record = self.operation_record(client, index);
        let (state, blocks) = look_until_whole(record)?;
        Some(UnderWay {
            record,
            client,
            state,
            blocks,
            mode: mode_of(state)?,
        })
    }

    /// The owner goes on without each write that a client has announced and not ended.
    pub fn overtake_writes(&self) {
        for client in self.clients() {
            let mut under_way = self.under_way_of(client.number());
            under_way.retain(|found| matches!(found.mode, Mode::Waits | Mode::Write));
            for write in under_way {
                write.overtake();
            }
        }
    }

    /// What a dead client had announced to write, or left torn: its copies are to be compared
    /// before [`Leases::let_go`]. Of the owner itself the next owner asks.
    #[must_use]
    pub fn left_by(&self, client: ClientNumber) -> Vec<UnderWay<'_>> {
        let mut left = self.under_way_of(client);
        left.retain(|operation| operation.mode.may_leave_copies_unequal());
        left
    }

    /// Lets go of all that a dead client had, and of its number. The process is gone for certain, and
    /// what it had asked of the disks is over.
    pub fn let_go(&self, client: ClientNumber) {
        // First, so that one that lives after all announces nothing more.
        let word = self.client_word(client);
        word.store(word.load(Ordering::Relaxed) >> 32 << 32, Ordering::Release);
        fence(Ordering::SeqCst);
        self.forget_all_of(client);
    }

    fn forget_all_of(&self, number: ClientNumber) {
        self.end_operations_of(number);
        self.give_back_all_locks(number);
    }

    fn end_operations_of(&self, number: ClientNumber) {
        for index in 0..OPERATIONS_COUNT {
            let record = self.operation_record(number, index);
            record.end(record.state().load(Ordering::Acquire));
        }
    }

    /// What nobody is the client of any more says nothing and locks nothing.
    pub(crate) fn sweep(&self) {
        let numbers =
            (0..CLIENTS_COUNT).filter_map(|it| ClientNumber::new(u16::try_from(it).ok()?));
        for number in numbers.filter(|number| self.client(*number).is_none()) {
            self.end_operations_of(number);
        }
        self.mend_locks();
    }
}

/// A look that meets a change is repeated: what is announced from now on sees what is revoked, and
/// ends by itself; so a record that changes each time says nothing that counts.
fn look_until_whole(record: Record<'_>) -> Option<(u64, Blocks)> {
    const LOOKS_MOST: u32 = 1000;
    for _ in 0..LOOKS_MOST {
        match record.look() {
            Ok(found) => return found,
            Err(_) => std::hint::spin_loop(),
        }
    }
    // One that says anything: it counts as everything.
    let state = record.state().load(Ordering::Acquire);
    Some((state & !KIND | WRITE, Blocks::ALL))
}

impl UnderWay<'_> {
    /// Whose it is.
    #[must_use]
    pub const fn client(&self) -> ClientNumber {
        self.client
    }

    /// Which blocks.
    #[must_use]
    pub const fn blocks(&self) -> Blocks {
        self.blocks
    }

    /// What it does with them.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it has ended since.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let now = self.record.state().load(Ordering::Acquire);
        now >> KIND_BITS != self.state >> KIND_BITS || mode_of(now).is_none()
    }

    /// The owner writes these blocks without waiting any longer: a write will be torn when it ends,
    /// and one that waits for its locks gives up. False where it has ended already.
    pub fn overtake(&self) -> bool {
        let number = self.state & !KIND;
        // In the order in which it goes from one to the other.
        for kind in [WAITS, WRITE] {
            let _ = self.record.state().compare_exchange(
                number | kind,
                number | OVERTAKEN,
                Ordering::AcqRel,
                Ordering::Acquire,
            );
        }
        !self.has_ended()
    }

    /// The copies of a torn operation's blocks are equal again: its client may use the place anew.
    ///
    /// # Panics
    /// Where it was not torn when it was found: it may have written since.
    pub fn is_compared(&self) {
        assert_eq!(self.mode, Mode::Torn, "what is compared has ended");
        let torn = self.state & !KIND | TORN;
        let _ = self.record.state().compare_exchange(
            torn,
            self.state & !KIND,
            Ordering::Release,
            Ordering::Relaxed,
        );
    }
}
