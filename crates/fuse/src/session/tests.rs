use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{
    Attributes, AttributesOut, EntryOut, Opcode, OpenOut, ReadIn, StatFsOut, WriteIn, WriteOut,
    open_answer,
};

/// One directory with one file, `data`, kept in memory: enough to see what the transport does.
#[derive(Debug, Default)]
struct OneFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    misaligned_count: Arc<AtomicU32>,
    panics: AtomicBool,
}

impl OneFile {
    fn attributes(&self, node: u64) -> Attributes {
        let root = node == 1;
        Attributes {
            inode: node,
            size_bytes: self.bytes.lock().len() as u64,
            mode: if root { 0o040_755 } else { 0o100_644 },
            links_count: 1,
            block_size_bytes: 4096,
            ..Attributes::default()
        }
    }

    fn note_alignment(&self, memory: &[u8]) {
        if !memory.as_ptr().addr().is_multiple_of(4096) {
            self.misaligned_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn write<T: Transport>(&self, transport: &mut T) -> Result<(), Errno> {
        let request =
            WriteIn::read_from_bytes(transport.arguments(size_of::<WriteIn>()).unwrap()).unwrap();
        let data = transport.tail(size_of::<WriteIn>());
        assert_eq!(data.len(), request.size_bytes as usize);
        self.note_alignment(data);
        let start = usize::try_from(request.offset_bytes).unwrap();
        let mut bytes = self.bytes.lock();
        if bytes.len() < start + data.len() {
            bytes.resize(start + data.len(), 0);
        }
        bytes[start..start + data.len()].copy_from_slice(data);
        drop(bytes);
        let answer = WriteOut {
            size_bytes: request.size_bytes,
            padding: 0,
        };
        transport.answer(0, answer.as_bytes())
    }

    fn read<T: Transport>(&self, transport: &mut T) -> Result<(), Errno> {
        let request =
            ReadIn::read_from_bytes(transport.arguments(size_of::<ReadIn>()).unwrap()).unwrap();
        let bytes = self.bytes.lock();
        let start = usize::try_from(request.offset_bytes)
            .unwrap()
            .min(bytes.len());
        let end = (start + request.size_bytes as usize).min(bytes.len());
        let payload = transport.payload(end - start).unwrap();
        self.note_alignment(payload);
        payload.copy_from_slice(&bytes[start..end]);
        drop(bytes);
        transport.answer_payload(end - start)
    }
}

impl Service for OneFile {
    fn serve<T: Transport>(
        &self,
        header: &InHeader,
        transport: &mut T,
        _worker: usize,
    ) -> Result<(), Errno> {
        match Opcode::from_number(header.opcode) {
            Some(Opcode::Lookup) if transport.tail(0) == b"data\0" => transport.answer(
                0,
                EntryOut {
                    node: 2,
                    attributes: self.attributes(2),
                    ..EntryOut::default()
                }
                .as_bytes(),
            ),
            Some(Opcode::Lookup) => transport.answer(-Errno::NOENT.raw_os_error(), &[]),
            Some(Opcode::GetAttributes | Opcode::SetAttributes) => transport.answer(
                0,
                AttributesOut {
                    attributes: self.attributes(header.node),
                    ..AttributesOut::default()
                }
                .as_bytes(),
            ),
            Some(Opcode::StatFs) if self.panics.load(Ordering::Relaxed) => panic!("as asked"),
            Some(Opcode::StatFs) => transport.answer(0, StatFsOut::default().as_bytes()),
            Some(Opcode::Open) => transport.answer(
                0,
                OpenOut {
                    flags: open_answer::DIRECT_IO,
                    ..OpenOut::default()
                }
                .as_bytes(),
            ),
            Some(Opcode::Write) => self.write(transport),
            Some(Opcode::Read) => self.read(transport),
            Some(Opcode::Forget | Opcode::BatchForget) => Ok(()),
            Some(Opcode::Release) => transport.answer(0, &[]),
            _ => transport.answer(-Errno::NOSYS.raw_os_error(), &[]),
        }
    }
}

/// An empty directory; what is mounted on it and itself are gone at the end, come what may.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("spindle-fuse-{name}-{}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = MountPoint::remove(&self.0, true);
        let _ = fs::remove_dir(&self.0);
    }
}

