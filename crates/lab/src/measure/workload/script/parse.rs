//! Reading a script of pgbench: statements of SQL up to their `;`, and commands behind a backslash up
//! to the end of their line.
//!
//! What is not known is refused with its line: a script that is half understood measures something
//! else than its writer meant.

use super::command::{Amount, Command, Script, Step};
use super::expression::Expression;
use super::statement::{Ended, Lexer, Statement};
use crate::nearness::hint;

/// A mistake in a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

/// The commands that there are.
const COMMANDS: [&str; 7] = ["set", "sleep", "if", "elif", "else", "endif", "gset"];

/// Words by which a script would give durability up under the lab's eyes: they belong into settings,
/// which the lab looks at.
const OF_SETTINGS: [&str; 2] = ["synchronous_commit", "fsync"];

/// Words by which rows would lie where the lab does not look for them, with what they do.
const ELSEWHERE: [(&str, &str); 2] = [
    (
        "tablespace",
        "puts rows beside the contender, which would not be measured then",
    ),
    (
        "unlogged",
        "commits without a log, which no storage is asked to keep",
    ),
];

/// A pause that is longer looks like a client that hangs.
pub const SLEEP_US_AT_MOST: u64 = 30_000_000;

/// Reads it.
pub fn parse(text: &str) -> Result<Script, Mistake> {
    let mut reader = Reader::default();
    let mut lexer = Lexer::new(text);
    loop {
        let statement = lexer
            .statement()
            .map_err(|(line, message)| Mistake { line, message })?;
        let ended = statement.ended;
        if !statement.verbs.is_empty() {
            reader.sql(statement)?;
        }
        match ended {
            Ended::Semicolon => {}
            Ended::Command => {
                let (line, words) = lexer.command();
                reader.command(line, &words)?;
            }
            Ended::Text => break,
        }
    }
    if let Some(open) = reader.open.last() {
        return Err(mistake(open.line, "this `\\if` has no `\\endif`"));
    }
    check_variables(&reader.steps)?;
    let asks = |step: &Step| matches!(step.command, Command::Sql { .. });
    if !reader.steps.iter().any(asks) {
        return Err(mistake(1, "there is no statement of SQL in it"));
    }
    Ok(Script {
        steps: reader.steps,
    })
}

/// The variables that every client has from its beginning.
pub const OWN: [&str; 4] = ["scale", "client_id", "random_seed", "default_seed"];

/// Each variable of an expression is set somewhere in the script. What a statement has behind a colon
/// may be no variable at all, as in `'HH24:MI'`.
fn check_variables(steps: &[Step]) -> Result<(), Mistake> {
    let is_set = |name: &str| {
        OWN.contains(&name)
            || steps.iter().any(|step| match &step.command {
                Command::Set { variable, .. } => variable == name,
                Command::Sql {
                    prefix: Some(prefix),
                    ..
                } => name.starts_with(prefix.as_str()),
                _ => false,
            })
    };
    for step in steps {
        let used: Vec<&str> = match &step.command {
            Command::Set { expression, .. } | Command::Unless { expression, .. } => {
                expression.variables()
            }
            Command::Sleep {
                amount: Amount::Variable(name),
                ..
            } => vec![name],
            _ => Vec::new(),
        };
        if let Some(name) = used.into_iter().find(|name| !is_set(name)) {
            return Err(mistake(
                step.line,
                format!("`:{name}` is set nowhere in this script"),
            ));
        }
    }
    Ok(())
}

fn mistake(line: usize, message: impl Into<String>) -> Mistake {
    Mistake {
        line,
        message: message.into(),
    }
}

/// An `\if` without its `\endif` so far.
struct Open {
    line: usize,
    /// The step whose target is the next branch.
    unless: Option<usize>,
    /// Steps that go on behind the end.
    jumps: Vec<usize>,
}

#[derive(Default)]
struct Reader {
    steps: Vec<Step>,
    open: Vec<Open>,
}

impl Reader {
    fn push(&mut self, line: usize, command: Command) {
        self.steps.push(Step { line, command });
    }

    fn sql(&mut self, statement: Statement) -> Result<(), Mistake> {
        let Statement {
            line, text, verbs, ..
        } = statement;
        let small = text.to_lowercase();
        if let Some(word) = OF_SETTINGS.iter().find(|word| small.contains(**word)) {
            return Err(mistake(
                line,
                format!(
                    "`{word}` stands in `settings` of [database] or of a contender, where the lab holds it against the flushes, and not in a script"
                ),
            ));
        }
        if let Some((word, does)) = ELSEWHERE.iter().find(|(word, _)| small.contains(word)) {
            let word = word.to_uppercase();
            return Err(mistake(line, format!("`{word}` {does}")));
        }
        if statement.copies {
            return Err(mistake(
                line,
                "`COPY` is no statement for a script: pgbench refuses it, too, and its file or its client lies beside the contender",
            ));
        }
        self.push(
            line,
            Command::Sql {
                text,
                verbs,
                prefix: None,
            },
        );
        Ok(())
    }

