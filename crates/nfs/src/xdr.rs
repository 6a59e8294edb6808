//! External data representation (RFC 4506): big-endian words, and strings padded to four bytes.

/// What no server must send: the bytes are not an answer of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub &'static str);

/// Appends to the bytes of a message.
pub trait Put {
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// Bytes of a length that both sides know.
    fn put_fixed(&mut self, bytes: &[u8]);
    /// The length, and then the bytes.
    fn put_opaque(&mut self, bytes: &[u8]);
    /// A set of bits, as `bitmap4`: the numbers of those that are set, below 64.
    fn put_bitmap(&mut self, bits: &[u32]);
}

impl Put for Vec<u8> {
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_fixed(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
        let padding = bytes.len().wrapping_neg() % 4;
        self.extend_from_slice(&[0; 3][..padding]);
    }

    fn put_opaque(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).expect("no message of ours has 4 GiB");
        self.put_u32(length);
        self.put_fixed(bytes);
    }

    fn put_bitmap(&mut self, bits: &[u32]) {
        let mut words = [0u32; 2];
        for bit in bits {
            words[*bit as usize / 32] |= 1 << (bit % 32);
        }
        self.put_u32(2);
        self.put_u32(words[0]);
        self.put_u32(words[1]);
    }
}

/// Takes a message apart. Nothing is allocated, and no length is believed beyond what is there.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the beginning of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been taken yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Four bytes.
    ///
    /// # Errors
    /// Where the message ends before.
    pub fn u32(&mut self) -> Result<u32, Violation> {
        self.array().map(u32::from_be_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// Where the message ends before.
    pub fn u64(&mut self) -> Result<u64, Violation> {
        self.array().map(u64::from_be_bytes)
    }

    /// A word that is 0 or 1.
    ///
    /// # Errors
    /// Where it is another, or the message ends before.
    pub fn bool(&mut self) -> Result<bool, Violation> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Violation("a truth value that is neither 0 nor 1")),
        }
    }

    /// So many bytes, a multiple of four.
    ///
    /// # Errors
    /// Where the message ends before.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        const { assert!(N.is_multiple_of(4), "XDR knows no smaller piece") };
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Violation("the message ends in the midst of a value"))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// A length of at most `most_bytes`, and so many bytes.
    ///
    /// # Errors
    /// Where the length is greater, or the message ends before.
    pub fn opaque(&mut self, most_bytes: usize) -> Result<&'a [u8], Violation> {
        let length = self.u32()? as usize;
        if length > most_bytes {
            return Err(Violation("a string that is longer than it may be"));
        }
        let (taken, rest) = self
            .rest
            .split_at_checked(length.next_multiple_of(4))
            .ok_or(Violation("the message ends in the midst of a string"))?;
        self.rest = rest;
        Ok(&taken[..length])
    }

    /// A set of bits, as `bitmap4`; those from 64 on must be clear.
    ///
    /// # Errors
    /// Where they are not, or the message ends before.
    pub fn bitmap(&mut self) -> Result<u64, Violation> {
        let words = self.u32()?;
        if words > 8 {
            return Err(Violation("a bitmap of more than 256 bits"));
        }
        let mut bits = 0;
        for at in 0..words {
            match (at, self.u32()?) {
                (0, word) => bits |= u64::from(word),
                (1, word) => bits |= u64::from(word) << 32,
                (_, 0) => {}
                _ => return Err(Violation("an attribute that was not asked for")),
            }
        }
        Ok(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::{Put, Reader, Violation};

    #[test]
    fn what_was_put_is_taken_again() {
        let mut bytes = Vec::new();
        bytes.put_u32(7);
        bytes.put_u64(1 << 40);
        bytes.put_opaque(b"abcde");
        bytes.put_bitmap(&[4, 33]);
        assert_eq!(bytes.len(), 4 + 8 + 4 + 8 + 12);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.opaque(5), Ok(&b"abcde"[..]));
        assert_eq!(reader.bitmap(), Ok(1 << 4 | 1 << 33));
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn a_length_beyond_the_message_or_the_bound_is_refused() {
        let mut reader = Reader::new(&[0, 0, 0, 9, 1, 2, 3, 4]);
        assert!(matches!(reader.opaque(100), Err(Violation(_))));
        let mut reader = Reader::new(&[255, 255, 255, 255, 1, 2, 3, 4]);
        assert!(matches!(reader.opaque(8), Err(Violation(_))));
    }
}
