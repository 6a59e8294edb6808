//! PostgreSQL's binary form of a decimal number, exactly: groups of four digits, the place of the
//! first group, the sign, and the number of digits after the point.

use std::error::Error;
use std::fmt::Write as _;

use bytes::{BufMut as _, BytesMut};

type Failure = Box<dyn Error + Sync + Send>;

const NEGATIVE: u16 = 0x4000;
const DIGITS_PER_GROUP: usize = 4;

/// Encodes digits as they are written, such as `-12.50`.
///
/// # Errors
/// Where that is no decimal number.
pub(super) fn encode(text: &str, out: &mut BytesMut) -> Result<(), Failure> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(format!("`{text}` is no decimal number").into());
    }
    // The point lies between two groups: zeros fill up on either side.
    let before = whole.len().next_multiple_of(DIGITS_PER_GROUP);
    let after = fraction.len().next_multiple_of(DIGITS_PER_GROUP);
    let digits = format!("{whole:0>before$}{fraction:0<after$}");
    let mut groups: Vec<i16> = Vec::with_capacity(digits.len() / DIGITS_PER_GROUP);
    for group in digits.as_bytes().chunks(DIGITS_PER_GROUP) {
        let group = group
            .iter()
            .fold(0_i16, |value, digit| value * 10 + i16::from(digit - b'0'));
        groups.push(group);
    }
    let leading = groups.iter().take_while(|group| **group == 0).count();
    groups.drain(..leading);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    let weight = i16::try_from(before / DIGITS_PER_GROUP)? - 1 - i16::try_from(leading)?;
    out.put_i16(i16::try_from(groups.len())?);
    out.put_i16(if groups.is_empty() { 0 } else { weight });
    let is_negative = text.starts_with('-') && !groups.is_empty();
    out.put_u16(if is_negative { NEGATIVE } else { 0 });
    out.put_u16(u16::try_from(fraction.len())?);
    for group in groups {
        out.put_i16(group);
    }
    Ok(())
}

/// The digits as they are written.
///
/// # Errors
/// Where it is no number, or not whole.
pub(super) fn decode(raw: &[u8]) -> Result<String, Failure> {
    let word = |index: usize| -> Result<i16, Failure> {
        let bytes = raw
            .get(2 * index..2 * index + 2)
            .ok_or("a decimal number was cut off")?;
        Ok(i16::from_be_bytes(bytes.try_into()?))
    };
    let count = usize::try_from(word(0)?)?;
    let weight = i32::from(word(1)?);
    let sign = word(2)?.cast_unsigned();
    let scale = usize::try_from(word(3)?)?;
    if sign != 0 && sign != NEGATIVE {
        return Err("a decimal number is infinite or none".into());
    }
    // The group that stands at this power of 10,000, where it is there at all.
    let group = |power: i32| -> Result<i16, Failure> {
        match usize::try_from(weight - power) {
            Ok(index) if index < count => word(4 + index),
            _ => Ok(0),
        }
    };
    let mut text = String::new();
    if sign == NEGATIVE {
        text.push('-');
    }
    write!(text, "{}", group(weight.max(0))?)?;
    for power in (0..weight).rev() {
        write!(text, "{:04}", group(power)?)?;
    }
    if scale > 0 {
        let mut fraction = String::new();
        for index in 0..scale.div_ceil(DIGITS_PER_GROUP) {
            write!(fraction, "{:04}", group(-1 - i32::try_from(index)?)?)?;
        }
        fraction.truncate(scale);
        write!(text, ".{fraction}")?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_survive_the_way_there_and_back() {
        for text in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "12345678.90",
            "-0.05",
            "0.0001",
            "0.00001",
            "100000000",
            "-300000.00",
            "1234567890123456789.123456789",
        ] {
            let mut raw = BytesMut::new();
            encode(text, &mut raw).unwrap();
            assert_eq!(decode(&raw).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".5", "1e3", "NaN", "1.2.3"] {
            assert!(encode(text, &mut BytesMut::new()).is_err(), "{text}");
        }
        assert!(decode(&[0, 1, 0, 0]).is_err());
        assert!(decode(&[0, 0, 0, 0, 0xc0, 0, 0, 0]).is_err());
    }
}
