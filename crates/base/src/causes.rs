//! What an error came of, in words.

use std::error::Error;

/// What an error that says `said` came of, the nearest first and each level by itself, as `tell` tells
/// it. `next` is its source. What a level says that the one above has said already is left out.
pub fn causes(
    said: &str,
    mut next: Option<&(dyn Error + 'static)>,
    tell: impl Fn(String) -> String,
) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    while let Some(cause) = next {
        let words = tell(cause.to_string());
        if !causes.last().map_or(said, String::as_str).contains(&words) {
            causes.push(words);
        }
        next = cause.source();
    }
    causes
}
