//! Unchanged programs on a real mount, cached and direct: what they store is what they find.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use support::{has, in_both_modes, shell};

/// Makes a tree with everything that a copy must keep: links of both kinds, holes, times,
/// owners, permissions, extended attributes, odd names, a fifo.
const TREE: &str = r"
mkdir -p tree/a/b tree/empty
printf 'one' > tree/a/one; ln tree/a/one tree/a/b/hard; ln -s ../one tree/a/b/soft
truncate -s 20000000 tree/holes; printf 'end' >> tree/holes
dd if=/dev/urandom of=tree/random bs=1000 count=3000 status=none
mkfifo tree/fifo; printf x > 'tree/ odd  name '; printf y > $'tree/new\nline'
chmod 4711 tree/random; chown 12:34 tree/a; chmod 2770 tree/a; chmod 1777 tree/empty
touch -d '2001-02-03 04:05:06.123456789' tree/a/one; touch -d '1999-01-01' tree/a/b
command -v setfattr > /dev/null && setfattr -n user.note -v kept tree/random
for n in $(seq 300); do printf '%s' $n > tree/empty/$n; done
true
";

/// A tree's names, kinds, permissions, owners, times, links and bytes, as text.
const LIST: &str = r"
list() { ( cd $1; find . -printf '%P %y %m %U %G %T@ %n %l %s\n' | grep -v ' d ' | sort
  find . -type d -printf '%P %m %U %G\n' | sort
  find . -type f -print0 | sort -z | xargs -0 sha256sum ); }
";

#[test]
fn cp_keeps_a_whole_tree_in_and_out() {
    in_both_modes(|mounted| {
        let root = mounted.root.display();
        shell(
            &mounted.outside(),
            &format!(
                "{TREE}{LIST}
                cp -a tree {root}/in; cp -a {root}/in {root}/again; cp -a {root}/again out
                diff <(list tree) <(list {root}/in); diff <(list tree) <(list out)
                test $(stat -c %b {root}/in/holes) -lt 8000
                rm -r {root}/in {root}/again; test -z \"$(ls -A {root})\"; rm -r tree out"
            ),
        );
    });
}

#[test]
fn tar_makes_the_trip_out_and_back() {
    in_both_modes(|mounted| {
        let root = mounted.root.display();
        shell(
            &mounted.outside(),
            &format!(
                "{TREE}{LIST}
                tar --format=posix -cf {root}/tree.tar tree; mkdir {root}/x; tar -xpf {root}/tree.tar -C {root}/x
                diff <(list tree) <(list {root}/x/tree)
                tar -C {root}/x --format=posix -cSf back.tar tree; mkdir y; tar -xpf back.tar -C y
                diff <(list tree) <(list y/tree); rm -r tree y back.tar"
            ),
        );
    });
}

#[test]
fn rsync_finds_nothing_to_do_the_second_time() {
    if !has("rsync") {
        return;
    }
    in_both_modes(|mounted| {
        let root = mounted.root.display();
        shell(
            &mounted.outside(),
            &format!(
                "{TREE}{LIST}
                rsync -aHAXS --modify-window=-1 tree/ {root}/tree/; diff <(list tree) <(list {root}/tree)
                test -z \"$(rsync -aHAXi --modify-window=-1 --checksum tree/ {root}/tree/)\"; rm -r tree"
            ),
        );
    });
}

#[test]
fn git_keeps_a_sound_repository() {
    if !has("git") {
        return;
    }
    in_both_modes(|mounted| {
        shell(
            &mounted.root,
            "git init -q repository; cd repository
            for n in $(seq 200); do printf 'line %s\n' $n > file$n; done
            git add .; git commit -qm first
            for n in $(seq 100); do printf 'more %s\n' $n >> file$n; done
            git mv file200 moved; git commit -qam second
            git checkout -q -b side HEAD~1; printf s > side; git add side; git commit -qm side
            git merge -q -m both master || git merge -q -m both main
            git gc -q; git fsck --strict; test -z \"$(git status --porcelain)\"
            cd ..; git clone -q repository copy; git -C copy fsck --strict
            diff -r -x .git repository copy",
        );
    });
}

