//! A copy of the memory that a keeper holds, as it is between two points.

use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use spindle_device::SharedMemory;
use spindle_group::{KeptJournal, UnwrittenBlocks};

const WORD_BYTES: u64 = 8;

/// The journal that the next process finds, with the blocks beside it. The one before goes on in
/// its own memory.
pub fn copy(journal: &KeptJournal) -> Result<KeptJournal> {
    let copied = copy_memory(journal.memory())?;
    let copied = KeptJournal::new(copied).map_err(anyhow::Error::msg)?;
    let Some(blocks) = journal.unwritten() else {
        return Ok(copied);
    };
    let blocks = copy_memory(blocks.memory())?;
    let blocks = UnwrittenBlocks::new(blocks).map_err(anyhow::Error::msg)?;
    Ok(copied.with_blocks(blocks))
}

fn copy_memory(memory: &SharedMemory) -> Result<SharedMemory> {
    let length_bytes = memory.words().len() as u64 * WORD_BYTES;
    let copy = SharedMemory::create("copy", length_bytes).context("no memory")?;
    let mut at = 0;
    loop {
        // Most of it was never written.
        let first = match seek(memory.descriptor(), SeekFrom::Data(at)) {
            Ok(first) => first,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error).context("the memory cannot be looked through"),
        };
        at = seek(memory.descriptor(), SeekFrom::Hole(first)).context("no hole")?;
        for word in first / WORD_BYTES..at / WORD_BYTES {
            let word = usize::try_from(word).context("a word's number")?;
            let bits = memory.words()[word].load(Ordering::Acquire);
            copy.words()[word].store(bits, Ordering::Release);
        }
    }
    Ok(copy)
}
