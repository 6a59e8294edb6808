//! A client over sockets that belong to the calling thread.
//!
//! Whoever asks for work drives the sockets until the answers are there. Between two batches nothing
//! is sent, and the lease is not kept: who holds a disk without work calls [`NfsDisk::rest`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::client::{Action, Client, Event, JobId, Outcome, Settings, Work};
use crate::compound::{Entry, Verifier};
use crate::status::{ErrorKind, NfsError};

/// What is taken off a socket at once.
const RECEIVE_BYTES: usize = 256 << 10;
/// Ports that only root can have; those that the kernel's own client takes.
const RESERVED_PORTS: std::ops::Range<u16> = 665..1024;

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathAddress {
    /// The server's address and port.
    pub server: SocketAddr,
    /// Our own address, where it is not the kernel's choice.
    pub own: Option<IpAddr>,
}

#[derive(Debug)]
struct Socket {
    stream: Arc<TcpStream>,
    is_connected: bool,
    /// What is to be sent, and how much of the first was.
    queue: std::collections::VecDeque<Arc<Vec<u8>>>,
    sent_bytes: usize,
}

/// What a disk waits for. Whoever waits needs the disk itself only before and after.
#[derive(Debug, Clone)]
pub(crate) struct Waits {
    /// Each path with its socket, and what is waited for there.
    sockets: Vec<(usize, Arc<TcpStream>, PollFlags)>,
    /// When to go on at the latest.
    until_ms: u64,
    pause_ms: u64,
}

/// Paths that can go on, with the socket of which that is known.
pub(crate) type Ready = Vec<(usize, Arc<TcpStream>)>;

impl Waits {
    /// Whether whoever waits for this would go on too late, or not at all, for what `other` says.
    pub(crate) fn misses(&self, other: &Self) -> bool {
        let is_waited_for = |(at, stream, flags): &(usize, Arc<TcpStream>, PollFlags)| {
            self.sockets.iter().any(|(own_at, own_stream, own_flags)| {
                own_at == at && Arc::ptr_eq(own_stream, stream) && own_flags.contains(*flags)
            })
        };
        other.until_ms < self.until_ms || !other.sockets.iter().all(is_waited_for)
    }

    /// Waits; `wake` ends it, too.
    pub(crate) fn poll(&self, wake: Option<BorrowedFd<'_>>) -> Ready {
        let streams = self.sockets.iter();
        let mut waited: Vec<PollFd<'_>> = streams
            .map(|(_, stream, flags)| PollFd::new(&**stream, *flags))
            .collect();
        waited.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
        let pause = Timespec {
            tv_sec: i64::try_from(self.pause_ms / 1000).unwrap_or(60),
            tv_nsec: i64::try_from(self.pause_ms % 1000 * 1_000_000).unwrap_or(0),
        };
        // What interrupts it lets us look again, which does no harm.
        let _ = rustix::event::poll(&mut waited, Some(&pause));
        let ready = self.sockets.iter().zip(&waited);
        ready
            .filter(|(_, one)| !one.revents().is_empty())
            .map(|((at, stream, _), _)| (*at, Arc::clone(stream)))
            .collect()
    }
}

/// One file on a server.
#[derive(Debug)]
pub struct NfsDisk {
    client: Client,
    addresses: Vec<PathAddress>,
    sockets: Vec<Option<Socket>>,
    begun: Instant,
    deadline_ms: u64,
    answers: BTreeMap<JobId, Result<Outcome, NfsError>>,
    events: Vec<Event>,
    received: Vec<u8>,
}

