//! The check of a sound group, open and closed, with and without repair.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use place::{Place, bytes};
use serde_json::json;

#[test]
fn a_sound_group_is_found_sound_open_and_closed_and_repair_leaves_it_as_it_is() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["group", "mount", "data"]);
    place.tell(["cp", "file", "data:/file"]);
    for is_open in [true, false] {
        for words in [
            &["check", "data"][..],
            &["check", "data", "--repair"],
            &["group", "check", "data"],
        ] {
            let report = place.ask(words);
            assert_eq!(report["contradictions"], json!([]), "open: {is_open}");
            assert_eq!(report["repaired"], json!([]));
        }
        assert!(place.tell(["check", "data"]).contains("agree"));
        if is_open {
            place.tell(["group", "dismount", "data"]);
        }
    }
    place.tell(["cp", "data:/file", "out"]);
    assert!(std::fs::read(place.path("out")).unwrap() == bytes(1, 3 << 20));
    place.refuse(["check", "nosuch", "--repair"], 2, &["nosuch"]);
}
