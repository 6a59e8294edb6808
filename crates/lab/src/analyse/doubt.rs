//! Why a figure may not be what it seems, and what to do about it.

mod advice;
mod name;
mod past;
mod power;

use serde::{Deserialize, Serialize};

use crate::quantity::{as_float, show_microseconds, show_size};
use crate::record::DurabilityClass;

/// A reason to doubt, with the figures that raised it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Doubt {
    /// There are too few whole blocks for an interval.
    TooFewBlocks {
        /// Whole blocks.
        blocks: usize,
        /// What an interval needs.
        needed: usize,
    },
    /// Enough blocks for an interval, not for a claim: fewer than twelve, or than so many comparisons
    /// together need.
    FewBlocks {
        /// Whole blocks.
        blocks: usize,
    },
    /// In some blocks one of the two was far slower than in the middle one.
    Stalls {
        /// Who.
        whose: String,
        /// In how many blocks.
        blocks: usize,
        /// Of how many.
        of: usize,
        /// The ratio of all blocks together.
        together: f64,
    },
    /// The middle block says one thing, all blocks together say another.
    StallsDecide {
        /// The ratio of the middle block.
        middle: f64,
        /// That of all together.
        together: f64,
    },
    /// The baseline lay apart from itself, beyond chance.
    BaselineDiffersFromItself {
        /// By which factor.
        ratio: f64,
    },
    /// The baseline has no second name: nobody knows the noise.
    NoNoiseFloor,
    /// Runs failed; the blocks that lack them are left out of that ratio.
    RunsFailed {
        /// How many.
        failed: usize,
        /// Of how many.
        of: usize,
        /// The first reason.
        reason: String,
    },
    /// The rate was not steady while it was measured.
    NotSettled {
        /// Runs that rose or fell by more than a tenth.
        runs: usize,
        /// By how much the middle one did (0.1 for 10 %).
        change: f64,
        /// How far the fifths of the measured time lie apart, over all runs.
        spread: f64,
    },
    /// The rate did not hold still within the longest time that was waited for that.
    NeverSettled {
        /// In how many runs.
        runs: usize,
        /// Of how many.
        of: usize,
        /// Seconds of load before the measured time, in the middle one of them.
        after_s: f64,
    },
    /// The measured time began when the warm-up was over, steady or not.
    NothingWaitedFor {
        /// In how many runs.
        runs: usize,
        /// Of how many.
        of: usize,
        /// Seconds of load before the measured time, in the middle one of them.
        after_s: f64,
    },
    /// Nobody can see whether it was steady.
    TooShortToSettle {
        /// Samples of the middle run.
        samples: f64,
    },
    /// The machine became slower or faster over the experiment.
    MachineDrifts {
        /// From the first third of the runs to the last (0.1 for 10 %).
        change: f64,
    },
    /// The samples of a run are worth few independent ones.
    FewIndependentSamples {
        /// In the middle run.
        effective: u64,
    },
    /// The lab itself took much of the processors.
    HarnessIsBusy {
        /// Of all processor time there was.
        share: f64,
    },
    /// The database runs within the lab: their processor time cannot be told apart.
    DatabaseIsEmbedded,
    /// The host took processor time away.
    ProcessorStolen {
        /// Of all processor time there was, in the worst half of a run.
        share: f64,
        /// The runs with such a half, by their folders, the worst first.
        #[serde(default)]
        disturbed: Vec<String>,
    },
    /// Programs that are no part of it took processor time.
    NeighboursOnProcessors {
        /// Of all processor time there was, in the worst half of a run.
        share: f64,
        /// The runs with such a half, by their folders, the worst first.
        disturbed: Vec<String>,
        /// The load average then.
        load: Option<f64>,
        /// For which share of that half something waited for a processor.
        pressure: Option<f64>,
    },
    /// Programs that are no part of it had most of the processors in too many runs.
    Crowded {
        /// Whose runs.
        whose: String,
        /// In how many.
        runs: usize,
        /// Of how many.
        of: usize,
        /// Of all processor time there was, in the middle one of them.
        share: f64,
    },
    /// Programs that are no part of it waited for disks.
    NeighboursOnDisks {
        /// How many at once, on average over the worst half of a run.
        blocked: f64,
        /// The runs with such a half, by their folders, the worst first.
        disturbed: Vec<String>,
    },
    /// In one block the machine was another one.
    BlockApart {
        /// Which.
        block: u32,
        /// How far its runs lie from their like (-0.5 for half as fast).
        change: f64,
        /// How many runs it has.
        runs: usize,
    },
    /// An open load had arrivals that were not served.
    Overloaded {
        /// How many.
        unserved: u64,
    },
    /// Too many operations take longer than the file allows: no rate is ranked with it.
    MissesLimit {
        /// Who.
        whose: String,
        /// Ninety of a hundred operations were to take no longer, in microseconds.
        limit_us: u64,
        /// So long they take.
        p90_us: u64,
    },
    /// It is of another durability class than what it would be compared with.
    OtherClass {
        /// Its class; none where that was not looked at.
        class: Option<DurabilityClass>,
        /// The other's.
        baseline_class: Option<DurabilityClass>,
        /// Why it is of that class.
        reason: String,
    },
    /// It acknowledges what a loss of power takes away, as does what it is compared with.
    NotDurable {
        /// How that is known.
        reason: String,
    },
    /// Nobody can see here whether its acknowledgements are durable.
    DurabilityUnseen {
        /// Why not.
        reason: String,
    },
    /// Nobody saw what it has after a loss of power.
    NotCut {
        /// Who.
        whose: String,
        /// Why not, in a clause.
        reason: String,
        /// Whether the lab could have cut its power, and was not asked to.
        by_choice: bool,
    },
    /// Its power was cut at fewer moments than a claim has by itself.
    CutAtFew {
        /// Whose.
        whose: String,
        /// At how many.
        moments: u32,
        /// What a claim has by itself.
        needed: u32,
        /// Whether the file asks for so few; else time did not allow more.
        by_choice: bool,
    },
    /// Measured runs of it are not in the figures any more.
    RunsGone {
        /// Whose.
        whose: String,
        /// Their folders.
        runs: Vec<String>,
    },
    /// The record of a run is not the one that was written when it was measured.
    RecordsAltered {
        /// Whose.
        whose: String,
        /// Their folders.
        runs: Vec<String>,
    },
    /// Runs of it failed or were stopped, and were done again.
    RunsRepeated {
        /// Whose.
        whose: String,
        /// How many runs.
        runs: usize,
        /// Of how many.
        of: usize,
        /// Attempts that failed.
        failed: usize,
        /// Attempts that were stopped before their end.
        stopped: usize,
        /// Whether more were stopped than the interval bears.
        is_often: bool,
    },
    /// Runs that were planned have not happened.
    NotFinished {
        /// How many have.
        runs: usize,
        /// Of how many.
        of: usize,
    },
    /// The history of the folder does not tell what was tried.
    HistoryBroken {
        /// Why not, in a clause.
        reason: String,
    },
    /// Blocks were added when a claim could already be seen.
    BlocksRaised {
        /// From so many.
        from: u32,
        /// To so many.
        to: u32,
        /// Blocks that had figures then.
        seen: u32,
    },
    /// What is said against what it is compared with counts for the comparison.
    OfTheOther {
        /// Who that is.
        whose: String,
        /// What is said against it.
        doubt: Box<Doubt>,
    },
    /// The contenders do not keep the same number of copies.
    OtherDurability {
        /// Its copies.
        copies: u32,
        /// The baseline's.
        baseline_copies: u32,
    },
    /// The file asks for another setting of the database or option of the storage.
    OtherSettings {
        /// In what they differ.
        differing: Vec<Differing>,
    },
    /// What went on beside the load did so faster for the one than for the other.
    OtherPaceBeside {
        /// Such as `backup`.
        companion: String,
        /// Seconds for each time that it was done, with those of what was broken off; none where it
        /// was never done.
        own_s: Option<f64>,
        /// The same of what it is compared with.
        other_s: Option<f64>,
    },
    /// One is spread over more devices than the other.
    OtherDeviceCount {
        /// Its devices.
        devices: u32,
        /// The baseline's.
        baseline_devices: u32,
    },
    /// One checks what it reads, the other does not.
    OtherChecksums {
        /// Whether the contender does.
        checks: bool,
    },
    /// It is compared with a contender that has no second name of its own.
    NoiseOfAnother {
        /// With what it is compared.
        baseline: String,
        /// Whose noise is known.
        measured: String,
    },
    /// Counters were read too late to cover the measured time; figures from them are left out.
    CountedInPart {
        /// Of how many runs.
        runs: usize,
    },
    /// Data that was to be cached was read from the devices all the same.
    NotCached {
        /// Bytes that they read an operation.
        each_bytes: f64,
        /// What they read in a run, of the data (0.1 for 10 %).
        share: f64,
    },
    /// A cold scan found the data in a cache.
    NotCold {
        /// What was read from the devices in a run, of the data.
        share: f64,
    },
    /// What was measured lay in memory: it says little of the disks.
    DevicesIdle {
        /// Bytes that the devices read and wrote, of those that the operations moved.
        share: f64,
    },
}

