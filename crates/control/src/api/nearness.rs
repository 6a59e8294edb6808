//! "Did you mean": names that are a slip of the keyboard away from the one that is unknown.

/// The candidates nearest to `name`, nearest first, at most three, none that is far away.
#[must_use]
pub fn near_names<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let most = 1 + wanted.chars().count() / 4;
    let mut near: Vec<(usize, &str)> = candidates
        .into_iter()
        .map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter()
        .take(3)
        .map(|(_, candidate)| candidate)
        .collect()
}

/// A sentence that offers the nearest names, or else lists what there is.
#[must_use]
pub fn suggestion<'a>(
    name: &str,
    what: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let near = near_names(name, candidates.iter().copied());
    if !near.is_empty() {
        return format!("did you mean {}?", near.join(" or "));
    }
    match candidates.len() {
        0 => format!("there is no {what}"),
        1..=8 => format!("there is {}", candidates.join(", ")),
        count => format!("there are {count}, the first is {}", candidates[0]),
    }
}

/// Insertions, deletions, replacements and swaps of neighbours between two words.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, a) in left.iter().enumerate() {
        let mut current = vec![row + 1];
        for (column, b) in right.iter().enumerate() {
            let mut best = (previous[column] + usize::from(a != b))
                .min(previous[column + 1] + 1)
                .min(current[column] + 1);
            if row > 0 && column > 0 && *a == right[column - 1] && left[row - 1] == *b {
                best = best.min(before[column - 1] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut previous, current);
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{near_names, suggestion};

    #[test]
    fn a_slip_of_the_keyboard_finds_the_name_that_was_meant() {
        assert_eq!(near_names("dtaa", ["data", "wal", "flash"]), ["data"]);
        assert_eq!(near_names("DATA", ["data"]), ["data"]);
        assert!(near_names("backup", ["data", "wal"]).is_empty());
    }

    #[test]
    fn what_is_far_from_every_name_lists_the_few_there_are() {
        assert_eq!(
            suggestion("backup", "group", ["data", "wal"]),
            "there is data, wal"
        );
        assert_eq!(suggestion("x", "group", []), "there is no group");
    }
}
