//! A keeper without a group: a shell is what it started as its daemon.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::set_child_subreaper;
use spindle_base::{ErrorClass, GroupName};
use tokio::time::{Instant, timeout};

use super::child::{Child, Program, Signals, WorkingDirectory};
use super::lingering::Lingering;
use super::{Keeper, LOOK_INTERVAL, RETRY_INTERVAL};
use crate::machine::settings::Settings;

/// Set in the process of one test.
const ALONE: &str = "SPINDLE_TEST_ALONE";
/// Longer than whatever a test waits for, on the clock that it reads.
const MOST: Duration = Duration::from_secs(20);

/// Does the test in a process of its own, with a runtime directory of its own: a keeper takes the end of
/// any child that is not its daemon's, and other tests wait for theirs.
fn alone(name: &str, test: impl AsyncFnOnce(Keeper, Signals)) {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        return runtime.block_on(async {
            let settings = Settings::gather(&[]).unwrap();
            let group = GroupName::new("data").unwrap();
            let keeper = Keeper::new(&settings, &group, Vec::new(), None).unwrap();
            test(keeper, Signals::catch().unwrap()).await;
        });
    }
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let directory = format!("spindle-keeper-{}-{number}", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    std::fs::create_dir(&directory).unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("serving::keeper::tests::{name}")])
        .env(ALONE, "")
        .env("SPINDLE_RUNTIME_DIR", &directory)
        .output();
    std::fs::remove_dir_all(&directory).unwrap();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(said.contains("1 passed"), "{said}");
}

fn shell() -> Program {
    Program::from_command(Path::new("/bin/sh"), None, String::new()).unwrap()
}

/// A shell as a daemon; it sleeps for [`MOST`] where the script says `hang`.
fn daemon(script: &str) -> Child {
    let script = script.replace("hang", &format!("exec sleep {}", MOST.as_secs()));
    let arguments = ["-c".into(), script.into()];
    let directory = WorkingDirectory::own(None);
    Child::start(&shell(), &arguments, &directory, None, false).unwrap()
}

/// A daemon that was killed and that the kernel has not let go of. With `has_let_go` its table of
/// descriptors is empty.
fn killed(has_let_go: bool) -> Lingering {
    let script = if has_let_go {
        "hang < /dev/null"
    } else {
        "hang"
    };
    let child = daemon(script);
    wait_for("it does not let go", || child.has_let_go() == has_let_go);
    Lingering {
        child,
        was_killed: true,
    }
}

/// On the true clock.
#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < MOST, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Says that to the keeper, which has to hear it.
fn tell(keeper: &Keeper, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(&keeper.socket).unwrap();
    writeln!(stream, "{request:?}").unwrap();
    stream
}

#[test]
fn a_group_that_needs_a_disk_is_tried_again_each_half_minute() {
    let name = "a_group_that_needs_a_disk_is_tried_again_each_half_minute";
    alone(name, async |mut keeper, mut signals| {
        keeper.lingering.push(killed(true));
        tokio::time::pause();
        for _ in 0..3 {
            keeper.needs_former = true;
            let begun = Instant::now();
            let next = timeout(10 * RETRY_INTERVAL, keeper.wait_for_next(&mut signals)).await;
            let waited = begun.elapsed();
            assert_eq!(next, Ok(true), "nothing is tried");
            assert!(waited >= RETRY_INTERVAL, "tried after {waited:?}");
            assert!(waited < RETRY_INTERVAL + Duration::from_secs(1));
        }
        keeper.lingering[0].child.kill();
    });
}

#[test]
fn a_group_that_needs_a_disk_is_tried_at_once_when_somebody_says_so() {
    let name = "a_group_that_needs_a_disk_is_tried_at_once_when_somebody_says_so";
    alone(name, async |mut keeper, mut signals| {
        keeper.lingering.push(killed(true));
        keeper.needs_former = true;
        let _said = tell(&keeper, "go_on");
        let next = timeout(MOST, keeper.wait_for_next(&mut signals)).await;
        keeper.lingering[0].child.kill();
        assert_eq!(next, Ok(true), "nothing is tried");
    });
}

