//! The sums of a part of the catalog region. What is done with an input stands in `spindle_format::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_format::fuzzing::checksum_block(input));
