//! The fuzzer's targets over random bytes and over damaged golden images, a short while.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::golden;
use crate::fuzzing::TARGETS;

/// How an image is damaged.
#[derive(Debug, Clone)]
enum Damage {
    Flip(usize, u8),
    Set(usize, Vec<u8>),
    Cut(usize),
    Extend(Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<usize>(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..9))
            .prop_map(|(at, bytes)| Damage::Set(at, bytes)),
        any::<usize>().prop_map(Damage::Cut),
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Damage::Extend),
    ]
}

fn apply(bytes: &mut Vec<u8>, damages: &[Damage]) {
    for damage in damages {
        match damage {
            Damage::Extend(more) => bytes.extend(more),
            _ if bytes.is_empty() => {}
            Damage::Flip(at, bit) => {
                let at = at % bytes.len();
                bytes[at] ^= 1 << bit;
            }
            Damage::Set(at, new) => {
                let at = at % bytes.len();
                for (byte, new) in bytes[at..].iter_mut().zip(new) {
                    *byte = *new;
                }
            }
            Damage::Cut(at) => bytes.truncate(at % bytes.len()),
        }
    }
}

#[test]
fn no_decoder_panics_on_random_bytes() {
    let mut runner = TestRunner::new(Config::with_cases(400));
    let input = prop::collection::vec(any::<u8>(), 0..2000);
    let tried = runner.run(&input, |input| {
        for (_, target) in TARGETS {
            target(&input);
        }
        Ok(())
    });
    tried.unwrap();
}

#[test]
fn no_decoder_panics_on_a_damaged_image() {
    let mut runner = TestRunner::new(Config::with_cases(3000));
    let images: Vec<Vec<u8>> = golden::images()
        .into_iter()
        .map(|image| image.bytes)
        .collect();
    let input = (
        prop::sample::select(images),
        any::<u8>(),
        prop::collection::vec(damage(), 0..4),
    );
    let tried = runner.run(&input, |(mut image, kind, damages)| {
        apply(&mut image, &damages);
        for (_, target) in TARGETS {
            target(&image);
        }
        // As a row of the catalog: the first byte says of which table.
        image.insert(0, kind);
        TARGETS
            .iter()
            .find(|(name, _)| *name == "records")
            .unwrap()
            .1(&image);
        Ok(())
    });
    tried.unwrap();
}