/// A setting of the database or an option of the storage in which two contenders differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differing {
    /// Its name.
    pub name: String,
    /// What the contender has; none where its storage has no such thing.
    pub own: Option<String>,
    /// What it is compared with has.
    pub baseline: Option<String>,
}

impl Differing {
    /// After "with", in a sentence with a verdict.
    #[must_use]
    pub fn term(&self) -> String {
        let Self {
            name,
            own,
            baseline,
        } = self;
        match (own, baseline) {
            (Some(own), Some(baseline)) => format!("{name} = {own} against {baseline}"),
            (Some(own), None) => format!("{name} = {own}"),
            (None, other) => format!("no {name} against {}", other.as_deref().unwrap_or("none")),
        }
    }

    fn clause(&self) -> String {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
        format!(
            "{} is {} here, {} in what it is compared with",
            self.name,
            show(&self.own),
            show(&self.baseline)
        )
    }
}

impl Doubt {
    /// What was seen, in a sentence.
    #[must_use]
    pub fn what(&self) -> String {
        let percent = |share: &f64| format!("{:.1} %", share * 100.0);
        match self {
            Self::TooFewBlocks { .. }
            | Self::FewBlocks { .. }
            | Self::Stalls { .. }
            | Self::StallsDecide { .. }
            | Self::MissesLimit { .. } => self.of_the_blocks(),
            Self::BaselineDiffersFromItself { ratio } => format!(
                "The baseline differs from itself under a second name (ratio {ratio:.3}), beyond chance."
            ),
            Self::NoNoiseFloor => {
                "The baseline has too few runs under its second name: nobody knows how far it lies from itself, and nothing is claimed.".to_owned()
            }
            Self::RunsFailed { failed, of, reason } => {
                format!("{failed} of {of} runs failed; the first: {reason}")
            }
            Self::NotSettled { .. }
            | Self::NeverSettled { .. }
            | Self::NothingWaitedFor { .. }
            | Self::TooShortToSettle { .. }
            | Self::FewIndependentSamples { .. } => self.of_the_rate(),
            Self::MachineDrifts { change } => format!(
                "The machine changed over the experiment, by {}.",
                percent(change)
            ),
            Self::HarnessIsBusy { share } => {
                format!("The lab itself used {} of the processors.", percent(share))
            }
            Self::DatabaseIsEmbedded => {
                "The database runs on the lab's own threads: its processor time is the lab's, too."
                    .to_owned()
            }
            Self::ProcessorStolen { .. }
            | Self::NeighboursOnProcessors { .. }
            | Self::Crowded { .. }
            | Self::NeighboursOnDisks { .. }
            | Self::BlockApart { .. } => self.of_the_machine(),
            Self::Overloaded { unserved } => {
                format!(
                    "{unserved} arrivals were never served: the rate is beyond what it carries."
                )
            }
            Self::OtherClass { .. } | Self::NotDurable { .. } | Self::DurabilityUnseen { .. } => {
                self.of_the_class()
            }
            Self::OtherDurability { .. }
            | Self::OtherSettings { .. }
            | Self::OtherDeviceCount { .. }
            | Self::OtherPaceBeside { .. }
            | Self::OtherChecksums { .. }
            | Self::NoiseOfAnother { .. } => self.of_the_terms(),
            Self::CountedInPart { runs } => format!(
                "In {runs} of its runs the counters were read too late: layers, processor time and waits leave these out."
            ),
            Self::NotCut { .. } | Self::CutAtFew { .. } => self.of_the_power(),
            Self::RunsGone { .. }
            | Self::RecordsAltered { .. }
            | Self::RunsRepeated { .. }
            | Self::NotFinished { .. }
            | Self::HistoryBroken { .. }
            | Self::BlocksRaised { .. } => self.of_the_past(),
            Self::OfTheOther { whose, doubt } => {
                format!("Of {whose}, which it is compared with: {}", in_small(&doubt.what()))
            }
            Self::NotCached { .. } | Self::NotCold { .. } | Self::DevicesIdle { .. } => {
                self.of_the_regime()
            }
        }
    }

