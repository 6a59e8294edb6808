//! The disk label. What is done with an input stands in `spindle_format::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_format::fuzzing::label(input));
