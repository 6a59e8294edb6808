//! The socket of a served group: HTTP that any client can speak, and answers to what is no request.

#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use place::Place;
use serde_json::Value;

/// Sends bytes and gives back all that is answered until the other end closes.
fn exchange(place: &Place, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // A server that hangs up on nonsense may do so before it was read to its end.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(place: &Place, method: &str, path: &str) -> (u16, Value) {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\r\n");
    let answer = exchange(place, request.as_bytes());
    let status = answer[9..12].parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn the_document_tells_of_every_route_and_every_route_answers() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let (status, document) = ask(&place, "GET", "/openapi.json");
    assert_eq!(status, 200);
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Ends the process: asked last, below.
        if path == "/group/dismount" || methods.get("get").is_none() {
            continue;
        }
        let (status, body) = ask(&place, "GET", path);
        let needs_path = methods["get"]["parameters"].as_array().unwrap().iter();
        if needs_path
            .clone()
            .any(|parameter| parameter["required"] == true)
        {
            assert_eq!(status, 400, "{path}: {body}");
            assert_eq!(body["class"], "caller", "{path}");
        } else if path == "/scrub" {
            // None has run yet, and the answer says how one begins.
            assert_eq!(
                (status, &body["kind"]),
                (404, &Value::from("not_found")),
                "{body}"
            );
        } else {
            assert_eq!(status, 200, "{path}: {body}");
        }
    }
    let (status, group) = ask(&place, "GET", "/group");
    assert_eq!((status, &group["name"]), (200, &Value::from("data")));
    assert_eq!(ask(&place, "POST", "/group/dismount").0, 200);
}

#[test]
fn what_is_no_request_gets_an_error_and_the_daemon_serves_on() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let (status, error) = ask(&place, "GET", "/nothing");
    assert_eq!(status, 404);
    assert!(error["message"].as_str().unwrap().contains("openapi.json"));
    let (status, error) = ask(&place, "GET", "/files/stat?path=/nowhere");
    assert_eq!((status, &error["kind"]), (404, &Value::from("not_found")));
    let (status, error) = ask(&place, "GET", "/files/usage?path=/&depth=deep");
    assert_eq!(status, 400);
    assert!(error["message"].as_str().unwrap().contains("depth"));
    exchange(&place, b"\x00\xff nonsense\r\n\r\n");
    exchange(
        &place,
        b"GET /group HTTP/1.1\r\ncontent-length: many\r\n\r\n",
    );
    // A body that breaks off leaves no file.
    exchange_partly(&place);
    assert_eq!(ask(&place, "GET", "/group").0, 200);
    assert_eq!(place.ask(["ls", "data:/"]).as_array().unwrap().len(), 0);
}

fn exchange_partly(place: &Place) {
    let mut stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let head =
        "PUT /files/content?path=/half HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[7; 500_000]).unwrap();
    drop(stream);
    std::thread::sleep(std::time::Duration::from_millis(300));
}

#[test]
fn the_socket_is_its_owners_alone() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let mode = |path: &str| {
        let metadata = std::fs::metadata(place.path(path)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("run/data.sock"), 0o600);
    assert_eq!(mode("run"), 0o700);
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can ask as somebody else");
        return;
    }
    // Opened to everybody by a mistake, it still answers nobody but its owner and root.
    for (path, mode) in [("", 0o755), ("run", 0o755), ("run/data.sock", 0o666)] {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.path(path), permissions).unwrap();
    }
    let copy = place.path("spindle");
    std::fs::copy(env!("CARGO_BIN_EXE_spindle"), &copy).unwrap();
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&copy).args(["ls", "data:/"]).current_dir("/");
    command.env("SPINDLE_RUNTIME_DIR", place.path("run"));
    let refusal = place::outcome(&mut command);
    if refusal.stderr.contains("setpriv") {
        println!("skipped: no setpriv: {refusal:?}");
        return;
    }
    place::refused(&refusal, 2, &["only the user that serves the group"]);
}

