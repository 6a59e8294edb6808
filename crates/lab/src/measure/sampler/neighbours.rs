//! Whose the processors' time is: the contender's, the lab's, the kernel's own, or somebody else's.
//!
//! The contender's is what its control group used (processes that have ended are in it) with the
//! daemons that stand beside that group. The kernel's own threads write back, check sums and serve
//! loop devices for whoever asked: their time is nobody's alone and is told by itself, interrupts
//! with it. What is left of all that the machine did is that of neighbours, which a quiet machine
//! does not have.

use std::collections::HashMap;
use std::fs;

use crate::measure::control_group::ControlGroup;
use crate::measure::counters::{TICKS_PER_SECOND, interrupts_s};
use crate::measure::process::Identity;
use crate::record::Processor;

/// A process of the kernel's own, as `/proc/PID/stat` has it among the flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Watches every process of the machine.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Seconds of each thread of the kernel's when it was last seen.
    kernel: HashMap<(u32, u64), f64>,
    /// Seconds of those that have ended meanwhile.
    ended_s: f64,
}

/// What was seen besides the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Seen {
    /// Neighbours that wait for a disk, uninterruptibly.
    pub blocked: u32,
}

/// Of the contender, as it was when the sampler began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Own<'a> {
    /// The database, and most daemons.
    pub group: &'a ControlGroup,
    /// Its members now.
    pub members: &'a [u32],
    /// Storage daemons, in the group or beside it.
    pub servers: &'a [Identity],
    /// The lab with what prints counters for it.
    pub lab: &'a [Identity],
}

struct Process {
    id: u32,
    started: u64,
    state: char,
    is_kernel: bool,
    /// Without that of its children.
    used_s: f64,
}

impl Neighbours {
    /// Fills in whose the time of `processor` was.
    pub(super) fn look(&mut self, own: &Own<'_>, processor: &mut Processor) -> Seen {
        let processes = processes();
        let mut kernel = HashMap::new();
        for process in processes.iter().filter(|process| process.is_kernel) {
            kernel.insert((process.id, process.started), process.used_s);
        }
        self.ended_s += self
            .kernel
            .iter()
            .filter(|(thread, _)| !kernel.contains_key(thread))
            .map(|(_, used_s)| used_s)
            .sum::<f64>();
        self.kernel = kernel;
        let kernel_s = self.ended_s + self.kernel.values().sum::<f64>() + interrupts_s();
        let is_member = |id: u32| own.members.contains(&id);
        let is_one = |process: &Process, of: &[Identity]| {
            of.iter()
                .any(|one| one.id == process.id && one.started == process.started)
        };
        let beside = |of: &[Identity]| -> f64 {
            processes
                .iter()
                .filter(|process| !is_member(process.id) && is_one(process, of))
                .map(|process| process.used_s)
                .sum()
        };
        // Without a hierarchy that counts processors the living members are what is known.
        let of_the_group_s = own.group.processor_s().unwrap_or_else(|| {
            processes
                .iter()
                .filter(|process| is_member(process.id))
                .map(|process| process.used_s)
                .sum()
        });
        let own_s = of_the_group_s + beside(own.servers);
        processor.own_s = Some(own_s);
        processor.kernel_s = Some(kernel_s);
        processor.others_s =
            Some(processor.user_s + processor.system_s - own_s - kernel_s - beside(own.lab));
        let is_blocked = |process: &&Process| {
            process.state == 'D'
                && !process.is_kernel
                && !is_member(process.id)
                && !is_one(process, own.servers)
                && !is_one(process, own.lab)
        };
        let blocked = processes.iter().filter(is_blocked).count();
        Seen {
            blocked: u32::try_from(blocked).unwrap_or(u32::MAX),
        }
    }
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            process(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
        })
        .collect()
}

fn process(id: u32, stat: &str) -> Option<Process> {
    // The name in parentheses may hold anything, also parentheses: count from the last one.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let seconds = |index: usize| Some(fields.get(index)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some(Process {
        id,
        started: number(19)?,
        state: fields.first()?.chars().next()?,
        is_kernel: number(6)? & KERNEL_THREAD != 0,
        used_s: seconds(11)? + seconds(12)?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::measure::counters::processor;
    use crate::measure::journal::Journal;

    /// A second of processor time, however long that takes beside others.
    fn spin() -> Command {
        let mut spin = Command::new("timeout");
        spin.args(["60", "sh", "-c", "ulimit -t 1; while :; do :; done"]);
        spin
    }

    #[test]
    fn the_time_of_a_neighbour_is_told_from_that_of_the_group_although_both_have_ended() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root makes control groups");
            return;
        }
        let state = tempfile::tempdir().unwrap();
        let journal = Journal::begin(state.path()).unwrap();
        let name = format!("spindle-lab-neighbours-test-{}", std::process::id());
        let group = ControlGroup::make(&journal, &name, None).unwrap();
        if group.processor_s().is_none() {
            println!("skipped: no control group here counts processors");
            return;
        }
        let mut neighbours = Neighbours::default();
        let lab = [Identity::own()];
        let mut look = |members: &[u32]| {
            let mut processor = processor();
            let own = Own {
                group: &group,
                members,
                servers: &[],
                lab: &lab,
            };
            neighbours.look(&own, &mut processor);
            processor
        };
        let grown = |from: &Processor, until: &Processor| {
            let of = |one: &Processor, field: fn(&Processor) -> Option<f64>| field(one).unwrap();
            (
                of(until, |one| one.own_s) - of(from, |one| one.own_s),
                of(until, |one| one.others_s) - of(from, |one| one.others_s),
            )
        };
        let before = look(&[]);
        let mut member = group.wrap(&spin()).spawn().unwrap();
        member.wait().unwrap();
        let between = look(&group.members());
        let mut neighbour = spin().spawn().unwrap();
        neighbour.wait().unwrap();
        let after = look(&group.members());
        let (own_s, _) = grown(&before, &between);
        assert!((0.8..1.5).contains(&own_s), "{own_s}");
        let (own_s, others_s) = grown(&between, &after);
        assert!(own_s < 0.05, "{own_s}");
        assert!(others_s > 0.8, "{others_s}");
    }

    #[test]
    fn a_thread_of_the_kernel_is_known_by_its_flags_and_a_name_may_hold_anything() {
        let line = "2 (a) b) D 0 0 0 0 -1 2129984 0 0 0 0 150 50 7 7 20 0 1 0 12 0";
        let found = process(2, line).unwrap();
        assert!(found.is_kernel && found.state == 'D' && found.started == 12);
        assert!((found.used_s - 2.0).abs() < 1e-9);
    }
}
