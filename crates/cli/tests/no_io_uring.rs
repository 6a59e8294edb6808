//! Without io_uring everything works by plain system calls, with a warning.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes, outcome};

#[test]
fn the_plain_engine_serves_with_a_warning() {
    let place = Place::new();
    place.create_group();
    let contents = bytes(6, 3_000_000);
    std::fs::write(place.path("file"), &contents).unwrap();
    for words in [["cp", "file", "data:/file"], ["cp", "data:/file", "out"]] {
        let outcome = outcome(place.command(words).env("SPINDLE_ENGINE", "plain"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.stderr.contains("plain system calls"), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
    assert!(std::fs::read(place.path("out")).unwrap() == contents);
}
