use std::fs::{self, File};
use std::io::{PipeReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use spindle_device::{AlignedBuffer, Disks, OpenDisk, Request, UringDisks, Work};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{
    Attributes, AttributesOut, EntryOut, InHeader, Opcode, OpenOut, OutHeader, ReadIn, StatFsOut,
    WriteOut, open_answer,
};
use crate::mount_point::MountPoint;
use crate::session::{Mount, MountOptions, Service};
use crate::transport::Transport;

const FILE_BYTES: u64 = 16 << 20;
const PAGE_BYTES: usize = 4096;
const MOST: Duration = Duration::from_secs(20);

/// This very program, which sends notices where it is asked for the test below.
fn program() -> NoticesProgram {
    let arguments = [
        "--exact",
        "notices::tests::the_process_that_sends_notices",
        "--ignored",
        "--test-threads=1",
    ];
    NoticesProgram {
        path: "/proc/self/exe".into(),
        name: "notices".into(),
        arguments: arguments.map(Into::into).to_vec(),
    }
}

/// No test: what the others start.
#[test]
#[ignore = "it is a part of the other tests"]
fn the_process_that_sends_notices() {
    send_notices(fcntl_dupfd_cloexec(std::io::stdin(), 0).unwrap()).unwrap();
}

fn notice(node: u64) -> NotifyInodeOut {
    NotifyInodeOut {
        node,
        offset_bytes: 4096,
        length_bytes: 4096,
    }
}

fn dropped(node: u64) -> Dropped {
    Dropped {
        notice: notice(node),
        and_all: None,
    }
}

#[test]
fn so_many_answers_wait_and_the_next_is_given_at_once() {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (answers, into) = std::io::pipe().unwrap();
    let (null, into) = (Arc::new(null), Arc::new(OwnedFd::from(into)));
    let gate = Arc::new(Gate::new(1));
    let notices = Notices::of(&gate, &null, "0:50", Path::new("/"), Some(program()));
    for unique in 1..=ANSWERS_MOST as u64 + 2 {
        let answer = Answer {
            descriptor: Arc::clone(&into),
            unique,
            data: vec![0; 8],
        };
        notices.answer_after(dropped(unique % 2), answer).unwrap();
    }
    // Nobody sees to them: what waits is counted as being served.
    assert_eq!(gate.progress().1, ANSWERS_MOST);
    assert_eq!(rustix::io::ioctl_fionread(&answers).unwrap(), 2 * (16 + 8));
    let mut state = notices.0.state.lock();
    assert_eq!(state.overdue(Duration::ZERO, PROCESS_MOST).len(), 0);
    let all = state.overdue(Duration::ZERO, Duration::ZERO);
    assert_eq!(all.len(), ANSWERS_MOST);
    // Of what could not be sent one notice for each file is left, and it is for all of the file.
    state.overdue(Duration::ZERO, Duration::ZERO);
    let left: Vec<_> = state.waiting.values().map(|one| one.notice).collect();
    assert_eq!(left.len(), 2);
    assert!(
        left.iter()
            .all(|one| one.length_bytes == 0 && one.offset_bytes == 0)
    );
}

/// Notices without a mount: what would go to the kernel goes into a pipe, notices and answers alike,
/// in the order in which they are sent.
struct Piped {
    gate: Arc<Gate>,
    notices: Notices,
    thread: NoticesThread,
    sent: PipeReader,
    into: Arc<OwnedFd>,
    /// A line with its number for each process that was started.
    started: PathBuf,
}

#[derive(Debug, PartialEq, Eq)]
enum Sent {
    Notice,
    Answer,
}

impl Piped {
    /// The first process that is started waits for so many seconds before it begins, the next for the
    /// next, and further ones do not.
    fn with_pauses(name: &str, pauses_s: &[&str]) -> Self {
        let started = format!("spindle-fuse-started-{name}-{}", std::process::id());
        let started = std::env::temp_dir().join(started);
        let pauses = (pauses_s.iter().enumerate())
            // What is at the other end of its input is for the shell alone.
            .map(|(number, pause)| format!("{}) sleep {pause} </dev/null;;", number + 1));
        let pauses: String = pauses.collect();
        let script = format!(
            r#"echo $$ >>{file}; case $(wc -l <{file}) in {pauses} esac; exec /proc/{own}/exe "$@""#,
            file = started.display(),
            own = std::process::id(),
        );
        let own = program();
        let mut arguments = vec!["-c".into(), script.into(), own.name.clone()];
        arguments.extend(own.arguments);
        let program = NoticesProgram {
            path: "/bin/sh".into(),
            name: own.name,
            arguments,
        };
        let (sent, into) = std::io::pipe().unwrap();
        let into = Arc::new(OwnedFd::from(into));
        let gate = Arc::new(Gate::new(1));
        let notices = Notices::of(&gate, &into, "0:50", Path::new("/"), Some(program));
        let thread = notices.start().unwrap();
        Self {
            gate,
            notices,
            thread,
            sent,
            into,
            started,
        }
    }

    fn answer(&self) {
        let answer = Answer {
            descriptor: Arc::clone(&self.into),
            unique: 7,
            data: Vec::new(),
        };
        self.notices.answer_after(dropped(2), answer).unwrap();
    }

    fn next(&mut self) -> Sent {
        let mut header = OutHeader::default();
        self.sent.read_exact(header.as_mut_bytes()).unwrap();
        let rest_bytes = usize::try_from(header.length_bytes).unwrap() - size_of::<OutHeader>();
        self.sent.read_exact(&mut vec![0; rest_bytes]).unwrap();
        match header.unique {
            0 => Sent::Notice,
            _ => Sent::Answer,
        }
    }

    /// Kills the last process once there is one.
    fn kill_last(&self) {
        let begun = Instant::now();
        let last = loop {
            let started = fs::read_to_string(&self.started).unwrap_or_default();
            match started.lines().last().map(str::parse) {
                Some(last) if started.ends_with('\n') => break last.unwrap(),
                _ => assert!(begun.elapsed() < MOST),
            }
            thread::sleep(Duration::from_millis(1));
        };
        // And what the shell has started.
        let group = Pid::from_raw(last).unwrap();
        kill_process_group(group, Signal::KILL).unwrap();
        while Path::new(&format!("/proc/{last}")).exists() {
            assert!(begun.elapsed() < MOST);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        self.gate.close();
        self.thread.finish();
        let _ = fs::remove_file(&self.started);
    }
}

/// Its start takes longer than an answer waits for a page that is being read.
#[test]
fn an_answer_waits_for_a_process_that_is_being_started() {
    let mut piped = Piped::with_pauses("slow", &["0.5"]);
    piped.answer();
    assert_eq!([piped.next(), piped.next()], [Sent::Notice, Sent::Answer]);
}

#[test]
fn who_has_a_file_dropped_waits_for_a_process_that_is_being_started() {
    let mut piped = Piped::with_pauses("dropped", &["0.5"]);
    assert!(piped.notices.drop_file(2, HELD_MOST));
    assert_eq!(piped.next(), Sent::Notice);
}

#[test]
fn an_answer_waits_for_the_process_that_replaces_a_killed_one() {
    let mut piped = Piped::with_pauses("replaced", &["0", "0.4"]);
    piped.answer();
    assert_eq!([piped.next(), piped.next()], [Sent::Notice, Sent::Answer]);
    piped.kill_last();
    piped.answer();
    assert_eq!([piped.next(), piped.next()], [Sent::Notice, Sent::Answer]);
}

/// As on a machine that is so busy that it does not come to do anything.
#[test]
fn an_answer_waits_although_a_process_was_killed_before_it_did_anything() {
    let mut piped = Piped::with_pauses("useless", &["60", "0.4"]);
    piped.answer();
    piped.kill_last();
    assert_eq!([piped.next(), piped.next()], [Sent::Notice, Sent::Answer]);
}

#[test]
fn an_answer_does_not_wait_for_a_process_that_hangs_in_its_start_but_once() {
    let mut piped = Piped::with_pauses("hanging", &["60"]);
    let begun = Instant::now();
    piped.answer();
    assert_eq!(piped.next(), Sent::Answer);
    assert!(begun.elapsed() >= PROCESS_MOST, "it waited for nothing");
    assert!(begun.elapsed() < MOST / 2);
    let begun = Instant::now();
    piped.answer();
    assert_eq!(piped.next(), Sent::Answer);
    assert!(begun.elapsed() < PROCESS_MOST, "it waited once more");
    // What was answered early is sent by the next one.
    piped.kill_last();
    assert_eq!(piped.next(), Sent::Notice);
}

/// A file whose write is answered when a read of the same page has come, which is held.
#[derive(Debug, Default)]
struct HeldRead {
    has_read: Arc<AtomicBool>,
    is_let_go: Arc<AtomicBool>,
}

fn wait_for(flag: &AtomicBool) {
    let begun = Instant::now();
    while !flag.load(Ordering::SeqCst) && begun.elapsed() < MOST {
        thread::sleep(Duration::from_millis(1));
    }
}

impl HeldRead {
    fn attributes(node: u64) -> Attributes {
        Attributes {
            inode: node,
            size_bytes: FILE_BYTES,
            mode: if node == 1 { 0o040_755 } else { 0o100_644 },
            links_count: 1,
            block_size_bytes: 4096,
            ..Attributes::default()
        }
    }
}

impl Service for HeldRead {
    fn serve<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        _worker: usize,
    ) -> Result<(), Errno> {
        match Opcode::from_number(header.opcode) {
            Some(Opcode::Lookup) if transport.tail(0) == b"data\0" => {
                let entry = EntryOut {
                    node: 2,
                    attributes: Self::attributes(2),
                    ..EntryOut::default()
                };
                transport.answer(0, entry.as_bytes())
            }
            Some(Opcode::GetAttributes | Opcode::SetAttributes) => {
                let attributes = AttributesOut {
                    attributes: Self::attributes(header.node),
                    ..AttributesOut::default()
                };
                transport.answer(0, attributes.as_bytes())
            }
            Some(Opcode::Open) => {
                let open = OpenOut {
                    flags: open_answer::KEEP_CACHE,
                    ..OpenOut::default()
                };
                transport.answer(0, open.as_bytes())
            }
            Some(Opcode::Write) => {
                wait_for(&self.has_read);
                let written = WriteOut {
                    size_bytes: 4096,
                    padding: 0,
                };
                transport.answer_after(dropped(2).whole(), written.as_bytes())
            }
            Some(Opcode::Read) => {
                self.has_read.store(true, Ordering::SeqCst);
                wait_for(&self.is_let_go);
                let arguments = transport.arguments(size_of::<ReadIn>()).unwrap();
                let request = ReadIn::read_from_bytes(arguments).unwrap();
                transport.answer(0, &vec![7; request.size_bytes as usize])
            }
            Some(Opcode::StatFs) => transport.answer(0, StatFsOut::default().as_bytes()),
            Some(Opcode::Forget | Opcode::BatchForget) => Ok(()),
            Some(Opcode::Release) => transport.answer(0, &[]),
            _ => transport.answer(-Errno::NOSYS.raw_os_error(), &[]),
        }
    }
}

impl Dropped {
    fn whole(mut self) -> Self {
        self.notice.offset_bytes = 0;
        self.notice.length_bytes = 0;
        self
    }
}

/// The kernel waits for the read, and the read may wait for a slot that the answer frees.
#[test]
fn an_answer_does_not_wait_for_a_read_that_nobody_answers() {
    if !geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: mounting needs root and /dev/fuse");
        return;
    }
    let name = format!("spindle-fuse-held-{}", std::process::id());
    let place = std::env::temp_dir().join(name);
    fs::create_dir(&place).unwrap();
    let service = HeldRead::default();
    let (has_read, is_let_go) = (service.has_read.clone(), service.is_let_go.clone());
    let options = MountOptions {
        workers_count: 3,
        notices: Some(program()),
        ..MountOptions::new("held")
    };
    let mount = Mount::start_service(service, &place, &options).unwrap();
    let path = place.join("data");
    let writer = UringDisks::new().unwrap();
    let slot = writer.try_attach(OpenDisk::open(&path).unwrap()).unwrap();
    let reader = File::open(&path).unwrap();
    thread::scope(|scope| {
        let write = scope.spawn(move || {
            let memory = AlignedBuffer::zeroed(PAGE_BYTES);
            let mut batch = [Request::new(slot, 0, Work::Write(&memory))];
            writer.run(&mut batch);
            let [request] = batch;
            request.result.unwrap();
        });
        // The kernel has sent the write before the page is read: else it would wait with it.
        thread::sleep(Duration::from_millis(100));
        let read = scope.spawn(|| {
            let mut read = [0; PAGE_BYTES];
            reader.read_exact_at(&mut read, 0).unwrap();
        });
        wait_for(&has_read);
        let begun = Instant::now();
        write.join().unwrap();
        assert!(begun.elapsed() >= HELD_MOST / 2, "it waited for nothing");
        assert!(begun.elapsed() < MOST / 2);
        assert!(!read.is_finished());
        is_let_go.store(true, Ordering::SeqCst);
        read.join().unwrap();
    });
    drop(reader);
    mount.stop(false).unwrap();
    let _ = MountPoint::remove(&place, true);
    let _ = fs::remove_dir(&place);
}
