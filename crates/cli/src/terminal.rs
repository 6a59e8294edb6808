//! The terminal of `spindle top` and `spindle status --watch`: a screen of its own, keys without Enter, and everything as it was
//! when the command ends, also by a signal.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::screen::Line;

/// The other screen, without a cursor and without lines that wrap.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Everything back.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
const CONTROL_C: u8 = 3;
const CONTROL_D: u8 = 4;

/// What somebody typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `q` or Ctrl-C.
    Quit,
    /// `s`: the next order.
    Order,
}

impl Key {
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'q' | b'Q' | CONTROL_C | CONTROL_D => Some(Self::Quit),
            b's' | b'S' => Some(Self::Order),
            _ => None,
        }
    }
}

/// A terminal that is used; dropped, it is as it was.
pub struct Terminal(Arc<Former>);

/// What has to be put right, once.
struct Former(Mutex<Option<Modes>>);

/// The modes of the keyboard before; `None` where that is no terminal.
struct Modes(Option<Termios>);

impl Former {
    fn restore(&self) {
        let former = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Modes(former)) = former else { return };
        let mut out = std::io::stdout().lock();
        // A terminal that is gone needs nothing.
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = out.flush();
        if let Some(former) = former {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &former);
        }
    }
}

impl Terminal {
    /// Takes it over.
    ///
    /// # Errors
    /// Where it does not take what is written, or signals cannot be caught.
    pub fn take() -> Result<Self> {
        let stdin = std::io::stdin();
        let modes = tcgetattr(&stdin).ok().filter(|_| stdin.is_terminal());
        let former = Arc::new(Former(Mutex::new(Some(Modes(modes.clone())))));
        let terminal = Self(former.clone());
        spindle_control::on_termination(move || {
            former.restore();
            std::process::exit(0);
        })?;
        if let Some(mut modes) = modes {
            let unwanted = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
            modes.local_modes.remove(unwanted);
            modes.special_codes[SpecialCodeIndex::VMIN] = 0;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &modes).map_err(std::io::Error::from)?;
        }
        let mut out = std::io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()?;
        Ok(terminal)
    }

    /// Columns and rows, as they are by now.
    pub fn size(&self) -> (usize, usize) {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (size.ws_col.into(), size.ws_row.into())
            }
            _ => (80, 24),
        }
    }

    /// Waits for keys, so long at most: those that mean something.
    ///
    /// # Errors
    /// Where the keyboard is gone.
    pub fn wait(&self, most: Duration) -> Result<Vec<Key>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            std::thread::sleep(most);
            return Ok(Vec::new());
        }
        let timeout = Timespec::try_from(most).unwrap_or_default();
        let mut waited = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
        match poll(&mut waited, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        let mut typed = [0; 64];
        let length = rustix::io::read(&stdin, &mut typed).map_err(std::io::Error::from)?;
        if length == 0 {
            // Nobody will ever type anything.
            return Ok(vec![Key::Quit]);
        }
        Ok(typed[..length]
            .iter()
            .copied()
            .filter_map(Key::of)
            .collect())
    }

    /// Draws over what was there.
    ///
    /// # Errors
    /// Where the terminal is gone.
    pub fn draw(&self, lines: &[Line]) -> Result<()> {
        let mut text = String::from("\x1b[H");
        for (index, line) in lines.iter().enumerate() {
            if index > 0 {
                text.push_str("\r\n");
            }
            let style = if line.is_loud { "\x1b[1m" } else { "" };
            text.push_str(style);
            text.push_str(&line.text);
            text.push_str("\x1b[0m\x1b[K");
        }
        text.push_str("\x1b[J");
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.0.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::Key;

    #[test]
    fn a_key_ends_it_or_sorts_otherwise_or_means_nothing() {
        for (byte, key) in [
            (b'q', Some(Key::Quit)),
            (3, Some(Key::Quit)),
            (b's', Some(Key::Order)),
            (b'\x1b', None),
            (b'x', None),
        ] {
            assert_eq!(Key::of(byte), key);
        }
    }
}
