//! What `spindle cp` must never do for whoever may write where root copies: run programs as
//! root, write elsewhere, wait for ever, or change what it copies.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use place::{Place, outcome};

/// A user that owns nothing else here.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: files of another user need root");
    }
    root
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Owner and permissions.
fn standing(path: &Path) -> (u32, u32) {
    let metadata = std::fs::metadata(path).unwrap();
    (metadata.uid(), metadata.mode() & 0o7777)
}

#[test]
fn a_copy_that_has_another_owner_than_its_source_never_runs_as_its_owner() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.create_group();
    std::fs::create_dir(place.path("source")).unwrap();
    let program = place.path("source/program");
    std::fs::write(&program, b"#!/bin/sh\n").unwrap();
    std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    set_mode(&program, 0o6755);
    set_mode(&place.path("source"), 0o2777);

    // Into the group, out of it, and both for a directory with it in it.
    place.tell(["cp", "-r", "source", "data:/plain"]);
    place.tell(["cp", "-a", "source", "data:/kept"]);
    let stat = |path: &str| {
        let stat = place.ask(["stat", path]);
        (stat["user"].clone(), stat["permissions"].as_u64().unwrap())
    };
    assert_eq!(stat("data:/plain/program"), (0.into(), 0o755));
    assert_eq!(stat("data:/plain").1, 0o755, "the umask of the test is 022");
    assert_eq!(stat("data:/kept/program"), (NOBODY.into(), 0o6755));
    place.tell(["cp", "data:/kept/program", "out"]);
    assert_eq!(standing(&place.path("out")), (0, 0o755));
    place.tell(["cp", "-r", "data:/kept", "tree"]);
    assert_eq!(standing(&place.path("tree/program")), (0, 0o755));
    place.tell(["cp", "-a", "data:/kept", "same"]);
    assert_eq!(standing(&place.path("same/program")), (NOBODY, 0o6755));
    assert_eq!(standing(&place.path("same")), (0, 0o2777));
}

#[test]
fn who_cannot_give_a_file_to_its_owner_gets_it_without_the_bits_to_run_as_another() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("program"), b"#!/bin/sh\n").unwrap();
    set_mode(&place.path("program"), 0o4755);
    place.tell(["cp", "-p", "program", "data:/program"]);
    // Everything becomes the other user's, who then copies what is root's in the group.
    let program = place.path("spindle");
    std::fs::copy(env!("CARGO_BIN_EXE_spindle"), &program).unwrap();
    set_mode(&program, 0o755);
    set_mode(&place.path("disks"), 0o755);
    for entry in ["", "disks", "disks/a", "disks/b", "disks/c", "disks/d"] {
        std::os::unix::fs::chown(place.path(entry), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    std::fs::create_dir(place.path("other")).unwrap();
    std::os::unix::fs::chown(place.path("other"), Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = std::process::Command::new(&program);
    command
        .current_dir(place.path("other"))
        .env("SPINDLE_DISKS", place.disk("*"))
        .env("SPINDLE_RUNTIME_DIR", place.path("other/run"))
        .uid(NOBODY)
        .gid(NOBODY)
        .args(["cp", "-p", "data:/program", "mine"]);
    let copied = outcome(&mut command);
    assert_eq!(copied.code, 0, "{copied:?}");
    assert_eq!(standing(&place.path("other/mine")), (NOBODY, 0o755));
}

#[test]
fn a_link_in_a_destination_leads_no_copy_elsewhere() {
    let place = Place::new();
    place.create_group();
    std::fs::create_dir_all(place.path("source/top/directory")).unwrap();
    std::fs::write(place.path("source/top/directory/file"), b"new").unwrap();
    std::fs::write(place.path("source/top/file"), b"new").unwrap();
    place.tell(["cp", "-r", "source/top", "data:/"]);

    std::fs::create_dir(place.path("victim")).unwrap();
    std::fs::write(place.path("precious"), b"precious").unwrap();
    std::fs::create_dir_all(place.path("out/top")).unwrap();
    symlink("../../victim", place.path("out/top/directory")).unwrap();
    let wanted = ["out/top/directory", "link"];
    place.refuse(["cp", "-r", "data:/top", "out"], 2, &wanted);
    place.refuse(["cp", "-r", "data:/top/directory", "out/top"], 2, &wanted);
    let victims = std::fs::read_dir(place.path("victim")).unwrap().count();
    assert_eq!(victims, 0, "nothing went through the link");

    // In a file's place it is replaced; its target stays.
    std::fs::remove_file(place.path("out/top/directory")).unwrap();
    let _ = std::fs::remove_file(place.path("out/top/file"));
    symlink("../../precious", place.path("out/top/file")).unwrap();
    place.tell(["cp", "-r", "data:/top", "out"]);
    assert_eq!(
        std::fs::read(place.path("precious")).unwrap(),
        b"precious",
        "the target stays"
    );
    assert_eq!(std::fs::read(place.path("out/top/file")).unwrap(), b"new");
    assert!(!place.path("out/top/file").is_symlink());

    // What a person names is followed, as with cp(1).
    symlink("victim", place.path("named")).unwrap();
    place.tell(["cp", "data:/top/file", "named"]);
    assert_eq!(std::fs::read(place.path("victim/file")).unwrap(), b"new");
}

#[test]
fn a_pipe_where_a_file_is_expected_is_left_out_or_replaced_and_never_waited_for() {
    let place = Place::new();
    place.create_group();
    std::fs::create_dir(place.path("source")).unwrap();
    std::fs::write(place.path("source/file"), b"bytes").unwrap();
    let make = |path: &str| {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, place.path(path), mode).unwrap();
    };
    make("source/pipe");
    let copied = place.run(["cp", "-r", "source", "data:/s"]);
    assert_eq!(copied.code, 0, "{copied:?}");
    assert!(
        copied.stderr.contains("source/pipe is a fifo"),
        "{copied:?}"
    );
    place.refuse(["cp", "source/pipe", "data:/pipe"], 2, &["fifo"]);
    std::fs::create_dir(place.path("out")).unwrap();
    make("out/file");
    place.tell(["cp", "data:/s/file", "out"]);
    assert_eq!(std::fs::read(place.path("out/file")).unwrap(), b"bytes");
}

#[test]
fn a_links_target_is_the_same_byte_for_byte_in_the_group_and_outside() {
    let place = Place::new();
    place.create_group();
    std::fs::create_dir(place.path("source")).unwrap();
    let target = OsStr::from_bytes(b"tar\xffget \xf0\x28");
    symlink(target, place.path("source/link")).unwrap();
    for served in [false, true] {
        if served {
            place.tell(["group", "mount", "data"]);
        }
        let inside = format!("data:/{served}");
        place.tell(["cp", "-r", "source", &inside]);
        let out = format!("out-{served}");
        place.tell(["cp", "-r", &inside, &out]);
        let read = std::fs::read_link(place.path(&out).join("link")).unwrap();
        assert_eq!(read, target, "served: {served}");
    }
}

#[test]
fn what_standard_output_leads_to_is_written_on_and_the_link_to_it_stays() {
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("file"), b"from the group\n").unwrap();
    place.tell(["cp", "file", "data:/file"]);
    // As /dev/stdout, in a place where nothing is lost.
    symlink("/proc/self/fd/1", place.path("stdout")).unwrap();
    std::fs::write(place.path("log"), b"before\n").unwrap();
    let mut appending = std::fs::OpenOptions::new();
    let log = appending.append(true).open(place.path("log")).unwrap();
    let mut command = place.command(["cp", "data:/file", "stdout"]);
    let status = command.stdout(log).status().unwrap();
    assert!(status.success());
    let link = std::fs::read_link(place.path("stdout")).unwrap();
    assert_eq!(link, Path::new("/proc/self/fd/1"));
    let written = std::fs::read_to_string(place.path("log")).unwrap();
    assert!(written.starts_with("before\nfrom the group\n"), "{written}");
}

