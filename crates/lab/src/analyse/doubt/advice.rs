//! What to do about each doubt.

use super::Doubt;

impl Doubt {
    /// What to do, in a sentence.
    #[must_use]
    pub fn what_to_do(&self) -> &'static str {
        match self {
            Self::TooFewBlocks { .. } | Self::FewBlocks { .. } => {
                "Raise `blocks` (5 for a look, 12 for a claim, more where there are more than a hundred comparisons) and run the file again: what is there is kept."
            }
            Self::Stalls { .. } | Self::StallsDecide { .. } => {
                "Find what these runs waited for: a stall of the storage's own is part of it, one of the machine is not. More blocks tell the two apart."
            }
            Self::BaselineDiffersFromItself { .. } | Self::MachineDrifts { .. } => {
                "Find what else runs on this machine, lengthen the runs, and repeat."
            }
            Self::NoNoiseFloor => {
                "Run the file again, which repeats what failed of the baseline and its second name (A/A), or raise `blocks`."
            }
            Self::RunsFailed { .. } => {
                "Read the log in the run's folder, mend the cause, and run the file again: only what failed is repeated."
            }
            Self::NotSettled { .. }
            | Self::NeverSettled { .. }
            | Self::NothingWaitedFor { .. }
            | Self::TooShortToSettle { .. }
            | Self::FewIndependentSamples { .. } => self.advice_on_the_rate(),
            Self::HarnessIsBusy { .. } | Self::CountedInPart { .. } => {
                "Give the machine more processors, or use fewer users."
            }
            Self::DatabaseIsEmbedded => {
                "Fine for comparing storages; read no database's cost from the processor's figures."
            }
            Self::ProcessorStolen { .. } => "Use a machine of your own, or a quieter hour.",
            Self::NeighboursOnProcessors { .. }
            | Self::Crowded { .. }
            | Self::NeighboursOnDisks { .. }
            | Self::BlockApart { .. } => {
                "End what else runs on this machine, and run the file into another folder (`--output`)."
            }
            Self::Overloaded { .. } => "Lower `rate`, or the shares of `open`.",
            Self::MissesLimit { .. } => {
                "Use fewer users, or raise `p90_at_most` if such a wait is fine for yours."
            }
            Self::OtherClass { .. } => {
                "Mend what forgets (settings, mount options, memory below it), or compare it with its like."
            }
            Self::NotDurable { .. } => {
                "Read its figures as those of a storage that forgets; they say nothing of one that does not."
            }
            Self::DurabilityUnseen { .. } => {
                "Use disks with a volatile cache, or loop devices, where the flushes can be counted."
            }
            Self::OfTheOther { doubt, .. } => doubt.what_to_do(),
            Self::NotCut { .. }
            | Self::CutAtFew { .. }
            | Self::RunsGone { .. }
            | Self::RecordsAltered { .. }
            | Self::RunsRepeated { .. }
            | Self::NotFinished { .. }
            | Self::HistoryBroken { .. }
            | Self::BlocksRaised { .. } => self.advice_on_the_past(),
            Self::OtherDurability { .. } => "Compare it with a baseline of as many copies.",
            Self::OtherSettings { .. } => {
                "Keep the settings beside the figure, as the sentence does: it is a figure of these."
            }
            Self::OtherPaceBeside { .. } => {
                "Keep both times beside the figure: what goes on slower leaves more to the load."
            }
            Self::OtherDeviceCount { .. } => {
                "Keep the number beside the figure, as the sentence does: part of the difference is the number of disks."
            }
            Self::NoiseOfAnother { .. } => {
                "Fine where both are as noisy; else make it the baseline of an experiment of its own."
            }
            Self::OtherChecksums { .. } => "Compare it with a baseline that does the same.",
            Self::NotCached { .. } => {
                "Raise `memory` or lower `size`; or call it storage-bound, with five times the memory."
            }
            Self::NotCold { .. } => {
                "Find what keeps the data; a directory is yours to empty from the caches."
            }
            Self::DevicesIdle { .. } => {
                "Fine where the question was the cached regime; else lower `memory` or raise the size."
            }
        }
    }

    fn advice_on_the_rate(&self) -> &'static str {
        match self {
            Self::NotSettled { .. } => {
                "Raise `warm_up` until the rate holds, or shrink the data; where it breaks in, find what does it (checkpoints) and measure several of them."
            }
            Self::NeverSettled { .. } => {
                "Raise `settle`, or find what breaks in (checkpoints, other programs) and measure several of them."
            }
            Self::NothingWaitedFor { .. } => {
                "Give `settle`; or leave it out, with 12 blocks and a `warm_up` of 5 s or more: then the lab waits for a steady rate."
            }
            Self::TooShortToSettle { .. } => "Raise `duration` to six seconds or more.",
            Self::FewIndependentSamples { .. } => "Raise `duration`.",
            _ => "",
        }
    }

    /// On what was not tried before it was measured, or was tried too often.
    fn advice_on_the_past(&self) -> &'static str {
        match self {
            Self::NotCut {
                by_choice: true, ..
            } => {
                "Leave `cuts` out with 12 blocks or more, or give `cuts = 200`, and run the file anew: a claim is made of what was seen to keep what it acknowledges."
            }
            Self::NotCut { .. } => {
                "Say so beside the figure: that it keeps what it acknowledges was counted, and not tried."
            }
            Self::CutAtFew { .. } => {
                "Give `cuts = 200`, which has no longest time, or a faster machine."
            }
            Self::RunsGone { .. } | Self::RecordsAltered { .. } | Self::HistoryBroken { .. } => {
                "Measure into another folder (`--output`), and leave what the lab writes there as it is."
            }
            Self::RunsRepeated { .. } => {
                "Find what makes it fail, or who stops it: what fails when it is slow looks faster than it is."
            }
            Self::NotFinished { .. } => "Run the file to its end.",
            Self::BlocksRaised { .. } => {
                "Ask for all blocks before, and measure into another folder: who goes on until a verdict pleases finds one."
            }
            _ => "",
        }
    }
}
