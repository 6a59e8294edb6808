//! Garbage in pages of a database, written to one copy behind everybody's back, at the place that
//! `spindle map` tells; and the judgement of the scrub that has to find and mend it.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spindle_device::AlignedBuffer;
use spindle_pages::postgresql;
use spindle_testbed::figures::thousands;

use super::clients::Kind;
use super::databases::ColdFile;
use super::shelf::BLOCK_BYTES;
use super::stage::{GROUP, Stage};

/// Damaged pages of each copy of each file.
const PAGES_PER_COPY: usize = 2;

/// The files are as long at least.
const PAGES_MOST: u64 = 2_000;

/// A damaged block.
struct Damage {
    path: String,
    page: u64,
    page_bytes: u64,
    device: String,
    disk_name: String,
    offset_bytes: u64,
    before: AlignedBuffer,
    garbage: AlignedBuffer,
    /// In the file.
    at: u64,
}

/// Where a copy of a block of a file lies.
#[derive(Debug)]
struct Spot {
    device: String,
    disk_name: String,
    offset_bytes: u64,
}

impl Stage {
    /// Damages each copy of each cold file, never two copies of one page, and scrubs.
    pub fn damage_and_scrub(&mut self) -> Result<String> {
        // What is being moved would not be there any more when the garbage comes.
        self.wait_for_copying(|_| true)?;
        let mut damages = Vec::new();
        for file in self.cold.clone() {
            let map = self
                .spindle
                .ask(["map", &format!("{GROUP}:{}", file.path)])?;
            for copy in 0..2 {
                for _ in 0..PAGES_PER_COPY {
                    let damage = self.damage_page(&file, &map, copy, &damages)?;
                    damages.push(damage);
                }
            }
        }
        let words = ["scrub", GROUP, "--repair", "--power", "1024", "--wait"];
        let report = self.spindle.ask_findings(words)?;
        self.judge(&damages, &report)?;
        self.check_clients()?;
        self.mended_count += damages.len();
        Ok(format!(
            "{} damaged pages mended, {} pages judged",
            damages.len(),
            thousands(report["judged_pages_count"].as_u64().unwrap_or(0))
        ))
    }

    fn damage_page(
        &mut self,
        file: &ColdFile,
        map: &Value,
        copy: usize,
        others: &[Damage],
    ) -> Result<Damage> {
        for _ in 0..1_000 {
            let page = self.random.below(PAGES_MOST);
            let is_taken = |other: &Damage| other.path == file.path && other.page == page;
            if others.iter().any(is_taken) {
                continue;
            }
            let at = page * file.page_bytes + self.random.below(2) * BLOCK_BYTES as u64;
            let Some(spot) = self.spot(map, at, copy)? else {
                continue;
            };
            let before = self.shelf.read_block(&spot.device, spot.offset_bytes)?;
            if before.iter().all(|byte| *byte == 0) {
                // A page that was never filled is judged by nothing.
                continue;
            }
            let mut garbage = AlignedBuffer::zeroed(BLOCK_BYTES);
            if self.random.chance(1, 2) {
                garbage.copy_from_slice(&before);
                garbage[self.random.index(BLOCK_BYTES)] ^= 0x40;
            } else {
                for byte in garbage.iter_mut() {
                    *byte = self.random.next_u64().to_le_bytes()[0];
                }
            }
            if self.is_right_by_chance(file, at, &spot, &garbage)? {
                continue;
            }
            self.shelf
                .write_block(&spot.device, spot.offset_bytes, &garbage)?;
            return Ok(Damage {
                path: file.path.clone(),
                page,
                page_bytes: file.page_bytes,
                device: spot.device,
                disk_name: spot.disk_name,
                offset_bytes: spot.offset_bytes,
                before,
                garbage,
                at,
            });
        }
        bail!("no page of {} has both of its copies online", file.path)
    }

    /// Whether a page has the right checksum with this garbage in it, as one in 65,536 has by
    /// PostgreSQL's: then nobody can tell. InnoDB's has 32 bits.
    fn is_right_by_chance(
        &self,
        file: &ColdFile,
        at: u64,
        spot: &Spot,
        garbage: &AlignedBuffer,
    ) -> Result<bool> {
        if file.kind != Kind::PostgreSql {
            return Ok(false);
        }
        let garbage_at = at % file.page_bytes;
        let page_at = spot.offset_bytes - garbage_at;
        let mut page = Vec::new();
        for inside in (0..file.page_bytes).step_by(BLOCK_BYTES) {
            if inside == garbage_at {
                page.extend_from_slice(garbage);
            } else {
                page.extend_from_slice(&self.shelf.read_block(&spot.device, page_at + inside)?);
            }
        }
        let number = u32::try_from(at / file.page_bytes)?;
        let field = &page[postgresql::SUM_BYTES];
        Ok(field == postgresql::checksum(&page, number).to_le_bytes())
    }

