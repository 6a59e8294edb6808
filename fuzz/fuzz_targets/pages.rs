//! Pages of databases. What is done with an input stands in `spindle_pages::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_pages::fuzzing::pages(input));
