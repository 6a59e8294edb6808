//! Chromium without a window, driven through a pair of pipes as its developers' tools do.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long an answer of the browser may take on a busy machine.
const ANSWER_MOST: Duration = Duration::from_secs(60);

/// A browser with one page.
pub struct Browser {
    child: Child,
    pipe: std::fs::File,
    answers: Receiver<Value>,
    session: String,
    next_id: u64,
    /// What the page said on its console, threw, or was refused.
    pub complaints: Vec<String>,
    _scene: tempfile::TempDir,
}

impl Browser {
    /// Begins; `None` where none is installed, and says so.
    pub fn begin() -> Option<Self> {
        let Some(program) = find() else {
            println!("skipped: chromium is not installed");
            return None;
        };
        let scene = tempfile::tempdir().unwrap();
        let (to, from) = (scene.path().join("to"), scene.path().join("from"));
        for path in [&to, &from] {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        }
        // The browser reads its orders at descriptor 3 and answers at 4. Each is opened for both
        // directions, so that no opening waits for the other end.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<>\"$TO\" 4<>\"$FROM\""]);
        command.arg(program);
        command.args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ]);
        command.args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
        ]);
        command.arg("--remote-debugging-pipe");
        command.arg(format!(
            "--user-data-dir={}",
            scene.path().join("profile").display()
        ));
        command.env("TO", &to).env("FROM", &from);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let open = |path: &Path| {
            let options = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path);
            options.unwrap()
        };
        let (pipe, reading) = (open(&to), open(&from));
        let child = command.spawn().unwrap();
        let (sender, answers) = channel();
        std::thread::spawn(move || read_answers(reading, &sender));
        let mut browser = Self {
            child,
            pipe,
            answers,
            session: String::new(),
            next_id: 0,
            complaints: Vec::new(),
            _scene: scene,
        };
        let made = browser.order("Target.createTarget", json!({"url": "about:blank"}));
        let target = made["targetId"].as_str().unwrap().to_owned();
        let attach = json!({"targetId": target, "flatten": true});
        let attached = browser.order("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in [
            "Page.enable",
            "Runtime.enable",
            "Log.enable",
            "Network.enable",
        ] {
            browser.order(domain, json!({}));
        }
        Some(browser)
    }

    /// A window of that width, light or dark.
    pub fn size(&mut self, width: u32, height: u32, is_dark: bool) {
        let metrics =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.order("Emulation.setDeviceMetricsOverride", metrics);
        let value = if is_dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.order("Emulation.setEmulatedMedia", media);
    }

    pub fn open(&mut self, url: &str) {
        // A fragment alone would not load the page anew.
        self.order("Page.navigate", json!({"url": "about:blank"}));
        self.order("Page.navigate", json!({"url": url}));
    }

    /// The value of an expression in the page.
    #[track_caller]
    pub fn value(&mut self, expression: &str) -> Value {
        let value = self.try_value(expression);
        value.unwrap_or_else(|thrown| panic!("{expression}: {thrown}"))
    }

    fn try_value(&mut self, expression: &str) -> Result<Value, Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.order("Runtime.evaluate", asked);
        match &answer["exceptionDetails"] {
            Value::Null => Ok(answer["result"]["value"].clone()),
            thrown => Err(thrown.clone()),
        }
    }

    /// Waits until the expression is true; of a page that is not there yet it is not.
    #[track_caller]
    pub fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        loop {
            let value = self.try_value(expression);
            if value == Ok(Value::Bool(true)) {
                return;
            }
            if begun.elapsed() > ANSWER_MOST {
                let page = self.try_value("document.body.innerText");
                panic!("{expression}: {value:?}; {:?}; {page:?}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A picture of the whole page.
    pub fn picture(&mut self, file: &Path) {
        let asked = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.order("Page.captureScreenshot", asked);
        let bytes = decode(answer["data"].as_str().unwrap());
        assert!(
            bytes.len() > 10_000,
            "{}: {} bytes",
            file.display(),
            bytes.len()
        );
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    #[track_caller]
    fn order(&mut self, method: &str, parameters: Value) -> Value {
        self.next_id += 1;
        let mut order = json!({"id": self.next_id, "method": method, "params": parameters});
        if !self.session.is_empty() && !method.starts_with("Target.") {
            order["sessionId"] = json!(self.session);
        }
        let mut bytes = serde_json::to_vec(&order).unwrap();
        bytes.push(0);
        self.pipe.write_all(&bytes).unwrap();
        let until = Instant::now() + ANSWER_MOST;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = match self.answers.recv_timeout(left) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => panic!("the browser does not answer {method}"),
                Err(RecvTimeoutError::Disconnected) => panic!("the browser ended at {method}"),
            };
            if answer["id"] == json!(self.next_id) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let told = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.complaints.push(told.to_string()),
            "Runtime.consoleAPICalled" => self.complaints.push(told["args"].to_string()),
            "Log.entryAdded" => self.complaints.push(told["entry"].to_string()),
            "Network.requestWillBeSent" => {
                let url = told["request"]["url"].as_str().unwrap_or_default();
                let is_own = ["http://127.0.0.1:", "data:", "about:"];
                if !is_own.iter().any(|own| url.starts_with(own)) {
                    self.complaints.push(format!("asked for {url}"));
                }
            }
            _ => {}
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let close = b"{\"id\":0,\"method\":\"Browser.close\"}\0";
        let _ = self.pipe.write_all(close);
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |directory| directory.join(name)))
        .find(|program| program.is_file())
}

/// Answers end with a zero byte.
fn read_answers(mut pipe: std::fs::File, sender: &std::sync::mpsc::Sender<Value>) {
    let (mut piece, mut answer) = (vec![0; 1 << 16], Vec::new());
    loop {
        let Ok(count @ 1..) = pipe.read(&mut piece) else {
            return;
        };
        for byte in &piece[..count] {
            if *byte != 0 {
                answer.push(*byte);
                continue;
            }
            let told = serde_json::from_slice(&answer).unwrap_or_default();
            answer.clear();
            if sender.send(told).is_err() {
                return;
            }
        }
    }
}

/// The bytes that a text in base 64 stands for.
fn decode(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let digit = digits.bytes().position(|digit| digit == letter).unwrap();
        held = held << 6 | u32::try_from(digit).unwrap();
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits & 0xff).unwrap());
        }
    }
    bytes
}
