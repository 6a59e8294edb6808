//! Where a statement of SQL ends: at a `;` that stands in no text, no comment and no parentheses, or
//! where a command begins.

use super::command::Verb;

/// A statement, or several that go together (`\;`).
#[derive(Debug)]
pub struct Statement {
    /// Its first line.
    pub line: usize,
    /// Without the `;` at its end and without comments to the end of a line.
    pub text: String,
    /// One for each statement in it; none where it is empty.
    pub verbs: Vec<Verb>,
    /// Whether one of them has COPY, itself or in the text of a function.
    pub copies: bool,
    /// What stood behind it.
    pub ended: Ended,
}

/// What stands behind a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// `;`.
    Semicolon,
    /// The backslash of a command.
    Command,
    /// Nothing any more.
    Text,
}

/// The rest of a script.
pub struct Lexer<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Lexer<'a> {
    /// From its beginning.
    pub fn new(text: &'a str) -> Self {
        Self {
            rest: text,
            line: 1,
        }
    }

    /// Takes so many bytes.
    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    /// The next statement, which may be empty.
    pub fn statement(&mut self) -> Result<Statement, (usize, String)> {
        let mut text = String::new();
        let mut verbs = Vec::new();
        let mut has_copy = false;
        let mut begins_at = 0;
        let mut line = None;
        let mut depth = 0_usize;
        let ended = loop {
            let Some(first) = self.rest.chars().next() else {
                break Ended::Text;
            };
            if first.is_whitespace() {
                let blank = self.take(first.len_utf8());
                if !text.is_empty() {
                    text.push_str(blank);
                }
                continue;
            }
            if self.rest.starts_with("--") {
                self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
                continue;
            }
            line.get_or_insert(self.line);
            match first {
                ';' if depth == 0 => {
                    self.take(1);
                    break Ended::Semicolon;
                }
                '\\' if self.rest.starts_with("\\;") => {
                    self.take(2);
                    verbs.extend(verb(&text[begins_at..]));
                    has_copy |= copies(&text[begins_at..]);
                    text.push(';');
                    begins_at = text.len();
                }
                '\\' if self.rest.starts_with("\\:") => {
                    self.take(2);
                    text.push(':');
                }
                '\\' => break Ended::Command,
                '(' => {
                    depth += 1;
                    text.push_str(self.take(1));
                }
                ')' => {
                    depth = depth.saturating_sub(1);
                    text.push_str(self.take(1));
                }
                '\'' | '"' => {
                    let has_escapes = first == '\'' && is_escaped(&text);
                    text.push_str(self.quoted(first, has_escapes)?);
                }
                '$' => text.push_str(self.dollars(&text)?),
                '/' if self.rest.starts_with("/*") => text.push_str(self.comment()?),
                other => text.push_str(self.take(other.len_utf8())),
            }
        };
        if ended == Ended::Semicolon && depth > 0 {
            return Err((self.line, "a `(` has no `)`".to_owned()));
        }
        let text_length = text.trim_end().len();
        let last = &text[begins_at.min(text_length)..text_length];
        verbs.extend(verb(last));
        has_copy |= copies(last);
        text.truncate(text_length);
        Ok(Statement {
            line: line.unwrap_or(self.line),
            text,
            verbs,
            copies: has_copy,
            ended,
        })
    }

    /// The command at whose backslash the last statement ended, to the end of its line; a backslash
    /// there goes on in the next one.
    pub fn command(&mut self) -> (usize, String) {
        let line = self.line;
        self.take(1);
        let mut text = String::new();
        loop {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let part = self.take(end).trim_end_matches('\r');
            if !self.rest.is_empty() {
                self.take(1);
            }
            match part.strip_suffix('\\') {
                Some(part) if !self.rest.is_empty() => {
                    text.push_str(part);
                    text.push(' ');
                }
                _ => {
                    text.push_str(part);
                    return (line, text.trim_end().to_owned());
                }
            }
        }
    }

    /// A text in quotes, which stand doubled within.
    fn quoted(&mut self, quote: char, has_escapes: bool) -> Result<&'a str, (usize, String)> {
        let mut letters = self.rest.char_indices().skip(1).peekable();
        while let Some((place, letter)) = letters.next() {
            if letter == '\\' && has_escapes {
                letters.next();
            } else if letter == quote {
                if letters.peek().is_some_and(|(_, next)| *next == quote) {
                    letters.next();
                } else {
                    return Ok(self.take(place + 1));
                }
            }
        }
        Err((
            self.line,
            format!("a `{quote}` has no other that ends its text"),
        ))
    }

    /// A text between two equal marks such as `$$` or `$body$`; a lone `$` is a letter.
    fn dollars(&mut self, before: &str) -> Result<&'a str, (usize, String)> {
        let is_of_it =
            |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii();
        let after = &self.rest[1..];
        let length = after
            .find(|letter| !is_of_it(letter))
            .unwrap_or(after.len());
        let is_mark = after[length..].starts_with('$')
            && !after.starts_with(|first: char| first.is_ascii_digit())
            && !before.ends_with(is_of_it);
        if !is_mark {
            return Ok(self.take(1));
        }
        let mark = &self.rest[..length + 2];
        match self.rest[mark.len()..].find(mark) {
            Some(place) => Ok(self.take(place + 2 * mark.len())),
            None => Err((
                self.line,
                format!("a `{mark}` has no other that ends its text"),
            )),
        }
    }

    /// A comment with those within it.
    fn comment(&mut self) -> Result<&'a str, (usize, String)> {
        match comment_length(self.rest) {
            Some(length) => Ok(self.take(length)),
            None => Err((self.line, "a `/*` has no `*/`".to_owned())),
        }
    }
}