#[test]
fn no_daemon_follows_one_that_holds_all_disks_however_long_it_takes_and_whoever_asks() {
    let name = "no_daemon_follows_one_that_holds_all_disks_however_long_it_takes_and_whoever_asks";
    alone(name, async |mut keeper, mut signals| {
        keeper.lingering.push(killed(false));
        keeper.needs_former = true;
        let _said = tell(&keeper, "go_on");
        let asked = timeout(2 * LOOK_INTERVAL, keeper.wait_for_next(&mut signals)).await;
        asked.expect_err("it was asked for");
        tokio::time::pause();
        let waited = timeout(10 * RETRY_INTERVAL, keeper.wait_for_next(&mut signals)).await;
        waited.expect_err("it was tried again");
        keeper.lingering[0].child.kill();
    });
}

/// The children of this process, by number and whether they have ended.
fn children() -> Vec<(u32, bool)> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let children: String = threads
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap())
        .collect();
    let mut children: Vec<(u32, bool)> = (children.split_whitespace())
        .map(|child| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
            (child.parse().unwrap(), stat.contains(") Z "))
        })
        .collect();
    children.sort_unstable();
    children
}

#[test]
fn what_a_dead_daemon_had_started_is_taken_away_and_the_end_of_no_daemon() {
    let name = "what_a_dead_daemon_had_started_is_taken_away_and_the_end_of_no_daemon";
    alone(name, async |mut keeper, _| {
        // As the first process of a container, to which comes what has lost its parent.
        set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        let mut dead = daemon("sleep 0.2 & sleep 0.2 & exit 0");
        wait_for("the daemon does not end", || dead.is_gone());
        let mut serving = daemon("hang");
        keeper.daemon_id = Some(serving.id());
        keeper.lingering.push(killed(true));
        wait_for("strangers have ended", || {
            children()
                .iter()
                .filter(|(_, has_ended)| *has_ended)
                .count()
                == 2
        });
        keeper.forget_gone();
        let mut own = [serving.id(), keeper.lingering[0].child.id()];
        own.sort_unstable();
        assert_eq!(children(), own.map(|id| (id, false)), "a stranger is left");

        serving.kill();
        wait_for("it does not end", || {
            children().contains(&(serving.id(), true))
        });
        keeper.forget_gone();
        let status = serving.wait(MOST).await.unwrap().unwrap();
        assert_eq!(status.to_string(), "signal 9");
        keeper.lingering[0].child.kill();
    });
}

/// How many daemons a keeper starts that is to end, and has answered programs, where each of them ends
/// so.
async fn last_daemons_count(mut keeper: Keeper, script: &str) -> u64 {
    keeper.program = shell();
    keeper.arguments = vec!["-c".into(), script.into()];
    keeper.group_uuid = Some(format!("tests-{}", std::process::id()));
    keeper.was_ready = true;
    keeper.stopping = true;
    // The first one has the output of this process.
    keeper.generation = 1;
    tokio::time::pause();
    let code = keeper.run().await.unwrap();
    assert_eq!(code, ErrorClass::Environment.exit_code());
    keeper.generation - 1
}

#[test]
fn a_last_daemon_that_dies_without_a_word_is_followed_by_others_and_not_for_ever() {
    let name = "a_last_daemon_that_dies_without_a_word_is_followed_by_others_and_not_for_ever";
    alone(name, async |keeper, _| {
        assert_eq!(last_daemons_count(keeper, "kill -9 $$").await, 8);
    });
}

#[test]
fn a_last_daemon_that_refuses_is_followed_by_none() {
    let name = "a_last_daemon_that_refuses_is_followed_by_none";
    alone(name, async |keeper, _| {
        let script = r#"printf '{"not_closed":{"why":"no disks"}}' >&0; exit 3"#;
        assert_eq!(last_daemons_count(keeper, script).await, 1);
    });
}

#[test]
fn a_last_daemon_for_which_the_machine_had_no_thread_is_followed_by_others() {
    let name = "a_last_daemon_for_which_the_machine_had_no_thread_is_followed_by_others";
    alone(name, async |keeper, _| {
        let script = r#"printf '{"not_closed":{"why":"no thread","may_pass":true}}' >&0; exit 3"#;
        assert_eq!(last_daemons_count(keeper, script).await, 8);
    });
}
