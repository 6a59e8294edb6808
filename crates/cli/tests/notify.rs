//! The hooks for mail and webhook that are shipped, run by a real group and by themselves.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use place::{Place, bytes};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

fn shipped(hook: &str) -> PathBuf {
    let hooks = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/hooks");
    hooks.join(hook).canonicalize().unwrap()
}

fn has_curl() -> bool {
    let is_there = Command::new("curl").arg("--version").output().is_ok();
    if !is_there {
        println!("skipped: curl is not installed");
    }
    is_there
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A receiver that answers each request with this status; its address, and the bodies it got.
fn receiver(status: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length_bytes = 0;
            let mut line = String::new();
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(length) = line.to_lowercase().strip_prefix("content-length:") {
                    length_bytes = length.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length_bytes];
            stream.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send(String::from_utf8(body).unwrap()).is_err() {
                return;
            }
        }
    });
    (address, bodies)
}

/// A `sendmail` that keeps what it is given in the file `mail`; the path to find it by.
fn sendmail(place: &Place) -> String {
    std::fs::create_dir(place.path("bin")).unwrap();
    script(
        &place.path("bin/sendmail"),
        &format!("#!/bin/sh\ncat >> {}\n", place.text("mail")),
    );
    format!("{}:{}", place.text("bin"), std::env::var("PATH").unwrap())
}

/// Runs a hook as the daemon does, for an event about a disk of this name.
fn run(hook: &str, disk: &str, variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(shipped(hook))
        .env_remove("SPINDLE_WEBHOOK_URL")
        .env("SPINDLE_EVENT_GROUP", "data")
        .env("SPINDLE_EVENT_KIND", "disk_offline")
        .env("SPINDLE_EVENT_SEVERITY", "critical")
        .env("SPINDLE_EVENT_TIME_S", "86400")
        .env("SPINDLE_EVENT_HOST", "here")
        .env("SPINDLE_EVENT_DISK", disk)
        .env("SPINDLE_EVENT_TEXT", "it went")
        .env("SPINDLE_EVENTS_LEFT_OUT", "3")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A hook that refuses reads nothing.
    let _ = child.stdin.take().unwrap().write_all(b"{}\n");
    child.wait_with_output().unwrap()
}

#[test]
fn a_disk_that_goes_is_mailed_and_posted() {
    if !has_curl() {
        return;
    }
    let place = Place::new();
    let (address, bodies) = receiver("204 No Content");
    let path = sendmail(&place);
    let hook = place.path("hook");
    script(
        &hook,
        &format!(
            "#!/bin/sh\nset -e\nexport PATH='{path}' SPINDLE_MAIL_TO=dba@example.org \
             SPINDLE_WEBHOOK_URL={address}\n'{}'\n'{}'\n",
            shipped("webhook").display(),
            shipped("mail").display()
        ),
    );
    let settings = format!(
        "[hooks]\nevent = \"{}\"\nkinds = [\"disk_offline\"]\n",
        hook.display()
    );
    std::fs::write(place.path("spindle.toml"), settings).unwrap();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    place.tell(["fault", "pull", "data", "data_0001"]);
    std::fs::write(place.path("file"), bytes(1, 4 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let body = bodies.recv_timeout(PATIENCE).unwrap();
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(event["kind"], "disk_offline");
    assert_eq!(event["disk_name"], "data_0001");
    // Closing waits for the hook.
    place.tell(["group", "dismount", "data"]);
    let mail = std::fs::read_to_string(place.path("mail")).unwrap();
    let (head, text) = mail.split_once("\n\n").unwrap();
    assert!(head.contains("To: dba@example.org\n"), "{mail}");
    assert!(
        head.contains("Subject: [spindle] critical: disk_offline in group data disk data_0001\n"),
        "{mail}"
    );
    assert!(text.contains(event["text"].as_str().unwrap()), "{mail}");
    assert!(text.contains("spindle health data"), "{mail}");
}

#[test]
fn a_name_from_a_disk_begins_no_header_of_a_mail() {
    let place = Place::new();
    let path = sendmail(&place);
    let variables = [("PATH", &*path), ("SPINDLE_MAIL_TO", "a@example.org")];
    let outcome = run("mail", "d1\nBcc: thief@example.org", &variables);
    assert!(outcome.status.success(), "{outcome:?}");
    let mail = std::fs::read_to_string(place.path("mail")).unwrap();
    assert!(!mail.lines().any(|line| line.starts_with("Bcc:")), "{mail}");
    assert!(mail.contains("Time:  1970-01-02T00:00:00Z\n"), "{mail}");
    assert!(mail.contains("3 events\n"), "{mail}");
}

#[test]
fn a_webhook_that_cannot_post_fails_so_that_the_event_log_says_so() {
    if !has_curl() {
        return;
    }
    let (address, bodies) = receiver("500 Internal Server Error");
    let outcome = run("webhook", "d1", &[("SPINDLE_WEBHOOK_URL", &address)]);
    assert!(!outcome.status.success(), "{outcome:?}");
    assert_eq!(bodies.recv_timeout(PATIENCE).unwrap(), "{}\n");
    for wrong in ["file:///etc/passwd", "http://a\"\noutput = \"/tmp/x"] {
        let outcome = run("webhook", "d1", &[("SPINDLE_WEBHOOK_URL", wrong)]);
        assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
    }
}
