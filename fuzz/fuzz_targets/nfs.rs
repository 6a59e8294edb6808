//! What an NFS server says. What is done with an input stands in `spindle_nfs::fuzzing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| spindle_nfs::fuzzing::conversation(input));