fn can_mount() -> bool {
    let can = geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

fn options() -> MountOptions {
    MountOptions {
        workers_count: 3,
        ..MountOptions::new("one_file")
    }
}

#[test]
fn what_is_written_to_a_mount_is_read_back_and_lies_on_a_page_boundary() {
    if !can_mount() {
        return;
    }
    let place = Place::new("aligned");
    let service = OneFile::default();
    let misaligned = Arc::clone(&service.misaligned_count);
    let mount = Mount::start_service(service, &place.0, &options()).unwrap();
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.0.join("data"))
        .unwrap();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    file.write_all_at(&bytes, 5).unwrap();
    let mut back = vec![0; bytes.len()];
    file.read_exact_at(&mut back, 5).unwrap();
    assert!(back == bytes);
    assert_eq!(misaligned.load(Ordering::Relaxed), 0);
    assert!(mount.counters().request(Opcode::Write).count >= 3);
    drop(file);
    mount.stop(false).unwrap();
    assert!(!mount.is_alive());
    assert!(place.0.read_dir().unwrap().next().is_none());
}

#[test]
fn a_mount_that_was_ended_by_force_is_served_until_its_last_request_is() {
    if !can_mount() {
        return;
    }
    let place = Place::new("forced");
    let service = OneFile::default();
    let bytes = Arc::clone(&service.bytes);
    let mount = Mount::start_service(service, &place.0, &options()).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(place.0.join("data"))
        .unwrap();
    let held = bytes.lock();
    let writer = thread::spawn(move || file.write_all_at(&[1], 0));
    while mount.counters().request(Opcode::Write).count == 0 {
        thread::yield_now();
    }
    // It is in use, and its requests are given up all the same.
    let _ = rustix::mount::unmount(&place.0, rustix::mount::UnmountFlags::FORCE);
    while mount.is_alive() {
        thread::yield_now();
    }
    writer.join().unwrap().unwrap_err();
    assert!(mount.is_served());
    drop(held);
    mount.wait();
    assert!(!mount.is_served());
}

#[test]
fn a_mount_shows_its_type_and_source() {
    if !can_mount() {
        return;
    }
    let place = Place::new("shown");
    let mount = Mount::start_service(OneFile::default(), &place.0, &options()).unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = format!("one_file {} fuse.spindle ", place.0.display());
    assert!(mounts.lines().any(|found| found.starts_with(&line)));
    mount.stop(false).unwrap();
}

#[test]
fn a_panic_is_answered_with_an_input_output_error_and_the_mount_goes_on() {
    if !can_mount() {
        return;
    }
    let place = Place::new("panic");
    let service = OneFile::default();
    service.panics.store(true, Ordering::Relaxed);
    let mount = Mount::start_service(service, &place.0, &options()).unwrap();
    for _ in 0..10 {
        let error = rustix::fs::statvfs(&place.0).err().unwrap();
        assert_eq!(error, Errno::IO);
    }
    assert_eq!(mount.counters().panics_count(), 10);
    assert_eq!(fs::metadata(place.0.join("data")).unwrap().ino(), 2);
    mount.stop(false).unwrap();
}

#[test]
fn a_mount_in_use_is_refused_to_stop_but_can_be_detached() {
    if !can_mount() {
        return;
    }
    let place = Place::new("busy");
    let mount = Mount::start_service(OneFile::default(), &place.0, &options()).unwrap();
    let mut file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.0.join("data"))
        .unwrap();
    assert!(matches!(mount.stop(false), Err(MountError::Busy(_))));
    mount.stop(true).unwrap();
    assert!(!place.0.join("data").exists());
    file.write_all(b"still here").unwrap();
    let mut back = String::new();
    fs::File::open(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&file)
    ))
    .unwrap()
    .read_to_string(&mut back)
    .unwrap();
    assert_eq!(back, "still here");
    drop(file);
    mount.wait();
}