impl NfsDisk {
    /// Opens the file that the settings name, or only the directory where they name none. Every piece
    /// of work is answered within `deadline`, this one too.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    ///
    /// # Panics
    /// Where the settings count other paths than there are addresses, or the kernel has no random bytes.
    pub fn open(
        settings: Settings,
        addresses: Vec<PathAddress>,
        deadline: Duration,
    ) -> Result<Self, NfsError> {
        assert_eq!(settings.paths, addresses.len(), "each path has an address");
        let has_file = settings.file.is_some();
        let mut disk = Self {
            client: Client::new(settings, draw_verifier(), 0),
            sockets: addresses.iter().map(|_| None).collect(),
            addresses,
            begun: Instant::now(),
            deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX >> 1),
            answers: BTreeMap::new(),
            events: Vec::new(),
            received: vec![0; RECEIVE_BYTES],
        };
        if has_file {
            disk.size_bytes()?;
        }
        Ok(disk)
    }

    /// Does all of it at once, in no order, and returns when each piece has its answer, in the order
    /// of the pieces.
    pub fn run(&mut self, batch: Vec<Work>) -> Vec<Result<Outcome, NfsError>> {
        let deadline_ms = self.now_ms() + self.deadline_ms;
        let works = batch.into_iter();
        let asked: Vec<JobId> = works.map(|work| self.begin(work, deadline_ms)).collect();
        while asked.iter().any(|id| !self.answers.contains_key(id)) {
            self.wait(u64::MAX);
        }
        let take = |id| self.take_answer(id).expect("each has its answer");
        asked.into_iter().map(take).collect()
    }

    /// Sends a piece of work, and waits for nothing.
    pub(crate) fn begin(&mut self, work: Work, deadline_ms: u64) -> JobId {
        let now_ms = self.now_ms();
        let id = self.client.submit(work, deadline_ms, now_ms);
        self.act();
        id
    }

    /// The answer to a piece of work, where it is there; once.
    pub(crate) fn take_answer(&mut self, id: JobId) -> Option<Result<Outcome, NfsError>> {
        self.answers.remove(&id)
    }

    /// Whether a piece of work has its answer.
    pub(crate) fn has_answer(&self, id: JobId) -> bool {
        self.answers.contains_key(&id)
    }

    /// Keeps the lease and the paths for so long, and does nothing else.
    pub fn rest(&mut self, duration: Duration) {
        let until_ms = self.now_ms() + u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1);
        while self.now_ms() < until_ms {
            self.wait(until_ms);
        }
    }

    fn one(&mut self, work: Work) -> Result<Outcome, NfsError> {
        let asked = work.operation();
        let unanswered = NfsError::new(asked, ErrorKind::Closed);
        self.run(vec![work]).pop().unwrap_or(Err(unanswered))
    }

    /// Reads a range that lies within the file.
    ///
    /// # Errors
    /// Where it cannot be read, or not in time; so for all that follow.
    pub fn read(&mut self, offset_bytes: u64, length_bytes: u32) -> Result<Vec<u8>, NfsError> {
        let work = Work::Read {
            offset_bytes,
            length_bytes,
        };
        match self.one(work)? {
            Outcome::Data(data) => Ok(data),
            _ => Err(NfsError::new("READ", ErrorKind::Violation)),
        }
    }

    /// Writes; durable when it returns with `is_durable`, else after [`NfsDisk::flush`].
    ///
    /// # Errors
    /// As [`NfsDisk::read`].
    pub fn write(
        &mut self,
        offset_bytes: u64,
        data: &[u8],
        is_durable: bool,
    ) -> Result<(), NfsError> {
        let work = Work::Write {
            offset_bytes,
            data: data.into(),
            is_durable,
        };
        self.one(work).map(drop)
    }

    /// Makes every write durable that was answered.
    ///
    /// # Errors
    /// As [`NfsDisk::read`], and where the server has forgotten a write: [`ErrorKind::LostWrites`].
    pub fn flush(&mut self) -> Result<(), NfsError> {
        self.one(Work::Flush).map(drop)
    }

    /// The size of the file.
    ///
    /// # Errors
    /// As [`NfsDisk::read`].
    pub fn size_bytes(&mut self) -> Result<u64, NfsError> {
        match self.one(Work::Size)? {
            Outcome::Size(size_bytes) => Ok(size_bytes),
            _ => Err(NfsError::new("GETATTR", ErrorKind::Violation)),
        }
    }

    /// Sets the size of the file.
    ///
    /// # Errors
    /// As [`NfsDisk::read`].
    pub fn set_size(&mut self, size_bytes: u64) -> Result<(), NfsError> {
        self.one(Work::SetSize(size_bytes)).map(drop)
    }

    /// Lists the directory.
    ///
    /// # Errors
    /// As [`NfsDisk::read`].
    pub fn list(&mut self) -> Result<Vec<Entry>, NfsError> {
        match self.one(Work::List)? {
            Outcome::Entries(entries) => Ok(entries),
            _ => Err(NfsError::new("READDIR", ErrorKind::Violation)),
        }
    }

    /// Ends the hold on the file and the session.
    ///
    /// # Errors
    /// As [`NfsDisk::read`]; the server then ends both when the lease is over.
    pub fn close(mut self) -> Result<(), NfsError> {
        self.one(Work::Close).map(drop)
    }

    /// Whether nothing can be asked any more.
    pub(crate) const fn has_ended(&self) -> bool {
        self.client.has_ended()
    }

    /// What happened to the disk since this was asked last.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX >> 1)
    }

    /// Does what the client asks for.
    fn act(&mut self) {
        while let Some(action) = self.client.next_action() {
            match action {
                Action::Connect(at) => match connect(&self.addresses[at]) {
                    Ok(stream) => {
                        self.sockets[at] = Some(Socket {
                            stream: Arc::new(stream),
                            is_connected: false,
                            queue: std::collections::VecDeque::new(),
                            sent_bytes: 0,
                        });
                    }
                    Err(_) => self.lose(at),
                },
                Action::Send(at, bytes) => {
                    if let Some(socket) = &mut self.sockets[at] {
                        socket.queue.push_back(bytes);
                    }
                    if self.send(at).is_err() {
                        self.lose(at);
                    }
                }
                Action::Reset(at) => self.sockets[at] = None,
                Action::Done(id, result) => {
                    self.answers.insert(id, result);
                }
                Action::Event(event) => self.events.push(event),
            }
        }
    }

    fn lose(&mut self, at: usize) {
        self.sockets[at] = None;
        let now_ms = self.now_ms();
        self.client.disconnected(at, now_ms);
    }

    fn send(&mut self, at: usize) -> io::Result<()> {
        let Some(socket) = self.sockets[at]
            .as_mut()
            .filter(|socket| socket.is_connected)
        else {
            return Ok(());
        };
        while let Some(bytes) = socket.queue.front() {
            match (&*socket.stream).write(&bytes[socket.sent_bytes..]) {
                Ok(sent_bytes) => socket.sent_bytes += sent_bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if socket.sent_bytes == bytes.len() {
                socket.queue.pop_front();
                socket.sent_bytes = 0;
            }
        }
        Ok(())
    }

    /// Waits for the sockets or for the time, `until_ms` at the latest, and does what follows.
    fn wait(&mut self, until_ms: u64) {
        let ready = self.waits(until_ms).poll(None);
        self.go_on(ready);
    }

    /// What to wait for, until `until_ms` at the latest.
    pub(crate) fn waits(&self, until_ms: u64) -> Waits {
        let until_ms = self.client.wake_at_ms().min(until_ms);
        let sockets = self.sockets.iter().enumerate();
        let waited = sockets.filter_map(|(at, socket)| {
            let socket = socket.as_ref()?;
            let mut flags = PollFlags::IN;
            if !socket.is_connected || !socket.queue.is_empty() {
                flags |= PollFlags::OUT;
            }
            Some((at, Arc::clone(&socket.stream), flags))
        });
        Waits {
            sockets: waited.collect(),
            until_ms,
            // A minute at most, so that no time is too long for the kernel; one millisecond at least.
            pause_ms: until_ms.saturating_sub(self.now_ms()).clamp(1, 60_000),
        }
    }

    /// Does what follows when these paths can go on, or time went by.
    pub(crate) fn go_on(&mut self, ready: Ready) {
        let now_ms = self.now_ms();
        self.client.tick(now_ms);
        self.act();
        for (at, stream) in ready {
            // It may be another connection by now.
            let is_it = |socket: &Socket| Arc::ptr_eq(&socket.stream, &stream);
            if !self.sockets[at].as_ref().is_some_and(is_it) {
                continue;
            }
            if let Err(_lost) = self.serve(at) {
                self.lose(at);
            }
            self.act();
        }
    }

    fn serve(&mut self, at: usize) -> io::Result<()> {
        let Some(socket) = &mut self.sockets[at] else {
            return Ok(());
        };
        if !socket.is_connected {
            sockopt::socket_error(&*socket.stream)??;
            socket.is_connected = true;
            let now_ms = self.now_ms();
            self.client.connected(at, now_ms);
            self.act();
        }
        self.send(at)?;
        while let Some(socket) = &mut self.sockets[at] {
            let count = match (&*socket.stream).read(&mut self.received) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let now_ms = self.now_ms();
            self.client.received(at, &self.received[..count], now_ms);
            self.act();
        }
        Ok(())
    }
}

