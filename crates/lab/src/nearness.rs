//! The names nearest to one that does not exist: what the writer of an experiment probably meant.

/// The names of `known` that are few edits away from `word`, nearest first, at most three.
#[must_use]
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let limit = (word.chars().count() / 2).clamp(2, 5);
    let mut near: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|(edits, name)| *edits <= limit || name.starts_with(word))
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// The end of a message about an unknown name.
#[must_use]
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(word, known);
    if near.is_empty() {
        String::new()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    }
}

/// Insertions, removals and replacements from one to the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other_letter) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other_letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_what_was_meant() {
        assert_eq!(nearest("etx4", ["ext3", "ext4", "xfs"])[0], "ext4");
        assert_eq!(
            nearest("spindle-norml", ["spindle-normal", "raw"]),
            ["spindle-normal"]
        );
        assert!(nearest("something-else", ["ext4", "xfs"]).is_empty());
    }
}
