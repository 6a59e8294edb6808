//! CRC-32C, the one checksum of every structure on disk.

/// CRC-32C (Castagnoli) of `bytes`, hardware-assisted where the processor has it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn matches_the_check_value_of_the_standard() {
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
    }
}
