//! What a script does, step by step, and where each step stands in its file.

use super::expression::Expression;

/// A script that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Its steps in the order of the file.
    pub steps: Vec<Step>,
}

/// A step and its line, from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Where it begins.
    pub line: usize,
    /// What is done.
    pub command: Command,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Statements that go to the database together.
    Sql {
        /// As written; variables are put in when it is sent.
        text: String,
        /// What each of its statements is, by its first words.
        verbs: Vec<Verb>,
        /// With `\gset`: what stands before the name of each column's variable.
        prefix: Option<String>,
    },
    /// `\set`.
    Set {
        /// The variable.
        variable: String,
        /// Its value.
        expression: Expression,
    },
    /// `\sleep`.
    Sleep {
        /// How long.
        amount: Amount,
        /// In what.
        unit_us: u64,
    },
    /// `\if` and `\elif`: goes on at another step where the condition does not hold.
    Unless {
        /// The condition.
        expression: Expression,
        /// Where to.
        otherwise: usize,
    },
    /// The end of a branch: goes on behind `\endif`.
    Jump {
        /// Where to.
        to: usize,
    },
}

/// A length of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    /// As written.
    Fixed(u64),
    /// What a variable has.
    Variable(String),
}

/// What a statement does to the transaction that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Begins one.
    Begin,
    /// Ends it well.
    Commit,
    /// Gives it up.
    Rollback,
    /// Changes rows, as many as its answer says.
    Change,
    /// Anything else.
    Other,
}
