//! Who may ask the console, and for what.
//!
//! Any program of this machine reaches the port, and any page in the browser can have the browser
//! send requests to it. So a request is answered only where it names this console as its host (a
//! name that somebody else's DNS leads here is refused), comes from the console's own page or from
//! no page, and carries a token in a header of its own: a header that no foreign page can set
//! without asking first, and the answer to that question is no. There are no cookies, so nothing
//! goes along by itself. The tokens stand in the address behind `#`, which browsers do not send.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::{HOST, ORIGIN};
use serde::Serialize;

use crate::api::error::{ControlError, ControlErrorKind, ControlResult};
use crate::machine::identity::moment;

/// How long the tokens are good: a shift, and not the night after it.
pub(super) const LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// The header that carries a token.
const TOKEN: &str = "spindle-token";
/// What a browser says of the page that a request comes from.
const SITE: &str = "sec-fetch-site";
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// What a token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// To look, and change nothing.
    Look,
    /// To change disks, too.
    Operate,
}

impl Role {
    /// Refuses who may only look.
    ///
    /// # Errors
    /// Where that is so.
    pub(super) fn check_operates(self) -> ControlResult<()> {
        match self {
            Self::Operate => Ok(()),
            Self::Look => Err(ControlError::new(
                ControlErrorKind::Denied,
                "this token is for looking only: start the console with --operate, and open the second address",
            )),
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It was sent to another name or port.
    #[error(
        "the request names another host than this console: open the address that `spindle console` printed"
    )]
    Host,
    /// A page from elsewhere sent it.
    #[error("the request comes from a page of another origin")]
    Origin,
    /// It has no token, or not one of this console.
    #[error("the token is missing or wrong: open the address that `spindle console` printed")]
    Token,
    /// The tokens are too old.
    #[error("the tokens are older than 12 hours: start `spindle console` again")]
    Expired,
}

/// What is judged of a request. A header that comes twice is none that a browser sent.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// `Host`; `None` where it is missing, twice there or no text.
    host: Option<String>,
    /// `Origin`, likewise, where one is there.
    origin: Option<Option<String>>,
    /// `Sec-Fetch-Site`, likewise.
    site: Option<Option<String>>,
    /// The token.
    token: Option<String>,
    /// It asks for a file of the page, which the browser gets before it can send a token.
    is_page: bool,
}

impl Asked {
    pub(super) fn of(headers: &HeaderMap, is_page: bool) -> Self {
        let only = |name: &str| -> Option<String> {
            let mut values = headers.get_all(name).iter();
            let first = values.next()?.to_str().ok()?.to_owned();
            values.next().is_none().then_some(first)
        };
        let where_any = |name: &str| headers.contains_key(name).then(|| only(name));
        Self {
            host: only(HOST.as_str()),
            origin: where_any(ORIGIN.as_str()),
            site: where_any(SITE),
            token: only(TOKEN),
            is_page,
        }
    }
}

/// What is asked of who asks.
pub(super) struct Access {
    /// The names by which a browser of this machine may reach the port, each with the port.
    hosts: Vec<String>,
    look: String,
    operate: Option<String>,
    /// Of a clock that goes on while the machine sleeps.
    begun_ms: u64,
}

// The tokens are in no log.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access")
            .field("hosts", &self.hosts)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// With new tokens, for the console that listens at `address`.
    ///
    /// # Errors
    /// Where the machine gives no random bytes.
    pub(super) fn new(address: SocketAddr, operates: bool) -> ControlResult<Self> {
        Ok(Self {
            hosts: vec![address.to_string(), format!("localhost:{}", address.port())],
            look: random_text()?,
            operate: operates.then(random_text).transpose()?,
            begun_ms: moment().booted_ms,
        })
    }

    pub(super) fn look_url(&self) -> String {
        format!("http://{}/#{}", self.hosts[0], self.look)
    }

    pub(super) fn operate_url(&self) -> Option<String> {
        let token = self.operate.as_ref()?;
        Some(format!("http://{}/#{token}", self.hosts[0]))
    }

    /// How long the tokens are still good.
    pub(super) fn left(&self) -> Duration {
        LIFETIME.saturating_sub(self.age())
    }

    fn age(&self) -> Duration {
        Duration::from_millis(moment().booted_ms.saturating_sub(self.begun_ms))
    }

    /// What who asks may do.
    ///
    /// # Errors
    /// Where it is nothing, with the reason.
    pub(super) fn admit(&self, asked: &Asked) -> Result<Role, Refusal> {
        self.judge(asked, self.age())
    }

    fn judge(&self, asked: &Asked, age: Duration) -> Result<Role, Refusal> {
        let is_here = |host: &str| self.hosts.iter().any(|it| it.eq_ignore_ascii_case(host));
        if !asked.host.as_deref().is_some_and(is_here) {
            return Err(Refusal::Host);
        }
        if let Some(origin) = &asked.origin {
            let of_host = origin.as_deref().and_then(|it| it.strip_prefix("http://"));
            // The page's own, and not that of the other name: each name has a page of its own.
            if of_host.is_none() || of_host != asked.host.as_deref() {
                return Err(Refusal::Origin);
            }
        }
        if let Some(site) = &asked.site {
            // A link elsewhere may open the page, which shows nothing without a token.
            let is_own = matches!(site.as_deref(), Some("same-origin" | "none"));
            if !is_own && !asked.is_page {
                return Err(Refusal::Origin);
            }
        }
        if age >= LIFETIME {
            return Err(Refusal::Expired);
        }
        let token = asked.token.as_deref().unwrap_or_default();
        // Both are compared, whichever it is.
        let looks = is_same(token, &self.look);
        let operates = (self.operate.as_deref()).is_some_and(|own| is_same(token, own));
        match (looks, operates) {
            (_, true) => Ok(Role::Operate),
            (true, false) => Ok(Role::Look),
            (false, false) if asked.is_page => Ok(Role::Look),
            (false, false) => Err(Refusal::Token),
        }
    }
}

/// Whether two texts are the same; how long that takes tells nothing but their lengths, so that
/// nobody finds a token letter by letter.
fn is_same(given: &str, own: &str) -> bool {
    if given.len() != own.len() {
        return false;
    }
    let differing = (given.bytes().zip(own.bytes())).fold(0, |sum, (left, right)| {
        std::hint::black_box(sum | (left ^ right))
    });
    differing == 0
}

/// A text that nobody guesses.
///
/// # Errors
/// Where the machine gives no random bytes.
pub(super) fn random_text() -> ControlResult<String> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| ControlError::io("read", "/dev/urandom", &error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