/// Of the comment at whose `/*` a text begins, with those within it; none where it does not end.
fn comment_length(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut place = 0;
    while place < text.len() {
        let rest = &text[place..];
        if rest.starts_with("/*") {
            depth += 1;
            place += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            place += 2;
            if depth == 0 {
                return Some(place);
            }
        } else {
            place += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    None
}

/// The first words of a text in small letters, each with what stands behind it; comments are left out
/// wherever they stand.
fn words(mut text: &str, at_most: usize) -> Vec<(String, &str)> {
    let is_of_a_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut words = Vec::new();
    while words.len() < at_most
        && let Some(first) = text.chars().next()
    {
        let length = if is_of_a_word(first) {
            let length = (text.find(|letter| !is_of_a_word(letter))).unwrap_or(text.len());
            words.push((text[..length].to_lowercase(), &text[length..]));
            length
        } else if text.starts_with("/*") {
            comment_length(text).unwrap_or(text.len())
        } else {
            first.len_utf8()
        };
        text = &text[length..];
    }
    words
}

/// Whether a statement is COPY, or has one in the text of a function: then its FROM or TO has a file, a
/// program or the client behind it, and not a table as where `copy` is a column.
fn copies(text: &str) -> bool {
    let words = words(text, usize::MAX);
    let is_copy = |(word, _): &(String, &str)| word == "copy";
    let Some(first) = words.iter().position(is_copy) else {
        return false;
    };
    first == 0
        || words[first..].windows(2).any(|pair| {
            let [(word, behind), (next, after)] = pair else {
                return false;
            };
            let is_text = behind.trim_start().starts_with(['\'', '$'])
                || (next == "e" && after.starts_with('\''));
            ["from", "to"].contains(&word.as_str())
                && (is_text || ["program", "stdin", "stdout"].contains(&next.as_str()))
        })
}

/// Whether a text after this is written `E'...'`.
fn is_escaped(before: &str) -> bool {
    let mut letters = before.chars().rev();
    let is_mark = letters
        .next()
        .is_some_and(|last| last.eq_ignore_ascii_case(&'e'));
    is_mark
        && !letters
            .next()
            .is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// What a statement is by its first words; none where there is nothing of it.
fn verb(text: &str) -> Option<Verb> {
    let words = words(text, 5);
    if words.is_empty() {
        return None;
    }
    let words: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
    // One that goes on in a next transaction is neither a beginning nor an end.
    let goes_on = words.ends_with(&["and", "chain"]);
    Some(match words.as_slice() {
        ["begin", ..] | ["start", "transaction", ..] => Verb::Begin,
        ["commit" | "rollback", "prepared", ..] | ["rollback", "to", ..] => Verb::Other,
        ["rollback", _, "to", ..] => Verb::Other,
        ["commit" | "end", ..] if !goes_on => Verb::Commit,
        ["rollback" | "abort", ..] if !goes_on => Verb::Rollback,
        ["insert" | "update" | "delete" | "merge", ..] => Verb::Change,
        _ => Verb::Other,
    })
}
