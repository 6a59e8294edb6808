//! `spindle console`: what it refuses, what it shows, and how disks change by it.
#![allow(clippy::unwrap_used, reason = "a story that cannot go on has failed")]

#[path = "console/browser.rs"]
mod browser;
mod place;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use browser::Browser;
use place::{Place, bytes};
use serde_json::{Value, json};

/// A console that runs, until it is dropped.
struct Console {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    look_url: String,
    operate_url: String,
}

impl Console {
    #[track_caller]
    fn begin(place: &Place) -> Self {
        let mut command = place.command(["console", "data", "--operate"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Kept: a command whose listing nobody reads any more ends.
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        let urls: Vec<String> = (0..2)
            .map(|_| line().split_once(": ").unwrap().1.to_owned())
            .collect();
        assert!(line().contains("12 hours"));
        let [look_url, operate_url] = urls.try_into().expect("two addresses");
        Self {
            child,
            _stdout: stdout,
            look_url,
            operate_url,
        }
    }

    /// `127.0.0.1:PORT`.
    fn host(&self) -> &str {
        let (host, _) = self.look_url["http://".len()..].split_once('/').unwrap();
        host
    }

    fn look(&self) -> &str {
        self.look_url.split_once('#').unwrap().1
    }

    fn operate(&self) -> &str {
        self.operate_url.split_once('#').unwrap().1
    }

    /// Sends a request as it stands; the answer's status, head and body.
    fn send(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.host()).unwrap();
        let most = Some(Duration::from_secs(60));
        stream.set_read_timeout(most).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        read.unwrap_or_else(|error| panic!("{request}: {error}; {answer}"));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    /// Asks with these headers beside the right host.
    fn ask_with(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String, String) {
        let mut request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", self.host());
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        self.send(&(request + "\r\n"))
    }

    fn post(&self, path: &str, token: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://{host}\r\nspindle-token: {token}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len(),
            host = self.host(),
        );
        let (status, _, answer) = self.send(&request);
        (status, serde_json::from_str(&answer).unwrap())
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The group `data`, open, with a file in it.
fn open_group() -> Place {
    let place = Place::new();
    place.create_group();
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 12 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place
}

const CALLS: [&str; 7] = [
    "/api/session",
    "/api/state",
    "/api/events",
    "/api/moves",
    "/api/files?path=/",
    "/api/map?path=/file",
    "/api/nothing",
];

#[test]
fn nobody_is_answered_without_the_token_or_from_elsewhere() {
    let place = open_group();
    let console = Console::begin(&place);
    let (look, host) = (console.look(), console.host());
    let origin = format!("http://{host}");
    for path in CALLS {
        let wanted = if path == "/api/nothing" { 404 } else { 200 };
        let good = [
            ("spindle-token", look),
            ("origin", &origin),
            ("sec-fetch-site", "same-origin"),
        ];
        let (status, head, body) = console.ask_with(path, &good);
        assert_eq!(status, wanted, "{path}: {body}");
        assert!(head.contains("default-src 'none'"), "{head}");
        let cookie = format!("spindle-token={look}");
        for bad in [
            vec![],
            vec![("spindle-token", "")],
            vec![("spindle-token", &look[1..])],
            vec![("cookie", cookie.as_str())],
            vec![("authorization", look)],
            vec![("spindle-token", look), ("origin", "http://evil.example")],
            vec![("spindle-token", look), ("origin", "null")],
            vec![("spindle-token", look), ("sec-fetch-site", "cross-site")],
            vec![("spindle-token", look), ("host", "evil.example")],
        ] {
            let (status, head, body) = console.ask_with(path, &bad);
            assert_eq!(status, 403, "{path} {bad:?}");
            assert!(
                body.contains("\"denied\"") && !body.contains("data_0"),
                "{body}"
            );
            assert!(!head.to_lowercase().contains("access-control"), "{head}");
        }
        let elsewhere =
            format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\nspindle-token: {look}\r\n\r\n");
        assert_eq!(console.send(&elsewhere).0, 403, "{path}");
        let asked = format!(
            "OPTIONS {path} HTTP/1.1\r\nhost: {host}\r\norigin: http://evil.example\r\naccess-control-request-headers: spindle-token\r\n\r\n"
        );
        assert_eq!(console.send(&asked).0, 403, "{path}");
    }
    // The page has no secret in it, and is all that is given without a token.
    for path in [
        "/",
        "/console.js",
        "/console.css",
        "/uplot.js",
        "/uplot.css",
    ] {
        let (status, head, body) = console.ask_with(path, &[]);
        assert_eq!(status, 200, "{path}");
        assert!(head.contains("frame-ancestors 'none'"), "{head}");
        assert!(
            !body.contains(look) && !head.contains("set-cookie"),
            "{path}"
        );
        assert_eq!(
            console
                .ask_with(path, &[("origin", "http://evil.example")])
                .0,
            403
        );
        let elsewhere = format!("GET {path} HTTP/1.1\r\nhost: evil.example\r\n\r\n");
        assert_eq!(console.send(&elsewhere).0, 403, "{path}");
    }
}

#[test]
fn an_address_that_others_reach_and_a_group_that_is_not_open_are_refused() {
    let place = Place::new();
    place.create_group();
    let words = ["console", "data", "--listen", "0.0.0.0:0"];
    place.refuse(words, 2, &["loopback", "127.0.0.1"]);
    place.refuse(["console", "data"], 2, &["not open", "spindle mount"]);
    place.refuse(["console"], 2, &["no group is open"]);
}

#[test]
fn disks_change_by_the_token_to_operate_after_their_dry_run_and_as_it_was_shown() {
    let place = open_group();
    let console = Console::begin(&place);
    let (look, operate) = (console.look(), console.operate());
    let offline = json!({"offline": ["data_0001"]});
    let mode = || place.ask(["group", "show", "data"])["disks"][1]["mode"].clone();

    let (status, refused) = console.post("/api/estimate", look, &offline);
    assert_eq!((status, &refused["kind"]), (403, &json!("denied")));
    let (status, judged) = console.post("/api/estimate", operate, &offline);
    assert_eq!(status, 200, "{judged}");
    assert_eq!(judged["command"], "spindle disk offline data data_0001");
    assert!(judged["report"]["usable_bytes"].is_i64(), "{judged}");
    assert_eq!(mode(), "online", "a dry run changes nothing");
    let ticket = json!({"ticket": judged["ticket"]});
    assert_eq!(console.post("/api/change", look, &ticket).0, 403);
    assert_eq!(
        console
            .post("/api/change", operate, &json!({"ticket": "none"}))
            .0,
        400
    );
    assert_eq!(console.post("/api/change", operate, &offline).0, 400);
    assert_eq!(mode(), "online");
    let (status, made) = console.post("/api/change", operate, &ticket);
    assert_eq!(status, 200, "{made}");
    assert_eq!(mode(), "offline");
    assert_eq!(
        console.post("/api/change", operate, &ticket).0,
        400,
        "once only"
    );

    let (_, judged) = console.post("/api/estimate", operate, &json!({"online": ["data_0001"]}));
    place.tell(["disk", "online", "data", "data_0001"]);
    let ticket = json!({"ticket": judged["ticket"]});
    let (status, refused) = console.post("/api/change", operate, &ticket);
    assert_eq!(status, 409, "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("has changed"),
        "{refused}"
    );

    let events = place.ask(["events", "data", "--kind", "disks_change_asked"]);
    let texts: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    let user = rustix::process::geteuid().as_raw();
    assert!(texts[0].contains(&format!("uid {user}")), "{texts:?}");
    assert!(
        texts[0].contains("at the console asked to take data_0001 offline"),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("asked to bring data_0001 online"),
        "{texts:?}"
    );
    assert!(!texts[1].contains("console"), "a command: {texts:?}");
}

/// What must be so of the page at any width, in the light and in the dark.
#[track_caller]
fn look_at(browser: &mut Browser, url: &str, name: &str, disks_count: usize) {
    for (width, is_dark) in [(1440, false), (1440, true), (390, false), (390, true)] {
        browser.size(width, 1000, is_dark);
        browser.open(url);
        browser.wait("Number(document.documentElement.dataset.refreshed) >= 2");
        browser.wait("document.querySelectorAll('#listing button').length > 0");
        let tiles = browser.value("document.querySelectorAll('.tile').length");
        assert_eq!(tiles, json!(disks_count), "at {width}");
        let at = browser.value("[innerWidth, document.documentElement.scrollWidth]");
        assert_eq!(at, json!([width, width]), "nothing is beside the window");
        let wide = browser.value("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + e.className)");
        assert_eq!(wide, json!([]), "at {width}");
        let page = browser.value("getComputedStyle(document.body).backgroundColor");
        assert_eq!(
            page,
            json!(if is_dark {
                "rgb(26, 26, 25)"
            } else {
                "rgb(252, 252, 251)"
            })
        );
        assert_eq!(browser.value("location.hash"), "", "the token is not shown");
        assert_eq!(browser.complaints, Vec::<String>::new(), "at {width}");
        let shade = if is_dark { "dark" } else { "light" };
        browser.picture(&pictures().join(format!("{name}-{width}-{shade}.png")));
    }
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("console")
}

#[test]
fn a_browser_shows_a_group_and_changes_a_disk_after_the_dry_run() {
    let Some(mut browser) = Browser::begin() else {
        return;
    };
    let place = open_group();
    let console = Console::begin(&place);
    look_at(&mut browser, &console.look_url, "four", 4);
    assert_eq!(
        browser.value("document.getElementById('add-line').hidden"),
        json!(true)
    );
    browser.value("document.querySelector('.tile').click()");
    assert_eq!(
        browser.value("document.querySelectorAll('#disk button').length"),
        json!(0)
    );

    browser.size(1440, 1000, false);
    browser.open(&console.operate_url);
    browser.wait("document.querySelectorAll('#listing button').length > 0");
    browser.value("[...document.querySelectorAll('#listing button')].find(e => e.textContent.startsWith('file')).click()");
    browser.wait("document.querySelectorAll('#map svg rect').length > 4");
    browser.wait("document.querySelectorAll('.tile').length == 4");
    browser.value("document.querySelectorAll('.tile')[1].click()");
    let press = |text: &str| {
        format!(
            "[...document.querySelectorAll('button')].find(e => e.textContent === '{text}').click()"
        )
    };
    browser.value(&press("Take offline"));
    browser.wait("document.getElementById('dialog').open");
    browser.wait("!document.getElementById('confirm').disabled");
    let words = browser.value("document.getElementById('dialog-body').textContent");
    let words = words.as_str().unwrap();
    assert!(
        words.contains("spindle disk offline data data_0001"),
        "{words}"
    );
    assert!(words.contains("Usable space"), "{words}");
    browser.picture(&pictures().join("dry-run.png"));
    assert_eq!(
        place.ask(["group", "show", "data"])["disks"][1]["mode"],
        "online"
    );
    browser.value("document.getElementById('confirm').click()");
    browser.wait("document.getElementById('dialog-body').textContent.startsWith('Done')");
    assert_eq!(
        place.ask(["group", "show", "data"])["disks"][1]["mode"],
        "offline"
    );
    browser.value("document.getElementById('cancel').click()");
    browser.wait("document.getElementById('status').textContent === 'critical' || document.getElementById('status').textContent === 'warning'");
    browser.wait("document.getElementById('events').textContent.includes('at the console')");
    browser.picture(&pictures().join("offline.png"));
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn a_browser_adds_a_disk_after_the_dry_run() {
    let Some(mut browser) = Browser::begin() else {
        return;
    };
    let place = open_group();
    let disk = std::fs::File::create(place.disk("e")).unwrap();
    disk.set_len(64 << 20).unwrap();
    let console = Console::begin(&place);
    browser.size(390, 1000, true);
    browser.open(&console.operate_url);
    browser.wait("!document.getElementById('add-line').hidden");
    browser.value("document.getElementById('add').click()");
    browser.wait("document.querySelectorAll('input[name=candidate]').length == 1");
    browser.value("document.getElementById('failure-group').value = 'right'");
    browser.value("document.querySelector('#dialog-body button').click()");
    browser.wait("!document.getElementById('confirm').disabled");
    let words = browser.value("document.getElementById('dialog-body').textContent");
    let command = format!(
        "spindle disk add data --failgroup right={}",
        place.disk("e")
    );
    assert!(words.as_str().unwrap().contains(&command), "{words}");
    browser.picture(&pictures().join("adding.png"));
    let wide = browser.value("document.getElementById('dialog').scrollWidth <= innerWidth");
    assert_eq!(wide, json!(true));
    browser.value("document.getElementById('confirm').click()");
    browser.wait("document.querySelectorAll('.tile').length == 5");
    let group = place.ask(["group", "show", "data"]);
    assert_eq!(group["disks"][4]["failure_group"], "right");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn a_browser_shows_what_a_rebalance_has_still_to_move() {
    let Some(mut browser) = Browser::begin() else {
        return;
    };
    let place = open_group();
    // It waits, so that the story does not race it.
    place.tell(["rebalance", "data", "--power", "0", "--default"]);
    place.tell(["disk", "drop", "data", "data_0001"]);
    let console = Console::begin(&place);
    browser.size(390, 1000, false);
    browser.open(&console.look_url);
    browser.wait("document.querySelectorAll('#moves .flow').length > 0");
    let moves = browser.value("document.getElementById('moves').textContent");
    let moves = moves.as_str().unwrap();
    assert!(
        moves.contains("Still to move") && moves.contains("data_0001 → data_0000"),
        "{moves}"
    );
    let tile = browser.value("document.querySelectorAll('.tile')[1].textContent");
    assert!(tile.as_str().unwrap().contains("dropping"), "{tile}");
    let at = browser.value("[innerWidth, document.documentElement.scrollWidth]");
    assert_eq!(at, json!([390, 390]));
    browser.picture(&pictures().join("moving.png"));
    place.tell(["rebalance", "data", "--power", "64", "--default", "--wait"]);
    browser.wait("document.querySelectorAll('.tile').length == 3");
    browser.wait("document.getElementById('operations').textContent.startsWith('Nothing')");
    assert_eq!(browser.complaints, Vec::<String>::new());
}

#[test]
fn a_name_that_looks_like_markup_is_shown_as_text() {
    let Some(mut browser) = Browser::begin() else {
        return;
    };
    let place = open_group();
    place.tell(["cp", "file", "data:/<img src=x onerror=document.title=1>"]);
    let console = Console::begin(&place);
    browser.size(390, 1000, false);
    browser.open(&console.look_url);
    browser.wait("document.getElementById('listing').textContent.includes('<img src=x')");
    assert_eq!(
        browser.value("document.querySelectorAll('img').length"),
        json!(0)
    );
    assert_eq!(browser.complaints, Vec::<String>::new());
}

/// The group `data` of so many disks, all holes, open.
fn of_many_disks(count: usize) -> Place {
    let place = Place::new();
    let mut words: Vec<String> = ["group", "create", "data", "--au-size", "1M"]
        .map(str::to_owned)
        .to_vec();
    let groups_count = 5;
    for side in 0..groups_count {
        let disks: Vec<String> = (0..count / groups_count)
            .map(|number| {
                let disk = place.disk(&format!("side{side}-{number}"));
                std::fs::File::create(&disk)
                    .unwrap()
                    .set_len(16 << 20)
                    .unwrap();
                disk
            })
            .collect();
        words.extend([
            "--failgroup".to_owned(),
            format!("rack{side}={}", disks.join(",")),
        ]);
    }
    place.tell(&words);
    place.tell(["group", "mount", "data"]);
    std::fs::write(place.path("file"), bytes(1, 60 << 20)).unwrap();
    place.tell(["cp", "file", "data:/file"]);
    place
}

#[test]
fn a_browser_shows_a_hundred_disks() {
    let Some(mut browser) = Browser::begin() else {
        return;
    };
    let place = of_many_disks(100);
    place.tell(["disk", "offline", "data", "data_0007"]);
    let console = Console::begin(&place);
    look_at(&mut browser, &console.look_url, "hundred", 100);
}
