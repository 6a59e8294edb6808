//! What a client of a volume says. What is done with an input stands in `spindle_nbd::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_nbd::fuzzing::conversation(input));