#[test]
fn an_upload_that_the_end_of_the_process_cuts_off_leaves_no_file() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let mut upload = std::os::unix::net::UnixStream::connect(place.path("run/data.sock")).unwrap();
    let request = "PUT /files/content?path=/cut&permissions=420&user=0&group=0 HTTP/1.1\r\n\
                   host: spindle\r\ntransfer-encoding: chunked\r\n\r\n6\r\na part\r\n";
    upload.write_all(request.as_bytes()).unwrap();
    // It has begun.
    std::thread::sleep(std::time::Duration::from_millis(500));
    place.tell(["group", "dismount", "data"]);
    place.refuse(["stat", "data:/cut"], 2, &["/cut"]);
    drop(upload);
}

/// In the order of the calls: the bytes of each file before its name, and the names at the end.
#[test]
fn what_was_copied_out_of_a_group_is_durable_before_it_has_its_name() {
    if place::outcome(std::process::Command::new("strace").arg("-V")).code != 0 {
        println!("skipped: strace is not installed");
        return;
    }
    let place = Place::new();
    place.create_group();
    std::fs::write(place.path("source"), b"contents").unwrap();
    place.tell(["cp", &place.text("source"), "data:/file"]);
    let trace = place.text("trace");
    let copy = place.command(["cp", "data:/file", &place.text("copy")]);
    let mut traced = std::process::Command::new("strace");
    traced.args([
        "-f",
        "-y",
        "-o",
        &trace,
        "-e",
        "trace=fsync,renameat,renameat2",
    ]);
    traced.arg(copy.get_program()).args(copy.get_args());
    for (name, value) in copy.get_envs() {
        traced.env(name, value.unwrap_or_default());
    }
    let copied = place::outcome(&mut traced);
    assert_eq!(copied.code, 0, "{copied:?}");
    assert_eq!(std::fs::read(place.path("copy")).unwrap(), b"contents");
    let calls = std::fs::read_to_string(&trace).unwrap();
    let of_it: Vec<&str> = calls
        .lines()
        .filter(|line| line.contains("fsync(") || line.contains("\"copy\""))
        .collect();
    let [bytes, name, directory] = of_it[..] else {
        panic!("{calls}");
    };
    assert!(
        bytes.contains("fsync(") && bytes.contains(".copy.spindle-"),
        "{calls}"
    );
    assert!(name.contains("renameat"), "{calls}");
    assert!(directory.contains("fsync("), "{calls}");
}
