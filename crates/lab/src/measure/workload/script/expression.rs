//! Expressions of `\set` and `\if`, by the grammar of pgbench (`exprparse.y`) and its rules of types.
//!
//! From what binds least: OR, AND, NOT, IS, comparisons (which do not chain), bits and shifts, `+ -`,
//! `* / %`, signs. What is unknown makes the whole unknown, but for IS, and where the left of AND or OR
//! decides alone. `tests/script_referee.rs` asks pgbench itself.

mod call;
mod token;

use std::collections::BTreeMap;

use self::call::Function;
use self::token::{Token, tokens};
use super::datum::Datum;

/// The variables of a client: a value, or the text of a column.
pub type Variables = BTreeMap<String, Variable>;

/// What stands in a variable.
#[derive(Debug, Clone, PartialEq)]
pub enum Variable {
    /// From an expression.
    Datum(Datum),
    /// From a column of the database, or from the file; its type is looked for where one is needed.
    Text(String),
}

impl Variable {
    /// As it stands in a statement.
    pub fn text(&self) -> String {
        match self {
            Self::Datum(datum) => datum.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    fn datum(&self, name: &str) -> Result<Datum, String> {
        match self {
            Self::Datum(datum) => Ok(*datum),
            Self::Text(text) => Datum::of_text(text).ok_or_else(|| {
                format!("`:{name}` is {text:?}, which is neither number nor truth value")
            }),
        }
    }
}

/// An expression that was understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// Itself.
    Constant(Datum),
    /// Of a client.
    Variable(String),
    /// A function or an operator.
    Call(Function, Vec<Expression>),
}

impl Expression {
    /// Reads it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let tokens = tokens(text)?;
        let mut reader = Reader {
            tokens: &tokens,
            at: 0,
            depth: 0,
        };
        let expression = reader.either()?;
        match reader.peek() {
            None => Ok(expression),
            Some(token) => Err(format!("nothing was expected where {token} stands")),
        }
    }

    /// What it gives.
    pub fn value(
        &self,
        variables: &Variables,
        random: &mut fastrand::Rng,
    ) -> Result<Datum, String> {
        match self {
            Self::Constant(datum) => Ok(*datum),
            Self::Variable(name) => variables
                .get(name)
                .ok_or_else(|| format!("there is no variable `:{name}`"))?
                .datum(name),
            Self::Call(function, operands) => function.value(operands, variables, random),
        }
    }

    /// Every variable in it.
    pub fn variables(&self) -> Vec<&str> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Variable(name) => vec![name],
            Self::Call(_, operands) => operands.iter().flat_map(Self::variables).collect(),
        }
    }
}

/// Deeper nesting is nobody's script, and would use up the stack.
const DEPTH_AT_MOST: usize = 200;

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

