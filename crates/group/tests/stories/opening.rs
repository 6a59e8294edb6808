//! What becomes of an opening in whose midst another host comes to the disks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use spindle_base::Uuid;
use spindle_device::{DiskSlot, Disks, Request, SimulatedDisks, Work};
use spindle_format::Origin;
use spindle_group::{
    Attended, Group, GroupError, GroupErrorKind, Membership, Moment, Opener, Pulse, Watch,
};

use crate::scene::{NORMAL, Scene, create, opener, pattern};

/// What happens in the midst of an opening.
type Happening = Box<dyn Fn() + Send + Sync>;

/// Disks at whose batch of some number, counted from the claim on, something happens.
struct Interrupted {
    disks: Arc<SimulatedDisks>,
    happening: Happening,
    /// Batches until then; 0 where it has happened, or the group is not claimed yet.
    left_count: AtomicU64,
    has_happened: AtomicBool,
    /// Writes that were sent since.
    writes_count: AtomicU64,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

impl Disks for Interrupted {
    fn run(&self, batch: &mut [Request<'_>]) {
        if self.has_happened.load(Ordering::SeqCst) {
            let is_write =
                |request: &&Request<'_>| !matches!(request.work, Work::Read(_) | Work::Flush);
            let count = batch.iter().filter(is_write).count() as u64;
            self.writes_count.fetch_add(count, Ordering::SeqCst);
        }
        self.disks.run(batch);
        let count_down = |left: u64| left.checked_sub(1);
        let left = (self.left_count).fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down);
        if left == Ok(1) {
            // On a thread of its own: this one may hold locks of the group.
            std::thread::scope(|scope| scope.spawn(|| (self.happening)()).join().unwrap());
            self.has_happened.store(true, Ordering::SeqCst);
        }
    }

    fn size_bytes(&self, slot: DiskSlot) -> u64 {
        self.disks.size_bytes(slot)
    }

    fn path(&self, slot: DiskSlot) -> String {
        self.disks.path(slot)
    }

    fn in_flight_count(&self, slot: DiskSlot) -> u32 {
        self.disks.in_flight_count(slot)
    }

