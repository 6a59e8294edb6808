//! The probe of durable writes: how fast a place acknowledges 8 KiB and an fdatasync, one after the
//! other. A figure beyond what any disk does says that a flush is not what it seems.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::contender::Place;
use crate::quantity::as_float;
use crate::record::Durability;

const LENGTH: Duration = Duration::from_millis(300);
const BLOCK_BYTES: usize = 8192;
/// The probe goes over these in turn, as a log is written.
const BLOCK_COUNT: u64 = 256;

/// Probes a place; its file is gone afterwards.
///
/// # Errors
/// Where the place cannot be written.
pub fn probe(place: &Place) -> Result<Durability> {
    match place {
        Place::Directory(directory) => {
            let path = directory.join("fdatasync-probe");
            let file = File::create_new(&path)
                .with_context(|| format!("cannot write {}", path.display()))?;
            // Written once first: what is probed is the flush, not the growth of a file.
            file.write_all_at(&vec![1; BLOCK_BYTES * 256], 0)?;
            file.sync_all()?;
            let durability = time(&file);
            std::fs::remove_file(&path)?;
            durability
        }
        Place::Device(device) => {
            let file = File::options()
                .write(true)
                .open(device)
                .with_context(|| format!("cannot write {}", device.display()))?;
            time(&file)
        }
    }
}

fn time(file: &File) -> Result<Durability> {
    let block = vec![2; BLOCK_BYTES];
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < LENGTH {
        file.write_all_at(&block, (count % BLOCK_COUNT) * BLOCK_BYTES as u64)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(Durability {
        fdatasyncs_per_s: as_float(count) / began.elapsed().as_secs_f64(),
    })
}