#[test]
fn a_directory_that_cannot_be_mounted_on_is_refused_by_name() {
    if !can_mount() {
        return;
    }
    let place = Place::new("refused");
    let start = |path: &Path| Mount::start_service(OneFile::default(), path, &options());
    assert!(matches!(
        start(&place.0.join("none")).unwrap_err(),
        MountError::Missing(_)
    ));
    let file = place.0.join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(
        start(&file).unwrap_err(),
        MountError::NotADirectory(_)
    ));
    assert!(matches!(
        start(&place.0).unwrap_err(),
        MountError::NotEmpty(_)
    ));
    fs::remove_file(&file).unwrap();
    let mount = start(&place.0).unwrap();
    assert!(matches!(
        start(&place.0).unwrap_err(),
        MountError::AlreadyMounted(_)
    ));
    mount.stop(false).unwrap();
}

#[test]
fn an_unmount_by_somebody_else_ends_the_workers() {
    if !can_mount() {
        return;
    }
    let place = Place::new("ended");
    let mount = Mount::start_service(OneFile::default(), &place.0, &options()).unwrap();
    MountPoint::remove(&place.0, false).unwrap();
    mount.wait();
    mount.stop(false).unwrap();
}

#[test]
fn the_kernel_reads_ahead_as_far_as_asked_and_writes_back_early() {
    if !can_mount() {
        return;
    }
    let place = Place::new("ahead");
    let mount = Mount::start_service(OneFile::default(), &place.0, &options()).unwrap();
    let device = fs::metadata(&place.0).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let shown =
        |name: &str| fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/{name}")).unwrap();
    assert_eq!(shown("read_ahead_kb").trim(), "8192");
    assert_eq!(shown("strict_limit").trim(), "1");
    // The kernel keeps it as a share of the memory, and rounds.
    let held_bytes: u64 = shown("max_bytes").trim().parse().unwrap();
    assert!(
        held_bytes.abs_diff(options().dirty_bytes_max) < 1 << 20,
        "{held_bytes}"
    );
    mount.limit_dirty_bytes(64 << 20).unwrap();
    let held_bytes: u64 = shown("max_bytes").trim().parse().unwrap();
    assert!(held_bytes.abs_diff(64 << 20) < 1 << 20, "{held_bytes}");
    // So little is not told.
    mount.limit_dirty_bytes(68 << 20).unwrap();
    assert_eq!(shown("max_bytes").trim().parse(), Ok(held_bytes));
    mount.stop(false).unwrap();
}

#[test]
fn a_request_that_a_dead_daemon_left_behind_is_answered_by_the_next_one() {
    if !can_mount() {
        return;
    }
    let place = Place::new("next");
    let point = MountPoint::make(&place.0, &options()).unwrap();
    let (descriptors, negotiated) = agree(&point, &options()).unwrap();
    if !negotiated.has_resend() {
        eprintln!("skipped: the kernel cannot resend requests (it came with Linux 6.9)");
        return;
    }
    let reader = thread::spawn({
        let path = place.0.join("data");
        move || fs::read_to_string(path)
    });
    let filled = || {
        let service = OneFile::default();
        *service.bytes.lock() = b"from the next daemon".to_vec();
        service
    };
    // This daemon takes the READ and is gone before it answers.
    let mut transport = DeviceTransport::new(
        Arc::clone(&descriptors[1]),
        Arc::new(AnswerBuffers::new(MAX_DATA_BYTES)),
        Notices::none(&descriptors[1]),
    );
    let dying = filled();
    loop {
        let header = transport.receive().unwrap().unwrap();
        if Opcode::from_number(header.opcode) == Some(Opcode::Read) {
            break;
        }
        dying.serve(&header, &mut transport, 0).unwrap();
    }
    drop(transport);
    assert!(!reader.is_finished());
    let mount = Mount::resume(filled(), &place.0, descriptors, negotiated, &options()).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), "from the next daemon");
    mount.stop(false).unwrap();
}