    fn command(&mut self, line: usize, text: &str) -> Result<(), Mistake> {
        let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let at = |message: String| mistake(line, message);
        match name.to_lowercase().as_str() {
            "set" => {
                let (variable, expression) = rest
                    .split_once(char::is_whitespace)
                    .ok_or_else(|| at("`\\set` takes a variable and an expression".to_owned()))?;
                check_variable(variable).map_err(at)?;
                let expression = Expression::parse(expression)
                    .map_err(|message| at(format!("`\\set {variable}`: {message}")))?;
                let variable = variable.to_owned();
                self.push(
                    line,
                    Command::Set {
                        variable,
                        expression,
                    },
                );
                Ok(())
            }
            "sleep" => {
                let command = sleep(rest).map_err(at)?;
                self.push(line, command);
                Ok(())
            }
            "gset" => self.gset(line, rest),
            "if" | "elif" => self.condition(line, &name.to_lowercase(), rest),
            "else" | "endif" if !rest.is_empty() => {
                Err(at(format!("`\\{name}` takes nothing, here is `{rest}`")))
            }
            "else" => {
                let next = self.end_of_branch(line, "else")?;
                let open = self.innermost(line, "else")?;
                match open.unless.take() {
                    Some(step) => self.set_target(step, next),
                    None => return Err(at("a second `\\else`".to_owned())),
                }
                Ok(())
            }
            "endif" => {
                let Some(open) = self.open.pop() else {
                    return Err(at("`\\endif` without `\\if`".to_owned()));
                };
                let end = self.steps.len();
                for step in open.jumps.into_iter().chain(open.unless) {
                    self.set_target(step, end);
                }
                Ok(())
            }
            "" => Err(at("a backslash without a command".to_owned())),
            unknown => Err(at(format!(
                "the lab has no command `\\{unknown}`{}; it has {}",
                hint(unknown, COMMANDS),
                COMMANDS.map(|name| format!("\\{name}")).join(", ")
            ))),
        }
    }

    fn gset(&mut self, line: usize, prefix: &str) -> Result<(), Mistake> {
        let is_name = prefix.is_empty() || check_variable(prefix).is_ok();
        if !is_name {
            return Err(mistake(
                line,
                format!("`\\gset {prefix}`: this begins no name of a variable"),
            ));
        }
        match self.steps.last_mut().map(|step| &mut step.command) {
            Some(Command::Sql {
                prefix: own @ None, ..
            }) => {
                *own = Some(prefix.to_owned());
                Ok(())
            }
            _ => Err(mistake(line, "`\\gset` stands behind a statement of SQL")),
        }
    }

    fn condition(&mut self, line: usize, name: &str, text: &str) -> Result<(), Mistake> {
        let expression = Expression::parse(text)
            .map_err(|message| mistake(line, format!("`\\{name}`: {message}")))?;
        let target = if name == "if" {
            None
        } else {
            Some(self.end_of_branch(line, name)?)
        };
        let own = self.steps.len();
        match target {
            None => self.open.push(Open {
                line,
                unless: Some(own),
                jumps: Vec::new(),
            }),
            Some(target) => {
                let open = self.innermost(line, name)?;
                match open.unless.replace(own) {
                    Some(step) => self.set_target(step, target),
                    None => return Err(mistake(line, "`\\elif` behind `\\else`")),
                }
            }
        }
        self.push(
            line,
            Command::Unless {
                expression,
                otherwise: own + 1,
            },
        );
        Ok(())
    }

    fn innermost(&mut self, line: usize, name: &str) -> Result<&mut Open, Mistake> {
        (self.open.last_mut()).ok_or_else(|| mistake(line, format!("`\\{name}` without `\\if`")))
    }

    /// Ends a branch by a jump behind the whole; gives the place of the next one.
    fn end_of_branch(&mut self, line: usize, name: &str) -> Result<usize, Mistake> {
        let step = self.steps.len();
        self.innermost(line, name)?.jumps.push(step);
        self.push(line, Command::Jump { to: step + 1 });
        Ok(step + 1)
    }

    fn set_target(&mut self, step: usize, target: usize) {
        if let Some(Step {
            command: Command::Unless { otherwise: to, .. } | Command::Jump { to },
            ..
        }) = self.steps.get_mut(step)
        {
            *to = target;
        }
    }
}

fn check_variable(name: &str) -> Result<(), String> {
    let is_right =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || !letter.is_ascii();
    let begins_well = name.starts_with(|first: char| is_right(first) && !first.is_ascii_digit());
    if begins_well && name.chars().all(is_right) {
        return Ok(());
    }
    Err(format!("`{name}` is no name of a variable"))
}

fn sleep(text: &str) -> Result<Command, String> {
    let mut words = text.split_whitespace();
    let amount = words.next().ok_or("`\\sleep` takes a number and a unit")?;
    // The unit may follow the number without a blank.
    let digits = amount
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(amount.len());
    let (amount, attached) = if amount.starts_with(':') {
        (amount, "")
    } else {
        amount.split_at(digits)
    };
    let unit = if attached.is_empty() {
        words.next()
    } else {
        Some(attached)
    };
    let unit_us = match unit.map(str::to_lowercase).as_deref() {
        None | Some("s") => 1_000_000,
        Some("ms") => 1_000,
        Some("us") => 1,
        Some(unknown) => return Err(format!("`{unknown}` is no unit of `\\sleep`: us, ms or s")),
    };
    if let Some(more) = words.next() {
        return Err(format!(
            "`\\sleep` takes a number and a unit, here is `{more}` besides"
        ));
    }
    let amount = match amount.strip_prefix(':') {
        Some(name) => {
            check_variable(name)?;
            Amount::Variable(name.to_owned())
        }
        None => {
            let count: u64 = amount.parse().map_err(|_| {
                format!("`\\sleep {text}`: a whole number or a variable was expected")
            })?;
            if count.saturating_mul(unit_us) > SLEEP_US_AT_MOST {
                return Err(format!(
                    "`\\sleep {text}` is longer than the 30 s that a pause may last"
                ));
            }
            Amount::Fixed(count)
        }
    };
    Ok(Command::Sleep { amount, unit_us })
}

#[cfg(test)]
mod tests;
