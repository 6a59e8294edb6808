//! Functions and operators.

use super::super::chance;
use super::super::datum::Datum;
use super::{Expression, Variable, Variables};
use crate::nearness::hint;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Abs,
    Add,
    And,
    BitAnd,
    BitOr,
    BitXor,
    Case,
    Divide,
    Double,
    Equal,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Is,
    Least,
    Less,
    LessEqual,
    Ln,
    Modulo,
    Multiply,
    Not,
    NotEqual,
    Or,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    ShiftLeft,
    ShiftRight,
    Sqrt,
    Subtract,
}

/// By name: how many operands it takes at least and at most.
const NAMED: [(&str, Function, usize, usize); 19] = [
    ("abs", Function::Abs, 1, 1),
    ("double", Function::Double, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("greatest", Function::Greatest, 1, usize::MAX),
    ("hash", Function::HashMurmur2, 1, 2),
    ("hash_fnv1a", Function::HashFnv1a, 1, 2),
    ("hash_murmur2", Function::HashMurmur2, 1, 2),
    ("int", Function::Int, 1, 1),
    ("least", Function::Least, 1, usize::MAX),
    ("ln", Function::Ln, 1, 1),
    ("mod", Function::Modulo, 2, 2),
    ("pi", Function::Pi, 0, 0),
    ("pow", Function::Power, 2, 2),
    ("power", Function::Power, 2, 2),
    ("random", Function::Random, 2, 2),
    ("random_exponential", Function::RandomExponential, 3, 3),
    ("random_gaussian", Function::RandomGaussian, 3, 3),
    ("random_zipfian", Function::RandomZipfian, 3, 3),
    ("sqrt", Function::Sqrt, 1, 1),
];

impl Function {
    pub fn named(word: &str) -> Result<Self, String> {
        let known = || NAMED.iter();
        if let Some((_, function, _, _)) = known().find(|(name, _, _, _)| *name == word) {
            return Ok(*function);
        }
        Err(match word {
            "min" => "there is no function `min`; pgbench calls it `least`".to_owned(),
            "max" => "there is no function `max`; pgbench calls it `greatest`".to_owned(),
            "permute" => "the lab has no `permute`, which gives other numbers from version to version of pgbench".to_owned(),
            "debug" => "the lab has no `debug`: it would write beside the load".to_owned(),
            _ => format!(
                "there is no function `{word}`{}",
                hint(word, known().map(|(name, _, _, _)| *name))
            ),
        })
    }

    pub fn check(self, word: &str, count: usize) -> Result<(), String> {
        let found = NAMED.iter().find(|(name, _, _, _)| *name == word);
        let (least, most) = found.map_or((0, usize::MAX), |(_, _, least, most)| (*least, *most));
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let wanted = match (least, most) {
            (least, usize::MAX) => format!("at least {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} or {most}"),
        };
        Err(format!(
            "`{word}` takes {wanted} operands, here are {count}"
        ))
    }

    pub fn value(
        self,
        operands: &[Expression],
        variables: &Variables,
        random: &mut fastrand::Rng,
    ) -> Result<Datum, String> {
        let mut of = |index: usize| -> Result<Datum, String> {
            match operands.get(index) {
                Some(operand) => operand.value(variables, random),
                None => Err("an operand is missing".to_owned()),
            }
        };
        match self {
            Self::And | Self::Or => {
                // From the left: what is unknown there is the whole, and what decides alone does.
                let decides = self == Self::Or;
                let left = of(0)?;
                if left == Datum::Null || left.boolean()? == decides {
                    return Ok(left);
                }
                match of(1)? {
                    Datum::Null => Ok(Datum::Null),
                    right => Ok(Datum::Boolean(right.boolean()?)),
                }
            }
            Self::Case => {
                let mut index = 0;
                while index + 1 < operands.len() {
                    if of(index)?.is_true() {
                        return of(index + 1);
                    }
                    index += 2;
                }
                of(operands.len() - 1)
            }
            Self::Is => Ok(Datum::Boolean(of(0)? == of(1)?)),
            _ => {
                let operands: Vec<Datum> =
                    (0..operands.len()).map(&mut of).collect::<Result<_, _>>()?;
                if operands.contains(&Datum::Null) {
                    return Ok(Datum::Null);
                }
                self.of_known(&operands, variables, random)
            }
        }
    }

    fn of_known(
        self,
        operands: &[Datum],
        variables: &Variables,
        random: &mut fastrand::Rng,
    ) -> Result<Datum, String> {
        let at = |index: usize| operands.get(index).copied().unwrap_or(Datum::Null);
        let any_double = operands.iter().any(|one| matches!(one, Datum::Double(_)));
        match self {
            Self::Add | Self::Subtract | Self::Multiply | Self::Divide | Self::Modulo => {
                if any_double && self != Self::Modulo {
                    return self.of_doubles(at(0).double()?, at(1).double()?);
                }
                self.of_integers(at(0).integer()?, at(1).integer()?)
            }
            Self::Equal | Self::NotEqual | Self::Less | Self::LessEqual => {
                let order = if any_double {
                    at(0).double()?.partial_cmp(&at(1).double()?)
                } else {
                    Some(at(0).integer()?.cmp(&at(1).integer()?))
                };
                Ok(Datum::Boolean(match self {
                    Self::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
                    Self::NotEqual => order.is_none_or(std::cmp::Ordering::is_ne),
                    Self::Less => order.is_some_and(std::cmp::Ordering::is_lt),
                    _ => order.is_some_and(std::cmp::Ordering::is_le),
                }))
            }
            Self::BitAnd | Self::BitOr | Self::BitXor | Self::ShiftLeft | Self::ShiftRight => {
                self.of_bits(at(0).integer()?, at(1).integer()?)
            }
            Self::Not => Ok(Datum::Boolean(!at(0).boolean()?)),
            Self::Abs => match at(0) {
                Datum::Double(value) => Ok(Datum::Double(value.abs())),
                other => Ok(Datum::Integer(other.integer()?.wrapping_abs())),
            },
            Self::Least | Self::Greatest => self.of_many(operands, any_double),
            Self::Int => at(0).integer().map(Datum::Integer),
            Self::Double => at(0).double().map(Datum::Double),
            Self::Pi => Ok(Datum::Double(std::f64::consts::PI)),
            Self::Sqrt => Ok(Datum::Double(at(0).double()?.sqrt())),
            Self::Ln => Ok(Datum::Double(at(0).double()?.ln())),
            Self::Exp => Ok(Datum::Double(at(0).double()?.exp())),
            Self::Power => Ok(Datum::Double(at(0).double()?.powf(at(1).double()?))),
            Self::HashFnv1a | Self::HashMurmur2 => {
                let value = at(0).integer()?;
                let seed = match operands.get(1) {
                    Some(seed) => seed.integer()?,
                    None => match variables.get("default_seed") {
                        Some(Variable::Datum(seed)) => seed.integer()?,
                        _ => 0,
                    },
                };
                Ok(Datum::Integer(if self == Self::HashFnv1a {
                    chance::hash_fnv1a(value, seed)
                } else {
                    chance::hash_murmur2(value, seed)
                }))
            }
            _ => self.of_chance(operands, random),
        }
    }

    fn of_chance(self, operands: &[Datum], random: &mut fastrand::Rng) -> Result<Datum, String> {
        let at = |index: usize| operands.get(index).copied().unwrap_or(Datum::Null);
        let (low, high) = (at(0).integer()?, at(1).integer()?);
        let drawn = match self {
            Self::RandomExponential => chance::exponential(low, high, at(2).double()?, random),
            Self::RandomGaussian => chance::gaussian(low, high, at(2).double()?, random),
            Self::RandomZipfian => chance::zipfian(low, high, at(2).double()?, random),
            _ => chance::uniform(low, high, random),
        };
        drawn.map(Datum::Integer)
    }

    fn of_doubles(self, left: f64, right: f64) -> Result<Datum, String> {
        Ok(Datum::Double(match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            _ => left / right,
        }))
    }

    fn of_integers(self, left: i64, right: i64) -> Result<Datum, String> {
        let is_division = matches!(self, Self::Divide | Self::Modulo);
        if is_division && right == 0 {
            return Err("a division by zero".to_owned());
        }
        let found = match self {
            Self::Add => left.checked_add(right),
            Self::Subtract => left.checked_sub(right),
            Self::Multiply => left.checked_mul(right),
            Self::Divide => left.checked_div(right),
            _ => Some(left.wrapping_rem(right)),
        };
        found.map(Datum::Integer).ok_or_else(|| {
            format!("the result for {left} and {right} is out of the range of whole numbers")
        })
    }

    fn of_bits(self, left: i64, right: i64) -> Result<Datum, String> {
        let shift = u32::try_from(right).ok().filter(|bits| *bits < i64::BITS);
        let shifted = |value: Option<i64>| {
            value.ok_or_else(|| format!("a shift by {right} bits: 0 to 63 are possible"))
        };
        Ok(Datum::Integer(match self {
            Self::BitAnd => left & right,
            Self::BitOr => left | right,
            Self::BitXor => left ^ right,
            Self::ShiftLeft => shifted(shift.map(|bits| left << bits))?,
            _ => shifted(shift.map(|bits| left >> bits))?,
        }))
    }

    fn of_many(self, operands: &[Datum], any_double: bool) -> Result<Datum, String> {
        if any_double {
            let values: Vec<f64> = (operands.iter())
                .map(|one| one.double())
                .collect::<Result<_, _>>()?;
            let found = values.into_iter().reduce(|one, other| match self {
                Self::Least => one.min(other),
                _ => one.max(other),
            });
            return Ok(found.map_or(Datum::Null, Datum::Double));
        }
        let values: Vec<i64> = (operands.iter())
            .map(|one| one.integer())
            .collect::<Result<_, _>>()?;
        let found = match self {
            Self::Least => values.into_iter().min(),
            _ => values.into_iter().max(),
        };
        Ok(found.map_or(Datum::Null, Datum::Integer))
    }
}