    fn appearance(&self, slot: DiskSlot) -> Option<u64> {
        self.disks.appearance(slot)
    }
}

const SLOTS: [DiskSlot; 2] = [DiskSlot(0), DiskSlot(1)];

/// A group that a power cut met while it was written to.
fn cut_off() -> Scene {
    let scene = Scene::mirrored(1);
    let group = scene.open();
    let file = create(&group, 10, NORMAL);
    group.write(&file, 0, &pattern(1, 1 << 20)).unwrap();
    group.sync().unwrap();
    group.write(&file, 0, &pattern(2, 1 << 20)).unwrap();
    std::mem::forget((group, file));
    scene.crash();
    scene
}

fn on_host(name: &str, boot: u8) -> Opener {
    Opener {
        host: name.to_owned(),
        boot: Uuid([boot; 16]),
        ..opener()
    }
}

/// As another host opens it, or another process.
fn look_in(scene: &Scene, opener: &Opener) -> Result<Membership, GroupError> {
    let disks = Arc::clone(&scene.disks) as Arc<dyn Disks>;
    Membership::open(disks, &SLOTS, &scene.name, opener, &|_| false)
}

/// A clock that is set.
fn watch(milliseconds: &Arc<AtomicU64>) -> Watch {
    let milliseconds = Arc::clone(milliseconds);
    Watch {
        clock: Box::new(move || {
            let now_ms = milliseconds.load(Ordering::SeqCst);
            Moment {
                awake_ms: now_ms,
                booted_ms: now_ms,
            }
        }),
        apart: Box::new(|work| {
            std::thread::spawn(work);
            Ok(())
        }),
    }
}

/// Opens the group; `happening` comes at that batch after the claim.
fn open_interrupted(
    scene: &Scene,
    opener: &Opener,
    milliseconds: &Arc<AtomicU64>,
    pulse: &Mutex<Option<Pulse>>,
    at_batch: u64,
    happening: Happening,
) -> (Result<Group, GroupError>, Arc<Interrupted>) {
    let disks = Arc::new(Interrupted {
        disks: Arc::clone(&scene.disks),
        happening,
        left_count: AtomicU64::new(0),
        has_happened: AtomicBool::new(false),
        writes_count: AtomicU64::new(0),
    });
    let claimed = |beating: Pulse| {
        *pulse.lock().unwrap() = Some(beating);
        disks.left_count.store(at_batch, Ordering::SeqCst);
    };
    let attended = Attended {
        journal: None,
        watch: Some(watch(milliseconds)),
        claimed: Some(&claimed),
        ..Attended::default()
    };
    let backend = Arc::clone(&disks) as Arc<dyn Disks>;
    let answer = Group::open_attended(backend, &SLOTS, &scene.name, opener, &|_| false, attended);
    (answer, disks)
}

#[test]
fn an_opening_in_whose_midst_another_host_takes_the_group_by_force_writes_nothing_any_more() {
    let original = cut_off();
    for at_batch in 1.. {
        let scene = Arc::new(original.copy(at_batch));
        let milliseconds = Arc::new(AtomicU64::new(1_000));
        let (other, clock) = (Arc::clone(&scene), Arc::clone(&milliseconds));
        let taken = move || {
            let forced = Opener {
                force: true,
                ..on_host("beta", 2)
            };
            look_in(&other, &forced).unwrap();
            clock.fetch_add(3_000, Ordering::SeqCst);
        };
        let pulse = Mutex::default();
        let (answer, disks) = open_interrupted(
            &scene,
            &on_host("alpha", 1),
            &milliseconds,
            &pulse,
            at_batch,
            Box::new(taken),
        );
        if !disks.has_happened.load(Ordering::SeqCst) {
            assert!(at_batch > 5, "it was taken in the midst: {at_batch}");
            answer.unwrap();
            break;
        }
        let error = match answer {
            Ok(group) => group.check_owner().unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind, GroupErrorKind::Busy, "{at_batch}: {error}");
        assert!(error.message.contains("host beta"), "{at_batch}: {error}");
        assert_eq!(disks.writes_count.load(Ordering::SeqCst), 0, "{at_batch}");
        assert!(!pulse.into_inner().unwrap().unwrap().beat(20), "{at_batch}");
    }
}

#[test]
fn whoever_looks_in_the_midst_of_a_long_opening_sees_that_its_process_lives() {
    let in_namespace = |process_namespace, now_s| Opener {
        origin: Some(Origin {
            machine: Uuid([5; 16]),
            process_namespace,
        }),
        now_s,
        ..on_host("alpha", 1)
    };
    let scene = Arc::new(cut_off());
    let pulse: Arc<Mutex<Option<Pulse>>> = Arc::default();
    let (same, beating) = (Arc::clone(&scene), Arc::clone(&pulse));
    // It is under way for five minutes already.
    let looks = move || {
        let beats = beating.lock().unwrap().as_ref().unwrap().beat(310);
        assert!(beats);
        let others = [
            (in_namespace(2, 312), "namespace"),
            (on_host("beta", 2), "host alpha"),
        ];
        for (other, where_it_is) in others {
            let other = Opener {
                now_s: 312,
                ..other
            };
            let error = look_in(&same, &other).unwrap_err();
            assert_eq!(error.kind, GroupErrorKind::Busy);
            assert!(error.message.contains(where_it_is), "{error}");
            assert!(error.message.contains("2 seconds old"), "{error}");
        }
    };
    let milliseconds = Arc::new(AtomicU64::new(1_000));
    let (answer, disks) = open_interrupted(
        &scene,
        &in_namespace(1, 10),
        &milliseconds,
        &pulse,
        1,
        Box::new(looks),
    );
    let group = answer.unwrap();
    assert!(disks.has_happened.load(Ordering::SeqCst));
    group.heartbeat(320).unwrap();
    group.close().unwrap();
}
