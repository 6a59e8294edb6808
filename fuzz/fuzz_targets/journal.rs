//! A record of the catalog's journal. What is done with an input stands in
//! `spindle_format::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_format::fuzzing::journal(input));