    /// What was seen of its rate over time.
    fn of_the_rate(&self) -> String {
        match self {
            Self::NotSettled { runs, .. } => format!(
                "Its rate was not steady while it was measured: {} ({runs} runs moved by more than 10 %).",
                self.unsteadiness().unwrap_or_default()
            ),
            Self::NeverSettled { runs, of, after_s } => format!(
                "In {runs} of {of} runs its rate did not hold still within {after_s:.0} s and was measured all the same."
            ),
            Self::NothingWaitedFor { runs, of, after_s } => format!(
                "In {runs} of {of} runs the measured time began after {after_s:.0} s of load, steady or not: nothing was waited for."
            ),
            Self::TooShortToSettle { samples } => format!(
                "Samples of a second in a run: {samples:.0}, too few to see whether its rate was steady."
            ),
            Self::FewIndependentSamples { effective } => format!(
                "The seconds of a run resemble each other so much that they are worth {effective}."
            ),
            _ => String::new(),
        }
    }

    /// What it has that the other has not, or the other way round.
    fn of_the_terms(&self) -> String {
        match self {
            Self::OtherDurability {
                copies,
                baseline_copies,
            } => format!(
                "It keeps {copies} copies, the baseline {baseline_copies}: they are not ranked together."
            ),
            Self::OtherSettings { differing } => {
                let parts: Vec<String> = differing.iter().map(Differing::clause).collect();
                format!("The file asks for other settings: {}.", parts.join("; "))
            }
            Self::OtherPaceBeside {
                companion,
                own_s,
                other_s,
            } => {
                let took = |seconds: &Option<f64>| {
                    seconds.map_or("was never done within the measured time".to_owned(), |s| {
                        format!("took {s:.1} s")
                    })
                };
                format!(
                    "Its {companion} {}; that of what it is compared with {}.",
                    took(own_s),
                    took(other_s)
                )
            }
            Self::OtherDeviceCount {
                devices,
                baseline_devices,
            } => format!("It uses {devices} of the devices, the baseline {baseline_devices}."),
            Self::OtherChecksums { checks } => if *checks {
                "It checks every byte it reads, the baseline does not."
            } else {
                "The baseline checks every byte it reads, it does not."
            }
            .to_owned(),
            Self::NoiseOfAnother { baseline, measured } => format!(
                "It is compared with {baseline}, which keeps as many copies; the noise floor is that of {measured}."
            ),
            _ => String::new(),
        }
    }

