//! Templates at work: which layout new files get, by path at any depth.

use std::ffi::OsStr;

use spindle_base::{Redundancy, Striping};
use spindle_fs::{Caching, RenameMode, Template, TemplateCaching};
use spindle_group::Layout;

use crate::fixture::{Fixture, OWNER, ROOT, class, name};

fn layout(redundancy: Redundancy, striping: Striping) -> Layout {
    Layout {
        redundancy,
        striping,
    }
}

#[test]
fn a_cluster_at_any_depth_gets_fine_logs_and_external_temporary_files() {
    let mut fixture = Fixture::new("postgresql", Redundancy::Normal);
    fixture
        .fs()
        .make_path(
            OsStr::new("/data/16/main/pg_wal"),
            0o700,
            OWNER,
            fixture.now(),
        )
        .unwrap();
    fixture
        .fs()
        .make_path(
            OsStr::new("/data/16/main/base/pgsql_tmp"),
            0o700,
            OWNER,
            fixture.now(),
        )
        .unwrap();
    // The names of directories are not in memory after this.
    fixture.reopen();
    let normal = Redundancy::Normal;
    for (directory, file, want) in [
        (
            "data/16/main/pg_wal",
            "0001",
            layout(normal, Striping::Fine),
        ),
        (
            "data/16/main/base/pgsql_tmp",
            "pgsql_tmp1.0",
            layout(Redundancy::External, Striping::Coarse),
        ),
        (
            "data/16/main",
            "PG_VERSION",
            layout(normal, Striping::Coarse),
        ),
    ] {
        let parent = fixture.find(directory).id;
        let told = fixture.fs().layout_for(parent, name(file)).unwrap();
        let id = fixture.make(parent, file).id();
        let file = fixture.fs().group().file(id).unwrap();
        assert_eq!(fixture.fs().group().layout(&file), want);
        assert_eq!(told, want);
    }
}

#[test]
fn a_directory_known_by_its_id_alone_finds_its_path() {
    let mut fixture = Fixture::new("postgresql", Redundancy::External);
    let id = fixture
        .fs()
        .make_path(OsStr::new("a/pg_wal/b"), 0o700, OWNER, fixture.now())
        .unwrap()
        .id;
    fixture.reopen();
    let found = fixture.fs().layout_for(id, name("x")).unwrap();
    assert_eq!(found, layout(Redundancy::External, Striping::Fine));
}

#[test]
fn a_renamed_file_keeps_its_layout() {
    let fixture = Fixture::new("sqlite", Redundancy::Normal);
    let id = fixture.make(ROOT, "test.db-journal").id();
    fixture
        .fs()
        .rename(
            ROOT,
            name("test.db-journal"),
            ROOT,
            name("test.db"),
            RenameMode::Replace,
            fixture.now(),
        )
        .unwrap();
    let file = fixture.fs().group().file(id).unwrap();
    assert_eq!(fixture.fs().group().layout(&file).striping, Striping::Fine);
}

#[test]
fn templates_can_be_changed_and_stay_changed() {
    let mut fixture = Fixture::plain();
    let mut templates = fixture.fs().templates();
    templates.insert(
        0,
        Template {
            name: "raw".to_owned(),
            pattern: "**/*.raw".to_owned(),
            redundancy: Some(Redundancy::External),
            striping: Striping::Fine,
            caching: TemplateCaching::Direct,
        },
    );
    fixture.fs().set_templates(templates.clone()).unwrap();
    fixture.reopen();
    assert_eq!(fixture.fs().templates(), templates);
    let raw = fixture.make(ROOT, "x.raw");
    let other = fixture.make(ROOT, "x.txt");
    let fs = fixture.fs();
    assert_eq!(fs.caching(raw.id()).unwrap(), Caching::Direct);
    assert_eq!(fs.caching(other.id()).unwrap(), Caching::Cached);
    assert_eq!(
        fs.layout_for(ROOT, name("y.raw")).unwrap(),
        layout(Redundancy::External, Striping::Fine)
    );
    templates[0].name = "a\tb".to_owned();
    assert_eq!(class(&fs.set_templates(templates)), "invalid");
}
