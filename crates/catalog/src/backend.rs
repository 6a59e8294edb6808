//! `redb`'s storage over a [`Region`]: writes gather in memory and leave in one durable call.
//!
//! Invariant: a read sees every earlier write, sent or not. Blocks stay in the buffer until the
//! region has them durably. A crash loses the buffer, which `redb` was not yet told is durable.
//!
//! The region never shrinks, and its size is the length that `redb` finds at the next opening;
//! `redb` lays out any length of whole pages, so a region larger than it asked for is only room.

use spindle_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use redb::StorageBackend;
use spindle_sync::{Mutex, RwLock};

use crate::{CatalogError, Region};

const BLOCK_BYTES: u64 = 4096;
const BLOCK_LENGTH: usize = 4096;

type Block = Arc<[u8; BLOCK_LENGTH]>;

/// The buffer between the library and the region; shared with the store, which detaches it.
#[derive(Debug)]
pub(crate) struct Buffer {
    region: Arc<dyn Region>,
    blocks: RwLock<BTreeMap<u64, Block>>,
    length_bytes: AtomicU64,
    /// Blocks that went to the region.
    written_blocks: AtomicU64,
    detached: AtomicBool,
    /// The first failure that the library was told of. It does nothing after one, and tells
    /// nobody of those that it meets while it is dropped.
    failed: Mutex<Option<CatalogError>>,
}

impl Buffer {
    /// Over a region that holds a database.
    pub(crate) fn open(region: Arc<dyn Region>) -> Arc<Self> {
        let length_bytes = region.size_bytes() / BLOCK_BYTES * BLOCK_BYTES;
        Arc::new(Self {
            region,
            blocks: RwLock::default(),
            length_bytes: AtomicU64::new(length_bytes),
            written_blocks: AtomicU64::new(0),
            detached: AtomicBool::new(false),
            failed: Mutex::new(None),
        })
    }

    /// Over a region whose contents do not matter: the library sees an empty file. Its first
    /// block is zeroed so that an interrupted creation is not taken for the former database.
    pub(crate) fn create(region: Arc<dyn Region>) -> Result<Arc<Self>, CatalogError> {
        if region.size_bytes() < BLOCK_BYTES {
            region.grow(BLOCK_BYTES)?;
        }
        region.write_durably(&[(0, &[0; BLOCK_LENGTH])])?;
        let buffer = Self::open(region);
        buffer.length_bytes.store(0, Ordering::Release);
        Ok(buffer)
    }

    /// Refuses everything from now on. The library writes when it is dropped; a catalog that was
    /// not closed must leave the region as a crash would, and one that failed must not touch
    /// what its successor writes.
    pub(crate) fn detach(&self) {
        self.detached.store(true, Ordering::Release);
    }

    /// The first failure since it was opened.
    pub(crate) fn failure(&self) -> Option<CatalogError> {
        self.failed.lock().clone()
    }

    /// Remembers a failure before the library has it.
    fn told<T>(&self, answer: Result<T, CatalogError>) -> io::Result<T> {
        if let Err(error) = &answer {
            self.failed.lock().get_or_insert_with(|| error.clone());
        }
        Ok(answer?)
    }