    /// What was read, against what the load is called.
    fn of_the_regime(&self) -> String {
        let percent = |share: &f64| format!("{:.1} %", share * 100.0);
        match self {
            Self::NotCached { each_bytes, share } => format!(
                "It is called cached, and the devices read {} an operation ({} of the data in a run).",
                show_size(*each_bytes),
                percent(share)
            ),
            Self::NotCold { share } => format!(
                "It is called cold, and only {} of the data was read from the devices: a cache had the rest.",
                percent(share)
            ),
            Self::DevicesIdle { share } => format!(
                "The devices moved {} of what the database asked for: this was measured in memory.",
                percent(share)
            ),
            _ => String::new(),
        }
    }

    /// What was seen of a machine that was not quiet.
    fn of_the_machine(&self) -> String {
        let percent = |share: &f64| format!("{:.1} %", share * 100.0);
        match self {
            Self::ProcessorStolen { share, disturbed } => format!(
                "The host of this virtual machine took {} of the processors away{}.",
                percent(share),
                in_runs(disturbed, &[])
            ),
            Self::NeighboursOnProcessors {
                share,
                disturbed,
                load,
                pressure,
            } => {
                let load = load.map(|load| format!("load average {load:.1}"));
                let pressure = pressure.map(|share| {
                    format!(
                        "something waited for a processor {} of the time",
                        percent(&share)
                    )
                });
                let then: Vec<String> = load.into_iter().chain(pressure).collect();
                format!(
                    "Other programs took {} of the processors{}.",
                    percent(share),
                    in_runs(disturbed, &then)
                )
            }
            Self::Crowded {
                whose,
                runs,
                of,
                share,
            } => format!(
                "Other programs had most of the processors in {runs} of {of} runs of {whose} ({} in the middle one of these): what was measured beside them may be looked at, and nothing is claimed.",
                percent(share)
            ),
            Self::NeighboursOnDisks { blocked, disturbed } => format!(
                "{blocked:.1} other programs at once waited for disks{}.",
                in_runs(disturbed, &[])
            ),
            Self::BlockApart {
                block,
                change,
                runs,
            } => format!(
                "The machine was not the same in block {block}: all {runs} runs of it were {}, by {} in the middle.",
                if *change < 0.0 { "slower" } else { "faster" },
                percent(&change.abs())
            ),
            _ => String::new(),
        }
    }

