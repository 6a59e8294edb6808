//! The distributions of pgbench (`getrand` and its like in `pgbench.c`), over whole numbers from `low`
//! to `high`, both included.

use std::f64::consts::TAU;

use super::datum::Datum;

/// Below this too many draws fall outside and are drawn again.
const GAUSSIAN_AT_LEAST: f64 = 2.0;
/// The iteration behind it is as slow outside.
const ZIPFIAN: std::ops::RangeInclusive<f64> = 1.001..=1000.0;

fn checked(low: i64, high: i64, name: &str) -> Result<(), String> {
    if low > high {
        return Err(format!("`{name}` has an empty range, {low} to {high}"));
    }
    if high
        .checked_sub(low)
        .and_then(|span| span.checked_add(1))
        .is_none()
    {
        return Err(format!(
            "the range of `{name}` is too large, {low} to {high}"
        ));
    }
    Ok(())
}

/// `low` and a share of the range, which is from 0 to below 1.
fn at(low: i64, high: i64, share: f64) -> Result<i64, String> {
    let span = Datum::Integer(high - low + 1).double()?;
    let offset = Datum::Double((span * share).floor()).integer()?;
    // A share next to one may round up to the whole range.
    Ok(low + offset.clamp(0, high - low))
}

/// Each as likely as the other.
pub fn uniform(low: i64, high: i64, random: &mut fastrand::Rng) -> Result<i64, String> {
    checked(low, high, "random")?;
    Ok(random.i64(low..=high))
}

/// The low ones more often, the more the larger the parameter.
pub fn exponential(
    low: i64,
    high: i64,
    parameter: f64,
    random: &mut fastrand::Rng,
) -> Result<i64, String> {
    checked(low, high, "random_exponential")?;
    if parameter.is_nan() || parameter <= 0.0 {
        return Err("the parameter of `random_exponential` is greater than 0".to_owned());
    }
    let cut = (-parameter).exp();
    let uniform = 1.0 - random.f64();
    at(low, high, -(cut + (1.0 - cut) * uniform).ln() / parameter)
}

/// Those in the middle more often, the more the larger the parameter.
pub fn gaussian(
    low: i64,
    high: i64,
    parameter: f64,
    random: &mut fastrand::Rng,
) -> Result<i64, String> {
    checked(low, high, "random_gaussian")?;
    if parameter.is_nan() || parameter < GAUSSIAN_AT_LEAST {
        return Err(format!(
            "the parameter of `random_gaussian` is at least {GAUSSIAN_AT_LEAST}"
        ));
    }
    loop {
        // By Box and Muller; neither logarithm nor angle is of zero.
        let (one, other) = (1.0 - random.f64(), 1.0 - random.f64());
        let deviation = (-2.0 * one.ln()).sqrt() * (TAU * other).sin();
        if (-parameter..parameter).contains(&deviation) {
            return at(low, high, (deviation + parameter) / (parameter * 2.0));
        }
    }
}

/// The first most often, the k-th by the power of k: by rejection, after Devroye, "Non-Uniform
/// Random Variate Generation", chapter X.6.
pub fn zipfian(
    low: i64,
    high: i64,
    parameter: f64,
    random: &mut fastrand::Rng,
) -> Result<i64, String> {
    checked(low, high, "random_zipfian")?;
    if !ZIPFIAN.contains(&parameter) {
        return Err(format!(
            "the parameter of `random_zipfian` lies between {} and {}",
            ZIPFIAN.start(),
            ZIPFIAN.end()
        ));
    }
    let count = Datum::Integer(high - low + 1).double()?;
    if count <= 1.0 {
        return Ok(low);
    }
    let power = parameter - 1.0;
    let base = 2.0_f64.powf(power);
    loop {
        let (one, other) = (random.f64(), random.f64());
        let x = one.powf(-1.0 / power).floor();
        let t = (1.0 + 1.0 / x).powf(power);
        if other * x * (t - 1.0) / (base - 1.0) <= t / base && x <= count {
            return Ok(low + Datum::Double(x).integer()? - 1);
        }
    }
}

/// FNV-1a over the eight bytes.
pub fn hash_fnv1a(value: i64, seed: i64) -> i64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed.cast_unsigned();
    let digest = value.to_le_bytes().into_iter().fold(start, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    digest.cast_signed()
}

/// Murmur2 over the eight bytes.
pub fn hash_murmur2(value: i64, seed: i64) -> i64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const TIMES_EIGHT: u64 = 0x3525_3c9a_de8f_4ca8;
    const ROTATION: u32 = 47;
    let mut part = value.cast_unsigned().wrapping_mul(MULTIPLIER);
    part ^= part >> ROTATION;
    part = part.wrapping_mul(MULTIPLIER);
    let mut result = seed.cast_unsigned() ^ TIMES_EIGHT;
    result = (result ^ part).wrapping_mul(MULTIPLIER);
    result ^= result >> ROTATION;
    result = result.wrapping_mul(MULTIPLIER);
    result ^= result >> ROTATION;
    result.cast_signed()
}
