//! Matching a path with a template's pattern.
//!
//! A pattern is components with '/' between them, as a path relative to the group's root is.
//! `**` stands for any number of components, also none; within a component `*` stands for any
//! bytes, also none, and `?` for one.

/// Whether the path of these components matches.
pub(crate) fn matches(pattern: &str, path: &[Vec<u8>]) -> bool {
    let pattern: Vec<&[u8]> = pattern.split('/').map(str::as_bytes).collect();
    // Which prefixes of the path the pattern so far can have eaten; no backtracking, so that
    // a pattern that a person wrote cannot make a creation slow.
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for part in pattern {
        let mut next = vec![false; path.len() + 1];
        if part == b"**" {
            let mut any = false;
            for (index, place) in next.iter_mut().enumerate() {
                any |= reached[index];
                *place = any;
            }
        } else {
            for (index, name) in path.iter().enumerate() {
                next[index + 1] = reached[index] && matches_name(part, name);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

/// Whether one component matches.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last `*`, and where the name goes on if it takes one byte more.
    let mut star: Option<(usize, usize)> = None;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    from = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    fn check(pattern: &str, path: &str) -> bool {
        let path: Vec<Vec<u8>> = path
            .split('/')
            .map(|name| name.as_bytes().to_vec())
            .collect();
        matches(pattern, &path)
    }

    #[test]
    fn two_stars_stand_for_any_depth_also_none() {
        for path in [
            "pg_wal/1",
            "16/main/pg_wal/1",
            "a/pg_wal/archive_status/1.done",
        ] {
            assert!(check("**/pg_wal/**", path), "{path}");
        }
        for path in ["base/1", "a/pg_walx/1", "a/xpg_wal/1"] {
            assert!(!check("**/pg_wal/**", path), "{path}");
        }
        assert!(check("**", "any/thing"));
    }

    #[test]
    fn one_star_stays_within_a_component_and_tries_every_length() {
        assert!(check("**/*-wal", "x/test.db-wal"));
        assert!(check("*a*b", "aaxbab"));
        assert!(!check("*a*b", "aaxba"));
        assert!(!check("*-wal", "x/test.db-wal"));
        assert!(check("ib_logfile?", "ib_logfile0"));
        assert!(!check("ib_logfile?", "ib_logfile"));
    }
}
