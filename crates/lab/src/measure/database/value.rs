//! What goes into a statement and comes out of it, the same for every database.

use std::fmt;

use anyhow::{Context, Result, bail};

/// A parameter or a column. A decimal number comes as the text of its digits, exactly; a date as
/// `2006-08-01`, a moment as `2006-08-01 12:00:00.000000`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// Text, and whatever is written as text.
    Text(String),
}

impl Value {
    /// As a whole number; digits as text are one, too.
    ///
    /// # Errors
    /// Where it is none.
    pub fn integer(&self) -> Result<i64> {
        match self {
            Self::Integer(value) => Ok(*value),
            Self::Text(text) => text
                .parse()
                .with_context(|| format!("`{text}` is no whole number")),
            Self::Null | Self::Float(_) => bail!("{self} is no whole number"),
        }
    }

    /// As a number; digits as text are one, too.
    ///
    /// # Errors
    /// Where it is none.
    pub fn float(&self) -> Result<f64> {
        match self {
            #[expect(
                clippy::cast_precision_loss,
                reason = "whoever asks for a float takes it as near as a float comes"
            )]
            Self::Integer(value) => Ok(*value as f64),
            Self::Float(value) => Ok(*value),
            Self::Text(text) => text
                .parse()
                .with_context(|| format!("`{text}` is no number")),
            Self::Null => bail!("{self} is no number"),
        }
    }

    /// As text.
    ///
    /// # Errors
    /// Where it is none.
    pub fn text(&self) -> Result<&str> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Null | Self::Integer(_) | Self::Float(_) => bail!("{self} is no text"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("NULL"),
            Self::Integer(value) => write!(formatter, "{value}"),
            Self::Float(value) => write!(formatter, "{value}"),
            Self::Text(text) => formatter.write_str(text),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::Integer(i64::from(value))
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Integer(i64::from(value))
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row that a statement gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// In the order of the statement.
    pub values: Vec<Value>,
}

impl Row {
    /// A column, from 0.
    ///
    /// # Errors
    /// Where there are fewer.
    pub fn value(&self, index: usize) -> Result<&Value> {
        self.values
            .get(index)
            .with_context(|| format!("a row has no column {index}"))
    }

    /// A column as a whole number.
    ///
    /// # Errors
    /// Where it is none.
    pub fn integer(&self, index: usize) -> Result<i64> {
        self.value(index)?.integer()
    }

    /// A column as a number.
    ///
    /// # Errors
    /// Where it is none.
    pub fn float(&self, index: usize) -> Result<f64> {
        self.value(index)?.float()
    }

    /// A column as text.
    ///
    /// # Errors
    /// Where it is none.
    pub fn text(&self, index: usize) -> Result<&str> {
        self.value(index)?.text()
    }

    /// Whether a column holds nothing.
    #[must_use]
    pub fn is_null(&self, index: usize) -> bool {
        self.values.get(index) == Some(&Value::Null)
    }
}
