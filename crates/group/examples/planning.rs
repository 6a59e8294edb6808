//! How long the plan of a rebalance takes, and how much memory.
//!
//! `planning EXTENTS` fills 1,000 disks with so many extents of two copies, adds a disk and drops
//! another, and asks the plan for every move. It prints JSON. Memory is what the process grew by
//! for maps and plan together, at its highest while planning.

use std::time::Instant;

use spindle_group::PlanningScene;

const DISKS: u16 = 1000;
/// The disk that leaves.
const LEAVING: u16 = 17;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let extents = std::env::args().nth(1).ok_or("usage: planning EXTENTS")?;
    let before = memory_bytes("VmRSS")?;
    let mut scene = PlanningScene::new(DISKS, extents.parse()?);
    scene.add_disk(DISKS);
    scene.drop_disk(LEAVING);
    let maps_bytes = memory_bytes("VmRSS")? - before;
    // The highest mark begins anew, so that it tells of the planning alone.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let began = Instant::now();
    let planned = scene.plan();
    let seconds = began.elapsed().as_secs_f64();
    let highest_bytes = memory_bytes("VmHWM")? - before;
    let count = scene.extents_count() as f64;
    println!(
        "{{\"extents\": {}, \"seconds\": {seconds:.3}, \"bytes_an_extent\": {:.2}, \
         \"of_maps\": {:.2}, \"moves\": {}, \"moved_to_planned\": {:.4}}}",
        scene.extents_count(),
        highest_bytes as f64 / count,
        maps_bytes as f64 / count,
        planned.moves_count,
        planned.moved_blocks as f64 / planned.planned_blocks as f64
    );
    Ok(())
}

fn memory_bytes(key: &str) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let number = status.lines().find_map(|line| {
        let rest = line.strip_prefix(key)?.strip_prefix(':')?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Ok(number.ok_or("the process tells its memory")? * 1024)
}
