//! What callers hand over to be read into or written from: plain memory, which requests reach by
//! a copy, or a part of a buffer, which they reach as it is.

use std::ops::Range;

use crate::buffer::{AlignedBuffer, ReadPart, WritePart};
use crate::request::Work;

/// Where a read goes.
#[derive(Debug)]
pub enum ReadTarget<'a> {
    /// Plain memory.
    Slice(&'a mut [u8]),
    /// A part of a buffer.
    Buffer(&'a mut AlignedBuffer, Range<usize>),
}

impl ReadTarget<'_> {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Slice(memory) => memory.len(),
            Self::Buffer(_, range) => range.len(),
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Slice(memory) => memory,
            Self::Buffer(buffer, range) => &mut buffer[range.clone()],
        }
    }

    /// What requests fill; to be cut into their parts.
    pub fn lend(&mut self) -> Lent<'_> {
        match self {
            Self::Slice(memory) => Lent::Slice(memory),
            Self::Buffer(buffer, range) => Lent::Part(buffer.lend(range.clone())),
        }
    }

    /// The first bytes of it.
    ///
    /// # Panics
    /// Where it has fewer.
    #[must_use]
    pub fn first(&mut self, length_bytes: usize) -> ReadTarget<'_> {
        assert!(length_bytes <= self.len(), "as much as there is");
        match self {
            Self::Slice(memory) => ReadTarget::Slice(&mut memory[..length_bytes]),
            Self::Buffer(buffer, range) => {
                ReadTarget::Buffer(buffer, range.start..range.start + length_bytes)
            }
        }
    }
}

impl<'a> From<&'a mut [u8]> for ReadTarget<'a> {
    fn from(memory: &'a mut [u8]) -> Self {
        Self::Slice(memory)
    }
}

impl<'a> From<&'a mut AlignedBuffer> for ReadTarget<'a> {
    fn from(buffer: &'a mut AlignedBuffer) -> Self {
        let length_bytes = buffer.len();
        Self::Buffer(buffer, 0..length_bytes)
    }
}

/// Memory of a [`ReadTarget`] on its way into requests.
#[derive(Debug)]
pub enum Lent<'a> {
    /// Plain memory.
    Slice(&'a mut [u8]),
    /// A part of a buffer.
    Part(ReadPart<'a>),
}

impl<'a> Lent<'a> {
    /// Takes the first `length_bytes` off.
    ///
    /// # Panics
    /// Where there are fewer.
    pub fn split_front(&mut self, length_bytes: usize) -> Lent<'a> {
        match self {
            Self::Slice(memory) => {
                let (front, rest) = std::mem::take(memory).split_at_mut(length_bytes);
                *memory = rest;
                Lent::Slice(front)
            }
            Self::Part(part) => Lent::Part(part.split_front(length_bytes)),
        }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Slice(memory) => memory,
            Self::Part(part) => part.bytes(),
        }
    }

    /// The read that fills it.
    #[must_use]
    pub fn into_work(self) -> Work<'a> {
        match self {
            Self::Slice(memory) => Work::Read(memory),
            Self::Part(part) => Work::ReadPart(part),
        }
    }
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
pub enum WriteSource<'a> {
    /// Plain memory.
    Slice(&'a [u8]),
    /// A part of a buffer.
    Part(WritePart<'a>),
}

impl<'a> WriteSource<'a> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Slice(memory) => memory,
            Self::Part(part) => part.bytes(),
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// A part of it.
    ///
    /// # Panics
    /// Where the range is not within it.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> WriteSource<'a> {
        match self {
            Self::Slice(memory) => WriteSource::Slice(&memory[range]),
            Self::Part(part) => WriteSource::Part(part.slice(range)),
        }
    }

    /// The write that sends it.
    #[must_use]
    pub const fn into_work(self) -> Work<'a> {
        match self {
            Self::Slice(memory) => Work::Write(memory),
            Self::Part(part) => Work::WritePart(part),
        }
    }
}

impl<'a> From<&'a [u8]> for WriteSource<'a> {
    fn from(memory: &'a [u8]) -> Self {
        Self::Slice(memory)
    }
}

impl<'a> From<&'a AlignedBuffer> for WriteSource<'a> {
    fn from(buffer: &'a AlignedBuffer) -> Self {
        Self::Part(buffer.share(0..buffer.len()))
    }
}
