//! File contents on their way through HTTP, both directions, without ever being held whole.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Pieces under way at most: enough to keep both ends busy, little enough to cost nothing.
const PIECES: usize = 4;

/// A message body that some blocking thread feeds.
#[derive(Debug)]
pub struct ChannelBody(mpsc::Receiver<io::Result<Bytes>>);

/// The feeding end of a [`ChannelBody`]. Dropped without [`BodyWriter::fail`], the body ends well.
#[derive(Debug)]
pub struct BodyWriter(mpsc::Sender<io::Result<Bytes>>);

/// A body and its feeding end.
#[must_use]
pub fn channel() -> (BodyWriter, ChannelBody) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (BodyWriter(sender), ChannelBody(receiver))
}

impl BodyWriter {
    /// Breaks the message off, so that the other end does not take a part for the whole.
    pub fn fail(self, error: io::Error) {
        // The other end may be gone already: then there is nobody to tell.
        let _ = self.0.blocking_send(Err(error));
    }
}

impl Write for BodyWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Ok(Bytes::copy_from_slice(data)))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Body for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let polled = self.0.poll_recv(context);
        polled.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// Reads, on a blocking thread, the pieces that an asynchronous task sends.
#[derive(Debug)]
pub struct PieceReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

/// A reader and the end that the pieces of a received body go to.
#[must_use]
pub fn piece_reader() -> (mpsc::Sender<io::Result<Bytes>>, PieceReader) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let current = Bytes::new();
    (sender, PieceReader { pieces, current })
}

impl Read for PieceReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = out.len().min(self.current.len());
        out[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}