/// One that no other client has: whoever comes second ends what the first one had, in whichever
/// process, and at whatever time its clock shows.
fn draw_verifier() -> Verifier {
    let mut verifier = Verifier::default();
    let count = rustix::rand::getrandom(&mut verifier[..], rustix::rand::GetRandomFlags::empty());
    assert_eq!(count, Ok(verifier.len()), "the kernel gives random bytes");
    verifier
}

/// Begins a connection. It is reset when it is dropped, so that what it still holds goes nowhere.
fn connect(address: &PathAddress) -> io::Result<TcpStream> {
    let family = if address.server.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_linger(socket.as_fd(), Some(Duration::ZERO))?;
    sockopt::set_tcp_nodelay(socket.as_fd(), true)?;
    bind(socket.as_fd(), address)?;
    match rustix::net::connect(socket.as_fd(), &address.server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

/// Binds a socket to our own address, and to a port that only root can have where we are root: many
/// servers believe `AUTH_SYS` from no other (the export option `secure`).
fn bind(socket: BorrowedFd<'_>, address: &PathAddress) -> io::Result<()> {
    let any: IpAddr = if address.server.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let own = address.own.unwrap_or(any);
    for port in RESERVED_PORTS.rev() {
        match rustix::net::bind(socket, &SocketAddr::new(own, port)) {
            Ok(()) => return Ok(()),
            Err(Errno::ADDRINUSE) => {}
            Err(Errno::ACCESS) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::net::bind(socket, &SocketAddr::new(own, 0))?)
}
