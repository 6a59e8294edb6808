//! Metrics on the socket and on a TCP port, read as strictly as Prometheus reads them.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

mod place;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use place::exposition::{parse, value};
use place::{Place, bytes, can_mount};

fn scrape(mut stream: impl Read + Write, path: &str) -> (u16, String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: spindle\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head[9..12].parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

fn of_socket(place: &Place) -> String {
    let stream = UnixStream::connect(place.path("run/data.sock")).unwrap();
    let (status, head, body) = scrape(stream, "/metrics");
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    body
}

#[test]
fn the_metrics_of_a_group_are_what_it_did() {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 3 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    let samples = parse(&of_socket(&place));
    let group = [("group", "data")];
    assert_eq!(value(&samples, "spindle_build_info", &[]), 1.0);
    assert_eq!(value(&samples, "spindle_group_offline_disks", &group), 0.0);
    assert_eq!(value(&samples, "spindle_health_status", &group), 0.0);
    assert!(value(&samples, "spindle_catalog_commits_total", &group) >= 1.0);
    let written: f64 = (samples.iter())
        .filter(|sample| sample.name == "spindle_disk_written_bytes_total")
        .map(|sample| sample.value)
        .sum();
    assert!(written >= f64::from(6 << 20), "both copies: {written}");
    let disk = [("group", "data"), ("disk", "data_0001")];
    assert_eq!(value(&samples, "spindle_disk_online", &disk), 1.0);

    place.tell(["fault", "pull", "data", "data_0001"]);
    place.tell(["cp", "file", "data:/file"]);
    let samples = parse(&of_socket(&place));
    assert_eq!(value(&samples, "spindle_disk_online", &disk), 0.0);
    assert_eq!(value(&samples, "spindle_health_status", &group), 2.0);
    let critical = [("group", "data"), ("severity", "critical")];
    assert!(value(&samples, "spindle_events_total", &critical) >= 1.0);
}

#[test]
fn requests_of_the_mount_are_counted_by_kind() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    std::fs::write(place.mount_point().join("file"), b"x").unwrap();
    let samples = parse(&of_socket(&place));
    let create = [("group", "data"), ("request", "create")];
    assert_eq!(value(&samples, "spindle_fuse_requests_total", &create), 1.0);
    place.umount();
}

#[test]
fn a_buffered_write_waits_in_memory_and_a_sync_has_it_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.create_group();
    place.mount();
    let mut file = std::fs::File::create(place.mount_point().join("file")).unwrap();
    let waiting = || {
        let samples = parse(&of_socket(&place));
        value(&samples, "spindle_unwritten_bytes", &[("group", "data")])
    };
    // Where the mount is quiet for half a second they are written before anybody looks.
    let seen = (0..100).any(|_| {
        file.write_all(&[7; 8192]).unwrap();
        waiting() >= 8192.0
    });
    assert!(seen);
    file.sync_data().unwrap();
    assert_eq!(waiting(), 0.0);
    drop(file);
    place.umount();
}

#[test]
fn a_tcp_port_gives_the_metrics_and_nothing_else_and_only_on_loopback_unless_it_is_said() {
    let place = Place::new();
    place.create_group();
    // A port that is free now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let public = ["group", "mount", "data", "--metrics", "0.0.0.0:9464"];
    place.refuse(public, 2, &["other machines", "--metrics-public"]);
    assert_eq!(place.ask(["group", "list"])[0]["state"], "dismounted");
    let wanted = address.to_string();
    place.tell(["group", "mount", "data", "--metrics", &wanted]);
    let (status, head, body) = scrape(TcpStream::connect(address).unwrap(), "/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(!parse(&body).is_empty());
    for path in ["/group", "/events", "/files/content?path=/file", "/"] {
        let (status, _, _) = scrape(TcpStream::connect(address).unwrap(), path);
        assert_eq!(status, 404, "{path}");
    }
    place.tell(["group", "dismount", "data"]);
    assert!(
        TcpStream::connect(address).is_err(),
        "the port is free again"
    );
    let taken = std::net::TcpListener::bind(address).unwrap();
    let again = ["group", "mount", "data", "--metrics", &wanted];
    place.refuse(again, 3, &["metrics", &wanted]);
    assert_eq!(place.ask(["group", "list"])[0]["state"], "dismounted");
    drop(taken);
}