    /// How the rate moved, in a clause, where it was not steady.
    #[must_use]
    pub fn unsteadiness(&self) -> Option<String> {
        let Self::NotSettled { change, spread, .. } = self else {
            return None;
        };
        let word = if *change < 0.0 { "fell" } else { "rose" };
        Some(format!(
            "it {word} by {:.0} %, its fifths lie {:.0} % apart",
            change.abs() * 100.0,
            spread * 100.0
        ))
    }

    /// What was seen of its blocks, and of its operations in all of them.
    fn of_the_blocks(&self) -> String {
        match self {
            Self::TooFewBlocks { blocks, needed } => {
                format!("{blocks} whole blocks give no interval; {needed} are needed.")
            }
            Self::FewBlocks { blocks } => {
                format!("{blocks} blocks are enough to look, not enough to claim.")
            }
            Self::Stalls {
                whose,
                blocks,
                of,
                together,
            } => format!(
                "In {blocks} of {of} blocks {whose} was far slower than usual: the interval is of the middle block and leaves that out; all blocks together have the ratio {together:.3}."
            ),
            Self::StallsDecide { middle, together } => format!(
                "The middle block has the ratio {middle:.3}, all blocks together have {together:.3}: a few slow runs decide which of the two is faster."
            ),
            Self::MissesLimit {
                whose,
                limit_us,
                p90_us,
            } => format!(
                "{whose} misses the limit of {}: 90 of 100 operations take up to {}. No rate is ranked with it.",
                show_microseconds(as_float(*limit_us)),
                show_microseconds(as_float(*p90_us))
            ),
            _ => String::new(),
        }
    }

    /// What was seen of its durability.
    fn of_the_class(&self) -> String {
        match self {
            Self::OtherClass {
                class,
                baseline_class,
                reason,
            } => {
                let words = |class: &Option<DurabilityClass>| {
                    class.map_or("not looked at", DurabilityClass::words)
                };
                format!(
                    "Its durability: {}, that of the baseline: {}; they are not ranked together ({reason}).",
                    words(class),
                    words(baseline_class)
                )
            }
            Self::NotDurable { reason } => format!("It is not durable: {reason}."),
            Self::DurabilityUnseen { reason } => {
                format!("Whether it is durable cannot be seen: {reason}.")
            }
            _ => String::new(),
        }
    }

