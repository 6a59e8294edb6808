//! Every structure on disks with the newest version that this program reads and writes.

use crate::{
    CHECKSUM_BLOCK_VERSION, DIRTY_RECORD_VERSION, DISK_RECORD_VERSION, EVENT_RECORD_VERSION,
    EXTENT_ROW_VERSION, FILE_RECORD_VERSION, INODE_VERSION, JOURNAL_VERSION, LABEL_VERSION,
    NAME_RECORD_VERSION, OPENER_VERSION, STATE_VERSION,
};

macro_rules! formats {
    ($($name:literal = $version:ident),+ $(,)?) => {
        /// The structures by name, each with its newest version: what one program must know of to
        /// follow another. A test holds that none is missing.
        pub const FORMATS: &[(&str, u64)] = &[$(($name, $version as u64)),+];

        #[cfg(test)]
        const LISTED: &[&str] = &[$(stringify!($version)),+];
    };
}

formats! {
    "label" = LABEL_VERSION,
    "opener" = OPENER_VERSION,
    "group_state" = STATE_VERSION,
    "journal" = JOURNAL_VERSION,
    "checksum_block" = CHECKSUM_BLOCK_VERSION,
    "extent_row" = EXTENT_ROW_VERSION,
    "inode" = INODE_VERSION,
    "name_record" = NAME_RECORD_VERSION,
    "file_record" = FILE_RECORD_VERSION,
    "disk_record" = DISK_RECORD_VERSION,
    "event_record" = EVENT_RECORD_VERSION,
    "dirty_record" = DIRTY_RECORD_VERSION,
}

#[cfg(test)]
mod tests {
    use super::LISTED;

    #[test]
    fn every_version_of_a_structure_in_this_crate_is_in_the_list() {
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(sources).unwrap() {
            let path = entry.unwrap().path();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for line in text.lines().filter(|_| is_source) {
                let name = line
                    .strip_prefix("pub const ")
                    .and_then(|rest| rest.split(':').next());
                found.extend(
                    name.filter(|it| it.ends_with("_VERSION"))
                        .map(str::to_owned),
                );
            }
        }
        assert!(found.len() >= LISTED.len(), "{found:?}");
        for name in found {
            assert!(LISTED.contains(&name.as_str()), "{name} is in no list");
        }
    }
}