/// Reads one operand of a level.
type Level<'a> = fn(&mut Reader<'a>) -> Result<Expression, String>;

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, token: &Token) -> bool {
        let is_it = self.peek() == Some(token);
        self.at += usize::from(is_it);
        is_it
    }

    fn word(&mut self, word: &'static str) -> bool {
        self.take(&Token::Word(word.to_owned()))
    }

    fn sign(&mut self, sign: &'static str) -> bool {
        self.take(&Token::Sign(sign))
    }

    fn needs(&mut self, is_there: bool, what: &str) -> Result<(), String> {
        if is_there {
            return Ok(());
        }
        Err(match self.peek() {
            Some(token) => format!("{what} was expected where {token} stands"),
            None => format!("{what} was expected at the end"),
        })
    }

    /// Operators of one level, from the left.
    fn chain(
        &mut self,
        operators: &[(&'static str, Function)],
        next: Level<'a>,
    ) -> Result<Expression, String> {
        let mut left = next(self)?;
        'more: loop {
            for (sign, function) in operators {
                if self.sign(sign) {
                    left = Expression::Call(*function, vec![left, next(self)?]);
                    continue 'more;
                }
            }
            return Ok(left);
        }
    }

    fn either(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH_AT_MOST {
            return Err("it is nested too deeply".to_owned());
        }
        let mut left = self.both()?;
        while self.word("or") {
            left = Expression::Call(Function::Or, vec![left, self.both()?]);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn both(&mut self) -> Result<Expression, String> {
        let mut left = self.negated()?;
        while self.word("and") {
            left = Expression::Call(Function::And, vec![left, self.negated()?]);
        }
        Ok(left)
    }

    fn negated(&mut self) -> Result<Expression, String> {
        let mut count = 0_usize;
        while self.word("not") {
            count += 1;
        }
        let mut expression = self.judged()?;
        for _ in 0..count {
            expression = Expression::Call(Function::Not, vec![expression]);
        }
        Ok(expression)
    }

    /// IS and its short forms, which do not chain.
    fn judged(&mut self) -> Result<Expression, String> {
        let left = self.compared()?;
        let is =
            |left, datum| Expression::Call(Function::Is, vec![left, Expression::Constant(datum)]);
        if self.word("isnull") {
            return Ok(is(left, Datum::Null));
        }
        if self.word("notnull") {
            return Ok(Expression::Call(Function::Not, vec![is(left, Datum::Null)]));
        }
        if !self.word("is") {
            return Ok(left);
        }
        let is_negated = self.word("not");
        let datum = if self.word("null") {
            Datum::Null
        } else if self.word("true") {
            Datum::Boolean(true)
        } else {
            let is_false = self.word("false");
            self.needs(is_false, "`NULL`, `TRUE` or `FALSE`")?;
            Datum::Boolean(false)
        };
        let judged = is(left, datum);
        Ok(if is_negated {
            Expression::Call(Function::Not, vec![judged])
        } else {
            judged
        })
    }

    fn compared(&mut self) -> Result<Expression, String> {
        let left = self.bits()?;
        // What is greater is what is less the other way round.
        for (sign, function, is_turned) in [
            ("<=", Function::LessEqual, false),
            (">=", Function::LessEqual, true),
            ("<>", Function::NotEqual, false),
            ("!=", Function::NotEqual, false),
            ("<", Function::Less, false),
            (">", Function::Less, true),
            ("=", Function::Equal, false),
        ] {
            if self.sign(sign) {
                let right = self.bits()?;
                let operands = if is_turned {
                    vec![right, left]
                } else {
                    vec![left, right]
                };
                return Ok(Expression::Call(function, operands));
            }
        }
        Ok(left)
    }

    fn bits(&mut self) -> Result<Expression, String> {
        let operators = [
            ("|", Function::BitOr),
            ("#", Function::BitXor),
            ("&", Function::BitAnd),
            ("<<", Function::ShiftLeft),
            (">>", Function::ShiftRight),
        ];
        self.chain(&operators, Reader::complement)
    }

    /// `~` takes all that binds more than bits do.
    fn complement(&mut self) -> Result<Expression, String> {
        if !self.sign("~") {
            return self.sum();
        }
        self.depth += 1;
        if self.depth > DEPTH_AT_MOST {
            return Err("it is nested too deeply".to_owned());
        }
        let operand = self.complement()?;
        self.depth -= 1;
        let all = Expression::Constant(Datum::Integer(-1));
        Ok(Expression::Call(Function::BitXor, vec![all, operand]))
    }

    fn sum(&mut self) -> Result<Expression, String> {
        let operators = [("+", Function::Add), ("-", Function::Subtract)];
        self.chain(&operators, Reader::product)
    }

    fn product(&mut self) -> Result<Expression, String> {
        let operators = [
            ("*", Function::Multiply),
            ("/", Function::Divide),
            ("%", Function::Modulo),
        ];
        self.chain(&operators, Reader::signed)
    }

    fn signed(&mut self) -> Result<Expression, String> {
        if self.sign("+") {
            return self.signed();
        }
        if self.sign("-") {
            // The least whole number has no positive counterpart.
            if self.take(&Token::Least) {
                return Ok(Expression::Constant(Datum::Integer(i64::MIN)));
            }
            self.depth += 1;
            if self.depth > DEPTH_AT_MOST {
                return Err("it is nested too deeply".to_owned());
            }
            let zero = Expression::Constant(Datum::Integer(0));
            let operand = self.signed()?;
            self.depth -= 1;
            return Ok(Expression::Call(Function::Subtract, vec![zero, operand]));
        }
        self.atom()
    }

    fn atom(&mut self) -> Result<Expression, String> {
        let Some(token) = self.peek() else {
            return Err("a value was expected at the end".to_owned());
        };
        self.at += 1;
        match token {
            Token::Integer(value) => Ok(Expression::Constant(Datum::Integer(*value))),
            Token::Double(value) => Ok(Expression::Constant(Datum::Double(*value))),
            Token::Variable(name) => Ok(Expression::Variable(name.clone())),
            Token::Sign("(") => {
                let inner = self.either()?;
                let is_closed = self.sign(")");
                self.needs(is_closed, "`)`")?;
                Ok(inner)
            }
            Token::Word(word) => self.named(word),
            Token::Least | Token::Sign(_) => {
                Err(format!("a value was expected where {token} stands"))
            }
        }
    }

    fn named(&mut self, word: &str) -> Result<Expression, String> {
        match word {
            "null" => return Ok(Expression::Constant(Datum::Null)),
            "true" => return Ok(Expression::Constant(Datum::Boolean(true))),
            "false" => return Ok(Expression::Constant(Datum::Boolean(false))),
            "case" => return self.case(),
            _ => {}
        }
        let function = Function::named(word)?;
        let is_opened = self.sign("(");
        self.needs(is_opened, &format!("`(` after `{word}`"))?;
        let mut operands = Vec::new();
        if !self.sign(")") {
            loop {
                operands.push(self.either()?);
                if self.sign(",") {
                    continue;
                }
                let is_closed = self.sign(")");
                self.needs(is_closed, "`,` or `)`")?;
                break;
            }
        }
        function.check(word, operands.len())?;
        Ok(Expression::Call(function, operands))
    }

    fn case(&mut self) -> Result<Expression, String> {
        let mut operands = Vec::new();
        while self.word("when") {
            operands.push(self.either()?);
            let is_there = self.word("then");
            self.needs(is_there, "`THEN`")?;
            operands.push(self.either()?);
        }
        self.needs(!operands.is_empty(), "`WHEN`")?;
        operands.push(if self.word("else") {
            self.either()?
        } else {
            Expression::Constant(Datum::Null)
        });
        let is_ended = self.word("end");
        self.needs(is_ended, "`END`")?;
        Ok(Expression::Call(Function::Case, operands))
    }
}

#[cfg(test)]
mod tests;
