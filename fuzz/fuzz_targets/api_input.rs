//! The input of the API. What is done with it stands in `spindle_control::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_control::fuzzing::api_input(input));