    /// Where the copies of a damaged block lie now.
    fn places(&self, damage: &Damage) -> Result<Vec<Option<Spot>>> {
        let path = format!("{GROUP}:{}", damage.path);
        let map = self.spindle.ask(["map", &path])?;
        (0..2)
            .map(|copy| self.spot(&map, damage.at, copy))
            .collect()
    }

    /// Where that copy lies; none where another copy is not there to heal it from, and none
    /// beyond what the extent holds: there lies what a former file left, nobody reads it and no
    /// scrub compares it.
    fn spot(&self, map: &Value, at: u64, copy: usize) -> Result<Option<Spot>> {
        let members = self.members()?;
        let extents = map["extents"].as_array().context("a map has extents")?;
        let extent = extents.iter().rev().find(|extent| {
            extent["offset_bytes"]
                .as_u64()
                .is_some_and(|begin| begin <= at)
        });
        let Some(extent) = extent else {
            return Ok(None);
        };
        let inside = at - extent["offset_bytes"].as_u64().unwrap_or(at);
        let held_bytes = extent["initialised_bytes"]
            .as_u64()
            .context("an extent says how much it holds")?;
        if inside + BLOCK_BYTES as u64 > held_bytes {
            return Ok(None);
        }
        let mut spots = Vec::new();
        for copy in extent["copies"].as_array().into_iter().flatten() {
            let member = members
                .iter()
                .find(|member| copy["disk_name"] == member.name.as_str());
            let Some(device) = member.and_then(|member| member.device.clone()) else {
                return Ok(None);
            };
            spots.push(Spot {
                device,
                disk_name: copy["disk_name"].as_str().unwrap_or_default().to_owned(),
                offset_bytes: copy["offset_bytes"].as_u64().context("a place")? + inside,
            });
        }
        Ok((copy < spots.len()).then(|| spots.swap_remove(copy)))
    }

    /// Each damage was found, mended in place, and told; nothing else was.
    fn judge(&self, damages: &[Damage], report: &Value) -> Result<()> {
        let findings = report["findings"]
            .as_array()
            .context("a report has findings")?;
        let events = self.spindle.tell(["events", GROUP])?;
        let mut met_by_readers_count = 0;
        for damage in damages {
            let Damage {
                path,
                page,
                page_bytes,
                device,
                disk_name,
                ..
            } = damage;
            let what = format!("page {page} of {path} on {device} ({disk_name})");
            let told = format!("page {page} (offset {}) of {path}", page * page_bytes);
            let finding = findings
                .iter()
                .find(|finding| finding["path"] == path.as_str() && finding["page"] == *page);
            let Some(finding) = finding else {
                let now = self.shelf.read_block(device, damage.offset_bytes)?;
                let is_mended = *now == *damage.before;
                let is_told = |line: &str| line.contains(&told) && line.contains("written again");
                if is_mended && events.lines().any(is_told) {
                    // A database read it before the scrub came, and was given the other copy.
                    met_by_readers_count += 1;
                    continue;
                }
                let state = match () {
                    () if is_mended => "as it was before",
                    () if *now == *damage.garbage => "still damaged",
                    () => "neither as it was before nor as it was damaged",
                };
                let lies_now = self.places(damage)?;
                bail!(
                    "{what} at {} was damaged, is {state}, lies now at {lies_now:?}; the events: \
                     {events}; the scrub says: {report}",
                    damage.offset_bytes
                );
            };
            ensure!(
                finding["kind"] == "repaired" && finding["disks"] == serde_json::json!([disk_name]),
                "{what} was damaged, and the scrub says: {finding}"
            );
            ensure!(events.contains(&told), "no event tells of {told}: {events}");
            let after = self.shelf.read_block(device, damage.offset_bytes)?;
            ensure!(
                *after == *damage.before,
                "{what} was mended, and is not what it was"
            );
        }
        ensure!(
            findings.len() + met_by_readers_count == damages.len() && report["state"] == "done",
            "{} pages were damaged, and the scrub says: {report}",
            damages.len()
        );
        Ok(())
    }
}