#[test]
fn sqlite_keeps_its_database_sound_with_a_rollback_journal_and_with_wal() {
    if !has("sqlite3") {
        return;
    }
    in_both_modes(|mounted| {
        for mode in ["delete", "wal"] {
            let found = shell(
                &mounted.root,
                &format!(
                    "sqlite3 {mode}.db 'pragma journal_mode={mode}; pragma mmap_size=10000000;
                    create table t (id integer primary key, text text);
                    with recursive n(i) as (select 1 union all select i+1 from n where i<5000)
                    insert into t select i, hex(randomblob(50)) from n;
                    update t set text = text || id where id % 3 = 0;
                    delete from t where id % 5 = 0; vacuum;' > /dev/null
                    for n in 1 2 3 4; do for m in $(seq 10); do
                      sqlite3 -cmd '.timeout 20000' {mode}.db \"insert into t (text) values ('$n-$m')\"
                    done & done; wait
                    sqlite3 {mode}.db 'pragma integrity_check; select count(*) from t'"
                ),
            );
            assert_eq!(found, "ok\n4040\n", "journal_mode={mode}");
        }
    });
}

#[test]
fn fio_reads_what_it_wrote_by_every_way_in() {
    if !has("fio") {
        return;
    }
    in_both_modes(|mounted| {
        for way in [
            "--ioengine=psync --direct=0 --bs=4k-64k --bs_unaligned",
            "--ioengine=psync --direct=1 --bs=8k",
            "--ioengine=libaio --direct=1 --iodepth=16 --bs=4k",
            "--ioengine=libaio --direct=1 --iodepth=8 --bs=1m",
            "--ioengine=libaio --direct=1 --iodepth=16 --bs=4k-1m --blockalign=4k \
             --serialize_overlap=1",
            "--ioengine=mmap --bs=4k-32k",
            "--ioengine=psync --direct=0 --bs=8k --fdatasync=4",
        ] {
            shell(
                &mounted.root,
                &format!(
                    "fio --name=verify --filename=data --size=8m --rw=randwrite {way} \
                     --verify=crc32c --verify_fatal=1 --do_verify=1 --output=/dev/null; rm data"
                ),
            );
        }
    });
}

#[test]
fn memory_maps_share_or_keep_to_themselves() {
    if !has("python3") {
        return;
    }
    in_both_modes(|mounted| {
        shell(
            &mounted.root,
            r#"cat > maps.py <<'END'
import mmap, os
with open("map", "wb") as f: f.write(b"a" * 20000)
f = open("map", "r+b")
shared = mmap.mmap(f.fileno(), 20000)
shared[5000:5005] = b"hello"
shared.flush()
assert os.pread(f.fileno(), 5, 5000) == b"hello"
os.pwrite(f.fileno(), b"WORLD", 9000)
assert shared[9000:9005] == b"WORLD"
private = mmap.mmap(f.fileno(), 20000, flags=mmap.MAP_PRIVATE)
private[0:3] = b"own"
assert os.pread(f.fileno(), 3, 0) == b"aaa" and shared[0:3] == b"aaa"
child = os.fork()
if child == 0:
    shared[100:105] = b"child"
    os._exit(0)
os.waitpid(child, 0)
assert shared[100:105] == b"child"
shared.close(); private.close(); f.close()
data = open("map", "rb").read()
assert data[100:105] == b"child" and data[5000:5005] == b"hello" and len(data) == 20000
END
python3 maps.py"#,
        );
    });
}

#[test]
fn locks_of_both_kinds_hold_between_processes() {
    if !has("python3") {
        return;
    }
    in_both_modes(|mounted| {
        shell(
            &mounted.root,
            r#"cat > locks.py <<'END'
import fcntl, os, subprocess, sys
open("lock", "wb").write(b"x" * 100)
f = open("lock", "r+b")
def other(code):
    return subprocess.run([sys.executable, "-c", "import fcntl\nf = open('lock', 'r+b')\n" + code],
        stderr=subprocess.DEVNULL).returncode
fcntl.lockf(f, fcntl.LOCK_EX, 10, 20)
assert other("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 25)") != 0
assert other("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 40)") == 0
fcntl.lockf(f, fcntl.LOCK_UN)
assert other("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 25)") == 0
fcntl.flock(f, fcntl.LOCK_SH)
assert other("fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)") == 0
assert other("fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)") != 0
fcntl.flock(f, fcntl.LOCK_UN)
assert other("fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)") == 0
END
python3 locks.py"#,
        );
    });
}

