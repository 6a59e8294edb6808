//! Numbers of bytes as a person reads them, in listings and in messages alike.

/// A number of bytes for a person: three figures and a unit.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three figures are shown")]
    let mut value = bytes as f64;
    let mut unit = "";
    for next in ["K", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{unit}")
}

/// The same for one that may be negative.
#[must_use]
pub fn signed_size_text(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", size_text(bytes.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::{signed_size_text, size_text};

    #[test]
    fn sizes_have_three_figures_and_a_binary_unit() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (4096, "4K"),
            (1 << 20, "1M"),
            (1_610_612_736, "1.5G"),
            (1023 << 20, "1G"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
        assert_eq!(signed_size_text(-(5 << 30)), "-5G");
    }
}