    /// What the library takes for the size of the region.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes.load(Ordering::Acquire)
    }

    /// Takes how many blocks were written since the last call.
    pub(crate) fn take_written_blocks(&self) -> u64 {
        self.written_blocks.swap(0, Ordering::Relaxed)
    }

    fn check_attached(&self) -> Result<(), CatalogError> {
        if self.detached.load(Ordering::Acquire) {
            return Err(CatalogError::Region {
                operation: "used",
                detail: "this catalog is closed".to_owned(),
            });
        }
        Ok(())
    }

    fn read(&self, offset_bytes: u64, out: &mut [u8]) -> Result<(), CatalogError> {
        self.check_attached()?;
        let end_bytes = offset_bytes + out.len() as u64;
        if end_bytes > self.length_bytes.load(Ordering::Acquire) {
            return Err(CatalogError::Damaged(format!(
                "a read of {} bytes at {offset_bytes} goes beyond the region's end",
                out.len()
            )));
        }
        let first = offset_bytes / BLOCK_BYTES * BLOCK_BYTES;
        let buffered: Vec<(u64, Block)> = {
            let blocks = self.blocks.read();
            if blocks.is_empty() {
                Vec::new()
            } else {
                blocks
                    .range(first..end_bytes)
                    .map(|(offset, block)| (*offset, Arc::clone(block)))
                    .collect()
            }
        };
        let blocks_count = end_bytes.div_ceil(BLOCK_BYTES) - first / BLOCK_BYTES;
        // A run that lies in the buffer alone must not be read from the region: it may never
        // have been written there.
        if (buffered.len() as u64) < blocks_count {
            if offset_bytes == first && end_bytes.is_multiple_of(BLOCK_BYTES) {
                self.region.read(offset_bytes, out)?;
            } else {
                let mut whole = vec![0; index(blocks_count * BLOCK_BYTES)];
                self.region.read(first, &mut whole)?;
                let skip = index(offset_bytes - first);
                out.copy_from_slice(&whole[skip..skip + out.len()]);
            }
        }
        for (block_offset, block) in buffered {
            let from = block_offset.max(offset_bytes);
            let to = (block_offset + BLOCK_BYTES).min(end_bytes);
            out[index(from - offset_bytes)..index(to - offset_bytes)]
                .copy_from_slice(&block[index(from - block_offset)..index(to - block_offset)]);
        }
        Ok(())
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<(), CatalogError> {
        self.check_attached()?;
        let end_bytes = offset_bytes + data.len() as u64;
        assert!(
            end_bytes <= self.length_bytes.load(Ordering::Acquire),
            "redb writes beyond the length it set"
        );
        let mut block_offset = offset_bytes / BLOCK_BYTES * BLOCK_BYTES;
        while block_offset < end_bytes {
            let from = block_offset.max(offset_bytes);
            let to = (block_offset + BLOCK_BYTES).min(end_bytes);
            let part = &data[index(from - offset_bytes)..index(to - offset_bytes)];
            if let Ok(whole) = <[u8; BLOCK_LENGTH]>::try_from(part) {
                self.blocks.write().insert(block_offset, Arc::new(whole));
            } else {
                // Only the header, 320 bytes of block 0, is ever written in part.
                let mut block = [0; BLOCK_LENGTH];
                self.read(block_offset, &mut block)?;
                block[index(from - block_offset)..index(to - block_offset)].copy_from_slice(part);
                self.blocks.write().insert(block_offset, Arc::new(block));
            }
            block_offset += BLOCK_BYTES;
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), CatalogError> {
        self.check_attached()?;
        let sent: Vec<(u64, Block)> = self
            .blocks
            .read()
            .iter()
            .map(|(offset, block)| (*offset, Arc::clone(block)))
            .collect();
        if sent.is_empty() {
            return Ok(());
        }
        let views: Vec<(u64, &[u8])> = sent
            .iter()
            .map(|(offset, block)| (*offset, block.as_slice()))
            .collect();
        self.written_blocks
            .fetch_add(views.len() as u64, Ordering::Relaxed);
        self.region.write_durably(&views)?;
        let mut blocks = self.blocks.write();
        for (offset, block) in &sent {
            // A reader may have pushed a page out of the library's cache meanwhile: that newer
            // block was not sent and stays.
            if blocks
                .get(offset)
                .is_some_and(|newest| Arc::ptr_eq(newest, block))
            {
                blocks.remove(offset);
            }
        }
        Ok(())
    }

    fn set_length(&self, length_bytes: u64) -> Result<(), CatalogError> {
        self.check_attached()?;
        if length_bytes > self.region.size_bytes() {
            self.region.grow(length_bytes)?;
        }
        self.length_bytes.store(length_bytes, Ordering::Release);
        self.blocks.write().split_off(&length_bytes);
        Ok(())
    }
}

/// An offset within a request that already has its memory.
fn index(offset_bytes: u64) -> usize {
    usize::try_from(offset_bytes).expect("requests are far smaller than the address space")
}

/// What the library owns of a [`Buffer`].
#[derive(Debug)]
pub(crate) struct Backend(pub(crate) Arc<Buffer>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.length_bytes.load(Ordering::Acquire))
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.told(self.0.read(offset, out))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.told(self.0.set_length(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.told(self.0.sync())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.told(self.0.write(offset, data))
    }
}
