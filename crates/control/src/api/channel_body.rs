//! File contents on their way through HTTP, both directions, without ever being held whole.
//!
//! The end is said, never concluded: a feeder that goes without a word, because its client died or
//! the process that serves is ending, leaves a part that must not pass for the whole.

use std::io;
use std::io::{Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::mpsc;

/// Pieces under way at most: enough to keep both ends busy, little enough to cost nothing.
const PIECES: usize = 4;

/// What passes.
#[derive(Debug)]
enum Piece {
    Data(Bytes),
    /// All has passed.
    End,
    Failed(io::Error),
}

fn broken_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "it broke off before its end was said",
    )
}

/// A message body that some blocking thread feeds.
#[derive(Debug)]
pub(crate) struct ChannelBody {
    pieces: mpsc::Receiver<Piece>,
    has_ended: bool,
}

/// The feeding end of a [`ChannelBody`]. Dropped without [`BodyWriter::finish`] it breaks the
/// message off, so that the other end does not take a part for the whole.
#[derive(Debug)]
pub(crate) struct BodyWriter(mpsc::Sender<Piece>);

/// A body and its feeding end.
#[must_use]
pub(crate) fn channel() -> (BodyWriter, ChannelBody) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let body = ChannelBody {
        pieces,
        has_ended: false,
    };
    (BodyWriter(sender), body)
}

impl BodyWriter {
    /// The message is whole.
    pub(crate) fn finish(self) {
        // The other end may be gone already: then there is nobody to tell.
        let _ = self.0.blocking_send(Piece::End);
    }

    /// Breaks the message off, and says why.
    pub(crate) fn fail(self, error: io::Error) {
        let _ = self.0.blocking_send(Piece::Failed(error));
    }
}

impl Write for BodyWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0
            .blocking_send(Piece::Data(Bytes::copy_from_slice(data)))
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
        if self.has_ended {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| {
            if let Some(Piece::Data(data)) = piece {
                return Some(Ok(Frame::data(data)));
            }
            self.has_ended = true;
            match piece {
                Some(Piece::Data(_) | Piece::End) => None,
                Some(Piece::Failed(error)) => Some(Err(error)),
                None => Some(Err(broken_off())),
            }
        })
    }
}

/// Reads, on a blocking thread, the pieces that an asynchronous task sends.
#[derive(Debug)]
pub(crate) struct PieceReader {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    has_ended: bool,
}

/// Where the pieces of a received body go to. Dropped without [`PieceSender::finish`], the reader
/// is told that the body broke off.
#[derive(Debug)]
pub(crate) struct PieceSender(mpsc::Sender<Piece>);

/// A reader and the end that the pieces of a received body go to.
#[must_use]
pub(crate) fn piece_reader() -> (PieceSender, PieceReader) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let reader = PieceReader {
        pieces,
        current: Bytes::new(),
        has_ended: false,
    };
    (PieceSender(sender), reader)
}

impl PieceSender {
    /// Passes a piece on; false where nobody reads any more.
    pub(crate) async fn send(&self, data: Bytes) -> bool {
        self.0.send(Piece::Data(data)).await.is_ok()
    }

    /// The body is whole.
    pub(crate) async fn finish(self) {
        // The reader may have failed and gone; its failure is the answer.
        let _ = self.0.send(Piece::End).await;
    }

    /// The body broke off, and why.
    pub(crate) async fn fail(self, error: io::Error) {
        let _ = self.0.send(Piece::Failed(error)).await;
    }
}

impl Read for PieceReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.has_ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Data(data)) => self.current = data,
                Some(Piece::End) => self.has_ended = true,
                Some(Piece::Failed(error)) => return Err(error),
                None => return Err(broken_off()),
            }
        }
        let count = out.len().min(self.current.len());
        out[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::{channel, piece_reader};
    use axum::body::Bytes;
    use http_body_util::BodyExt;
    use std::io::{Read, Write};

    fn collected(finish: bool) -> Result<Bytes, std::io::Error> {
        let (mut writer, body) = channel();
        let feeding = std::thread::spawn(move || {
            writer.write_all(b"a part").unwrap();
            if finish {
                writer.finish();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let body = runtime.block_on(body.collect());
        feeding.join().unwrap();
        body.map(http_body_util::Collected::to_bytes)
    }

    #[test]
    fn a_body_whose_feeder_went_without_a_word_is_broken_off() {
        assert_eq!(collected(true).unwrap(), "a part");
        let error = collected(false).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_was_received_of_a_body_is_whole_only_where_its_end_was_said() {
        let read = |finish: bool| {
            let (sender, mut reader) = piece_reader();
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.build().unwrap();
            runtime.block_on(async {
                assert!(sender.send(Bytes::from_static(b"a part")).await);
                if finish {
                    sender.finish().await;
                }
            });
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        };
        assert_eq!(read(true).unwrap(), b"a part");
        let error = read(false).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
