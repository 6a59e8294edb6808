//! Names and attributes take all the room that a catalog may have, and daemons die meanwhile.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use place::{Place, bytes, can_mount};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

const ATTRIBUTE: &str = "user.much";
const ATTRIBUTE_BYTES: usize = 60_000;
const FILES_MOST: u64 = 20_000;

#[test]
fn files_are_removed_and_made_again_where_the_catalog_is_full_and_its_daemons_die() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let path = |number: u64| -> PathBuf { place.mount_point().join(format!("file{number}")) };
    // A file and what says much about it; whether there was room for both.
    let make = |number: u64| -> Result<(), Errno> {
        File::create(path(number)).map_err(|error| Errno::from_io_error(&error).unwrap())?;
        let value = bytes(number, ATTRIBUTE_BYTES);
        setxattr(path(number), ATTRIBUTE, &value, XattrFlags::empty())
    };
    let full_at = |from: u64| -> u64 {
        (from..FILES_MOST)
            .find(|number| make(*number).is_err_and(|error| error == Errno::NOSPC))
            .expect("a catalog has an end")
    };
    let is_whole = |number: u64| {
        let mut value = vec![0; ATTRIBUTE_BYTES + 1];
        let length = getxattr(path(number), ATTRIBUTE, &mut value[..]).unwrap();
        value[..length] == bytes(number, ATTRIBUTE_BYTES)
    };
    let full = full_at(0);
    assert!(full > 20, "it took {full}");
    place.kill_daemon();
    assert_eq!(make(full + 1), Err(Errno::NOSPC), "it is as full as before");
    assert!((0..full).all(is_whole));
    // Also in a full catalog, and right after a kill.
    for number in 0..full / 2 {
        std::fs::remove_file(path(number)).unwrap();
        if number % 20 == 0 {
            place.kill_daemon();
        }
    }
    place.tell(["sync", "data"]);
    place.kill_daemon();
    assert!((full / 2..full).all(is_whole));
    // What was removed is given back with the commits behind it, and once the kernel has said that it
    // lets go of files that an earlier daemon told it of: it is asked each second.
    let is_made = |number: u64, patience: Duration| {
        let begun = Instant::now();
        while let Err(error) = make(number) {
            assert_eq!(error, Errno::NOSPC);
            if begun.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        true
    };
    assert!(is_made(full + 2, Duration::from_secs(30)));
    let full_again = (full + 3..FILES_MOST)
        .find(|number| !is_made(*number, Duration::from_secs(10)))
        .expect("a catalog has an end");
    let again = full_again - (full + 3);
    assert!(
        again > full * 2 / 5,
        "{again} of {full}, half of them removed"
    );
    let checked = place.ask(["group", "check", "data"]);
    assert_eq!(checked["contradictions"], serde_json::json!([]));
    place.umount();
}