#[test]
fn other_users_are_held_to_permissions_and_their_writes_clear_set_user_id() {
    if !has("setpriv") {
        return;
    }
    in_both_modes(|mounted| {
        shell(
            &mounted.root,
            r#"as() { id=$1; shift; setpriv --reuid $id --regid $id --clear-groups "$@"; }
            refused() { if "$@" 2> /dev/null; then echo "allowed: $*"; exit 1; fi; }
            chmod 755 .; printf secret > private; chmod 600 private
            refused as 1001 cat private
            refused as 1001 touch new
            refused as 1001 chmod 777 private
            mkdir shared; chmod 1777 shared
            as 1001 sh -c 'umask 022; printf mine > shared/one; mkdir shared/sub'
            test "$(stat -c '%u %g %a' shared/one)" = '1001 1001 644'
            test "$(stat -c '%u %a' shared/sub)" = '1001 755'
            refused as 1002 rm -f shared/one
            refused as 1002 mv shared/one shared/two
            refused as 1002 sh -c 'echo x >> shared/one'
            as 1002 cat shared/one
            refused as 1001 chown 1002 shared/one
            printf 'echo' > program; chmod 6777 program
            as 1001 sh -c 'printf x >> program'; test "$(stat -c %a program)" = 777
            chmod 6777 program; as 1001 sh -c ': > program'; test "$(stat -c %a program)" = 777
            chmod 6777 program; as 1001 truncate -s 1 program
            test "$(stat -c %a program)" = 777
            chmod 6777 program; printf y >> program; test "$(stat -c %a program)" = 6777
            as 1001 rm shared/one"#,
        );
    });
}

#[test]
fn set_user_id_stays_where_root_reserves_or_copies_and_goes_where_others_do() {
    if !has("setpriv") || !has("python3") {
        return;
    }
    in_both_modes(|mounted| {
        let said = |directory: &std::path::Path| {
            shell(
                directory,
                r#"printf '%08192d' 0 > source
                again() { rm -f program; printf x > program; chmod 6777 program; }
                cat > reserve.py <<'END'
import os, sys
if sys.argv[1:]: os.setgroups([]); os.setgid(1001); os.setuid(1001)
f = os.open("program", os.O_RDWR)
os.posix_fallocate(f, 0, 8192)
END
                cat > copy.py <<'END'
import os, sys
f = os.open("source", os.O_RDONLY)
if sys.argv[1:]: os.setgroups([]); os.setgid(1001); os.setuid(1001)
t = os.open("program", os.O_RDWR)
assert os.copy_file_range(f, t, 4096) == 4096
END
                chmod 755 .
                for what in reserve copy; do
                    again; python3 $what.py; stat -c "$what root %a" program
                    again; setpriv --bounding-set -fsetid --inh-caps -fsetid python3 $what.py
                    stat -c "$what root without the capability %a" program
                    again; python3 $what.py other; stat -c "$what other %a" program
                done"#,
            )
        };
        // The file system beside it is the judge.
        assert_eq!(said(&mounted.root), said(&mounted.outside()));
        assert!(said(&mounted.root).contains("reserve root 6777"));
    });
}

#[test]
fn the_places_of_a_file_on_the_disks_are_not_told_to_programs() {
    if !has("filefrag") {
        return;
    }
    in_both_modes(|mounted| {
        std::fs::write(mounted.root.join("file"), vec![1; 100_000]).unwrap();
        let said = shell(&mounted.root, "filefrag -v file 2>&1 || true");
        let is_refused = said.to_lowercase().contains("unsupported");
        assert!(is_refused || said.contains(" 0 extents found"), "{said}");
        // Who copies holes by SEEK_HOLE needs it not.
        shell(&mounted.root, "cp --sparse=auto file copy; cmp file copy");
    });
}
