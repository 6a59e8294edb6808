//! The words of an expression.

use std::fmt;

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Integer(i64),
    /// One more than the greatest whole number, which stands after a minus only.
    Least,
    Double(f64),
    Variable(String),
    /// In small letters.
    Word(String),
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(formatter, "`{value}`"),
            Self::Least => formatter.write_str("`9223372036854775808`"),
            Self::Double(value) => write!(formatter, "`{value}`"),
            Self::Variable(name) => write!(formatter, "`:{name}`"),
            Self::Word(word) => write!(formatter, "`{word}`"),
            Self::Sign(sign) => write!(formatter, "`{sign}`"),
        }
    }
}

/// Longer ones first.
const SIGNS: [&str; 21] = [
    "<=", ">=", "<>", "!=", "<<", ">>", "+", "-", "*", "/", "%", "=", "<", ">", "|", "#", "&", "~",
    "(", ")", ",",
];

/// Whether a letter may stand in a variable's name.
pub fn is_of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii()
}

/// Reads all of them.
pub fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if let Some(name) = rest.strip_prefix(':') {
            let length = name
                .find(|letter| !is_of_a_name(letter))
                .unwrap_or(name.len());
            if length == 0 {
                return Err("a `:` has no name after it".to_owned());
            }
            (Token::Variable(name[..length].to_owned()), length + 1)
        } else if first.is_ascii_digit() || first == '.' {
            number(rest)?
        } else if first.is_ascii_alphabetic() || first == '_' {
            let is_of_it = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let length = rest.find(|letter| !is_of_it(letter)).unwrap_or(rest.len());
            (Token::Word(rest[..length].to_lowercase()), length)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| format!("`{first}` means nothing in an expression"))?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn number(text: &str) -> Result<(Token, usize), String> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let whole = digits(text);
    let mut length = whole;
    if text[length..].starts_with('.') {
        length += 1;
        length += digits(&text[length..]);
    }
    if let Some(after) = text[length..].strip_prefix(['e', 'E']) {
        let unsigned = after.strip_prefix(['-', '+']).unwrap_or(after);
        let power = digits(unsigned);
        if power > 0 {
            length += 1 + (after.len() - unsigned.len()) + power;
        }
    }
    let word = &text[..length];
    if text[length..].starts_with(|next: char| next.is_ascii_alphanumeric() || "_.".contains(next))
    {
        return Err(format!("`{word}` is followed by what belongs to no number"));
    }
    let token = if length > whole {
        let value: f64 = word.parse().map_err(|_| format!("`{word}` is no number"))?;
        if !value.is_finite() {
            return Err(format!("`{word}` is too large"));
        }
        Token::Double(value)
    } else if word == "9223372036854775808" {
        Token::Least
    } else {
        Token::Integer(word.parse().map_err(|_| format!("`{word}` is too large"))?)
    };
    Ok((token, length))
}