    /// Whether what would be a claim is a look while it stands.
    #[must_use]
    pub fn leaves_a_look(&self) -> bool {
        match self {
            Self::Crowded { .. }
            | Self::DevicesIdle { .. }
            | Self::RunsGone { .. }
            | Self::RecordsAltered { .. }
            | Self::NotFinished { .. }
            | Self::HistoryBroken { .. }
            | Self::BlocksRaised { .. } => true,
            Self::RunsRepeated { is_often, .. } => *is_often,
            Self::OtherPaceBeside { own_s, other_s, .. } => own_s.is_none() || other_s.is_none(),
            // A lab that has most of the machine is no better than another program that has.
            Self::HarnessIsBusy { share } => *share > HARNESS_HAS_MOST_FROM,
            Self::NotCut { by_choice, .. } => *by_choice,
            Self::CutAtFew {
                moments, by_choice, ..
            } => *by_choice && *moments < CUTS_FOR_A_CLAIM,
            Self::OfTheOther { doubt, .. } => doubt.leaves_a_look(),
            _ => false,
        }
    }

    /// Whether nothing may be called equivalent while it stands. What both wait for hides a
    /// difference, and makes none.
    #[must_use]
    pub fn hides_a_difference(&self) -> bool {
        match self {
            Self::HarnessIsBusy { .. } => true,
            Self::OfTheOther { doubt, .. } => doubt.hides_a_difference(),
            _ => false,
        }
    }

    /// Whether it counts for whoever is compared with the one that it is about: a baseline that was
    /// measured in memory makes others slower.
    #[must_use]
    pub fn counts_for_others(&self) -> bool {
        matches!(
            self,
            Self::HarnessIsBusy { .. }
                | Self::NotCached { .. }
                | Self::NotCold { .. }
                | Self::DevicesIdle { .. }
        )
    }

    /// Whether nothing may be claimed while it stands.
    #[must_use]
    pub fn forbids_a_claim(&self) -> bool {
        if let Self::OfTheOther { doubt, .. } = self {
            return doubt.forbids_a_claim();
        }
        matches!(
            self,
            Self::TooFewBlocks { .. }
                | Self::StallsDecide { .. }
                | Self::NoNoiseFloor
                | Self::BaselineDiffersFromItself { .. }
                | Self::MissesLimit { .. }
                | Self::Overloaded { .. }
                | Self::OtherDurability { .. }
                | Self::OtherClass { .. }
                | Self::NotCold { .. }
        )
    }
}

/// Of all processor time, as for other programs.
const HARNESS_HAS_MOST_FROM: f64 = 0.5;

/// What loses something at one moment of twenty is met in as many with a chance of 95 of 100. Whoever
/// asks for fewer asks for no proof; where time allowed no more, the number is told.
const CUTS_FOR_A_CLAIM: u32 = 60;

/// A sentence after a colon.
pub(crate) fn in_small(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

/// So many names are told of each; all of them are in `summary.json`.
const NAMES_AT_MOST: usize = 6;

/// In which runs, the worst first, with what else was seen `then`, in the worst.
fn in_runs(disturbed: &[String], then: &[String]) -> String {
    let then = if then.is_empty() {
        String::new()
    } else {
        format!(" ({})", then.join("; "))
    };
    let Some((worst, others)) = disturbed.split_first() else {
        return then;
    };
    let told = &others[..others.len().min(NAMES_AT_MOST)];
    let mut text = format!(" in half of the run {worst}{then}");
    if !told.is_empty() {
        text.push_str(", and less in half of ");
        if others.len() > 1 {
            text.push_str(&format!("{} other runs: ", others.len()));
        }
        text.push_str(&told.join(", "));
    }
    if others.len() > told.len() {
        text.push_str(&format!(" and {} more", others.len() - told.len()));
    }
    text
}
