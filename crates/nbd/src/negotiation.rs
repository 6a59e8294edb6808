//! The handshake: what a client asks before it reads or writes.
//!
//! A server has one export. Its name, and the empty one, mean that export; any other is answered as
//! unknown. What the client has been granted is kept here until it goes over to the transmission
//! phase, and is gone with its connection.

use crate::reply::ALLOCATION_ID;
use crate::wire::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, PAYLOAD_BYTES_MAX, PREFERRED_BLOCK_BYTES,
    STRING_BYTES_MAX, Violation, handshake_flag, info, option, option_reply, transmission_flag,
};

/// The length of an option without its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// The longest data of an option that are looked at.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The only metadata context.
const ALLOCATION: &str = "base:allocation";

/// What a client can get here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name of the export.
    pub name: String,
    /// The same for a person.
    pub description: String,
    /// Its size.
    pub size_bytes: u64,
    /// Nobody may write.
    pub is_read_only: bool,
}

/// What holds in the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Agreed {
    /// Reads are answered by chunks.
    pub is_structured: bool,
    /// The client may ask for `base:allocation`.
    pub has_allocation: bool,
}

/// What comes after an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Another option.
    Next,
    /// Requests.
    Serve(Agreed),
    /// Nothing: the connection ends.
    End,
}

/// The head of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which.
    pub option: u32,
    /// How many bytes follow.
    pub length_bytes: u32,
}

impl OptionHeader {
    /// Reads it.
    ///
    /// # Errors
    /// Where these bytes begin no option.
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<Self, Violation> {
        let mut fields = Fields(bytes);
        // Compared as a number, which a fuzzer sees through.
        if fields.longer() != Some(OPTION_MAGIC) {
            return Err(Violation("an option does not begin as options do"));
        }
        let parsed = fields.long().zip(fields.long());
        let (option, length_bytes) = parsed.ok_or(Violation("an option is too short"))?;
        Ok(Self {
            option,
            length_bytes,
        })
    }
}

/// What a server says first.
#[must_use]
pub fn greeting() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(18);
    bytes.extend(GREETING_MAGIC.to_be_bytes());
    bytes.extend(OPTION_MAGIC.to_be_bytes());
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    bytes.extend(flags.to_be_bytes());
    bytes
}

/// A handshake under way.
#[derive(Debug)]
pub struct Negotiation {
    offer: Offer,
    /// The client takes replies to options.
    is_fixed: bool,
    wants_zeroes: bool,
    is_structured: bool,
    /// The name for which the metadata context was chosen.
    allocation_of: Option<String>,
}

impl Negotiation {
    /// After the client's flags.
    ///
    /// # Errors
    /// Where it set one that was not offered.
    pub fn begin(offer: Offer, client_flags: u32) -> Result<Self, Violation> {
        let fixed = u32::from(handshake_flag::FIXED_NEWSTYLE);
        let no_zeroes = u32::from(handshake_flag::NO_ZEROES);
        if client_flags & !(fixed | no_zeroes) != 0 {
            return Err(Violation("the client set a flag that was not offered"));
        }
        Ok(Self {
            offer,
            is_fixed: client_flags & fixed != 0,
            wants_zeroes: client_flags & no_zeroes == 0,
            is_structured: false,
            allocation_of: None,
        })
    }

    /// Answers an option, into `out`.
    #[must_use]
    pub fn answer(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Step {
        if option == option::EXPORT_NAME {
            return self.export_name(data, out);
        }
        if !self.is_fixed {
            // Such a client knows no replies to options.
            return Step::End;
        }
        let refused = match option {
            option::ABORT => {
                put(out, option, option_reply::ACK, &[]);
                return Step::End;
            }
            option::LIST => self.list(data, out),
            option::INFO | option::GO => self.go(option, data, out),
            option::STRUCTURED_REPLY => self.structured_reply(data),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.meta_context(option, data, out)
            }
            option::STARTTLS => Err(Refusal::unsupported("this server speaks no TLS")),
            _ => Err(Refusal::unsupported("this server does not know the option")),
        };
        match refused {
            Err(refusal) => {
                put(out, option, refusal.reply, refusal.message.as_bytes());
                Step::Next
            }
            Ok(()) => {
                put(out, option, option_reply::ACK, &[]);
                match option {
                    option::GO => Step::Serve(self.agreed()),
                    _ => Step::Next,
                }
            }
        }
    }

    /// Answers an option with more data than are looked at; they have been passed over.
    #[must_use]
    pub fn answer_too_big(&self, option: u32, out: &mut Vec<u8>) -> Step {
        if option == option::EXPORT_NAME || !self.is_fixed {
            return Step::End;
        }
        put(out, option, option_reply::ERR_TOO_BIG, b"too many bytes");
        Step::Next
    }

    fn agreed(&self) -> Agreed {
        Agreed {
            is_structured: self.is_structured,
            has_allocation: self.allocation_of.is_some(),
        }
    }

    fn knows(&self, name: &str) -> bool {
        name.is_empty() || name == self.offer.name
    }

    fn transmission_flags(&self) -> u16 {
        use transmission_flag::{
            CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_DF, SEND_FLUSH, SEND_FUA, SEND_TRIM,
            SEND_WRITE_ZEROES,
        };
        // What one connection wrote another reads, and a flush is one of the whole volume.
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        flags |= if self.offer.is_read_only {
            READ_ONLY
        } else {
            SEND_TRIM | SEND_WRITE_ZEROES
        };
        if self.is_structured {
            flags |= SEND_DF;
        }
        flags
    }