#[test]
fn a_parameter_that_is_missing_unknown_or_given_twice_is_refused_by_its_name() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let refused = |method: &str, path: &str, word: &str| {
        let (status, error) = ask(&place, method, path);
        assert_eq!(
            (status, &error["class"]),
            (400, &Value::from("caller")),
            "{path}: {error}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(word), "{path}: {message}");
    };
    refused("POST", "/faults?disk=data_0000", "pulled");
    refused("POST", "/faults?pulled=true", "disk");
    refused("POST", "/faults?disk=data_0000&pulled=perhaps", "pulled");
    refused("POST", "/rebalance?pwoer=5", "pwoer");
    refused("POST", "/rebalance?power=5&power=6", "power");
    refused("GET", "/group?colour=red", "colour");
    refused("GET", "/files/content?file=/x", "file");
    refused("PUT", "/files/content", "path");
    let group = ask(&place, "GET", "/group").1;
    let modes = group["disks"].as_array().unwrap().iter();
    assert!(
        modes.clone().all(|disk| disk["mode"] == "online"),
        "{group}"
    );
    // A structure with a field that is none, too.
    let body = r#"{"drop": ["data_0000"], "forse": true}"#;
    let request = format!(
        "POST /disks/change HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(&place, request.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("forse"), "{answer}");
}

#[test]
fn what_a_newer_command_asks_for_is_told_with_both_versions_and_what_to_do() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    let asked = |method: &str, path: &str, version: &str| {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: spindle\r\nspindle-version: {version}\r\n\r\n"
        );
        exchange(&place, request.as_bytes())
    };
    for (method, path) in [("GET", "/tomorrow"), ("POST", "/rebalance?gently=true")] {
        let answer = asked(method, path, "99.1.2");
        assert!(answer.starts_with("HTTP/1.1 501"), "{path}: {answer}");
        for word in [
            "\"version\"",
            "99.1.2",
            env!("CARGO_PKG_VERSION"),
            "spindle upgrade data",
        ] {
            assert!(answer.contains(word), "{path}: {word}: {answer}");
        }
        // The same from this very version is a mistake of whoever asks.
        let answer = asked(method, path, env!("CARGO_PKG_VERSION"));
        assert!(answer.starts_with("HTTP/1.1 40"), "{path}: {answer}");
    }
    let answer = asked("GET", "/group", "99.1.2");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("spindle-version: "), "{answer}");
    assert!(place.ask(["group", "show", "data"]).is_object());
}

/// Listens where the process that serves `data` would: one connection asks whether somebody is
/// there, the next one asks something and gets this answer.
fn answer_as_the_daemon(place: &Place, answer: &'static str) -> std::thread::JoinHandle<()> {
    let run = place.path("run");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::set_permissions(&run, PermissionsExt::from_mode(0o700)).unwrap();
    let listener = UnixListener::bind(run.join("data.sock")).unwrap();
    std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4096];
            if stream.read(&mut asked).unwrap() > 0 {
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    })
}

#[test]
fn an_answer_of_another_version_that_cannot_be_read_is_told_with_both_versions() {
    let place = Place::new();
    let answering = answer_as_the_daemon(
        &place,
        "HTTP/1.1 200 OK\r\nspindle-version: 98.7.6\r\ncontent-length: 15\r\n\r\n{\"title\": true}",
    );
    let own = env!("CARGO_PKG_VERSION");
    // It is the newer one that serves: to hand the group to this one would be the wrong way round.
    let words = ["98.7.6", own, "by the program of version 98.7.6"];
    place.refuse(["group", "show", "data"], 3, &words);
    answering.join().unwrap();
}

#[test]
fn a_change_whose_answer_is_lost_is_not_told_as_refused() {
    let lost: [(&'static str, &str); 2] = [
        ("", "whether the change was made is not known"),
        (
            "HTTP/1.1 200 OK\r\nspindle-version: 98.7.6\r\ncontent-length: 15\r\n\r\n{\"title\": true}",
            "what was asked for was done",
        ),
    ];
    for (answer, told) in lost {
        let place = Place::new();
        let answering = answer_as_the_daemon(&place, answer);
        place.refuse(["rebalance", "data"], 3, &[told]);
        answering.join().unwrap();
    }
}