    /// It knows no error but the end.
    fn export_name(&mut self, data: &[u8], out: &mut Vec<u8>) -> Step {
        if !text(data).is_some_and(|name| self.knows(name)) {
            return Step::End;
        }
        self.forget_other_context(text(data).unwrap_or_default());
        out.extend(self.offer.size_bytes.to_be_bytes());
        out.extend(self.transmission_flags().to_be_bytes());
        if self.wants_zeroes {
            out.extend([0; 124]);
        }
        Step::Serve(self.agreed())
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err(Refusal::invalid("the option has no data"));
        }
        let mut server = Vec::new();
        put_string(&mut server, &self.offer.name);
        server.extend(self.offer.description.as_bytes());
        put(out, option::LIST, option_reply::SERVER, &server);
        Ok(())
    }

    fn structured_reply(&mut self, data: &[u8]) -> Result<(), Refusal> {
        if !data.is_empty() {
            return Err(Refusal::invalid("the option has no data"));
        }
        self.is_structured = true;
        Ok(())
    }

    fn go(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut fields = Fields(data);
        let malformed = || Refusal::invalid("the option's data are not as they must be");
        let name = fields.string()?;
        let count = fields.short().ok_or_else(malformed)?;
        let mut wanted = Vec::new();
        for _ in 0..count {
            wanted.push(fields.short().ok_or_else(malformed)?);
        }
        if !fields.0.is_empty() {
            return Err(malformed());
        }
        if !self.knows(name) {
            return Err(Refusal::unknown());
        }
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend(self.offer.size_bytes.to_be_bytes());
        export.extend(self.transmission_flags().to_be_bytes());
        put(out, option, option_reply::INFO, &export);
        for (kind, value) in [
            (info::NAME, &self.offer.name),
            (info::DESCRIPTION, &self.offer.description),
        ] {
            if wanted.contains(&kind) {
                let mut told = kind.to_be_bytes().to_vec();
                told.extend(value.as_bytes());
                put(out, option, option_reply::INFO, &told);
            }
        }
        // Also to who did not ask: it says no more than every server must be able to do.
        let mut block_size = info::BLOCK_SIZE.to_be_bytes().to_vec();
        for value in [1, PREFERRED_BLOCK_BYTES, PAYLOAD_BYTES_MAX] {
            block_size.extend(value.to_be_bytes());
        }
        put(out, option, option_reply::INFO, &block_size);
        if option == option::GO {
            self.forget_other_context(name);
        }
        Ok(())
    }

    /// A context was chosen for a name; for another one it means nothing.
    fn forget_other_context(&mut self, name: &str) {
        self.allocation_of = self.allocation_of.take().filter(|chosen| chosen == name);
    }

    fn meta_context(&mut self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        let is_set = option == option::SET_META_CONTEXT;
        if is_set {
            // Also where this fails.
            self.allocation_of = None;
        }
        if !self.is_structured {
            return Err(Refusal::invalid("structured replies come first"));
        }
        let malformed = || Refusal::invalid("the option's data are not as they must be");
        let mut fields = Fields(data);
        let name = fields.string()?;
        let count = fields.long().ok_or_else(malformed)?;
        let mut is_meant = count == 0 && !is_set;
        for _ in 0..count {
            let query = fields.string()?;
            is_meant |= query == ALLOCATION || (query == "base:" && !is_set);
        }
        if !fields.0.is_empty() {
            return Err(malformed());
        }
        if !self.knows(name) {
            return Err(Refusal::unknown());
        }
        if is_meant {
            let id = if is_set { ALLOCATION_ID } else { 0 };
            let mut context = id.to_be_bytes().to_vec();
            context.extend(ALLOCATION.as_bytes());
            put(out, option, option_reply::META_CONTEXT, &context);
            if is_set {
                self.allocation_of = Some(name.to_owned());
            }
        }
        Ok(())
    }
}

/// Why an option is not granted.
#[derive(Debug)]
struct Refusal {
    reply: u32,
    message: &'static str,
}

impl Refusal {
    const fn invalid(message: &'static str) -> Self {
        Self {
            reply: option_reply::ERR_INVALID,
            message,
        }
    }

    const fn unsupported(message: &'static str) -> Self {
        Self {
            reply: option_reply::ERR_UNSUP,
            message,
        }
    }

    const fn unknown() -> Self {
        Self {
            reply: option_reply::ERR_UNKNOWN,
            message: "there is no such export here",
        }
    }
}

fn put(out: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend(reply.to_be_bytes());
    let length = u32::try_from(data.len()).expect("a reply is made of names");
    out.extend(length.to_be_bytes());
    out.extend(data);
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).expect("a name is short");
    out.extend(length.to_be_bytes());
    out.extend(text.as_bytes());
}

/// A string of the protocol, unless it is too long or no text.
fn text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// What is left of an option's data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn short(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes))
    }

    fn long(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(u32::from_be_bytes(bytes))
    }

    fn longer(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    }

    /// A length and so many bytes of text.
    fn string(&mut self) -> Result<&'a str, Refusal> {
        let length = self.long().and_then(|length| usize::try_from(length).ok());
        let bytes = length.and_then(|length| self.take(length));
        bytes
            .and_then(text)
            .ok_or(Refusal::invalid("a string is cut, too long or no text"))
    }
}

#[cfg(test)]
mod tests;
