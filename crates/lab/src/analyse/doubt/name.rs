//! What each doubt is called beside the cell it belongs to, in a few words.

use super::Doubt;

impl Doubt {
    /// A few words without figures: those are in [`Doubt::what`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooFewBlocks { .. } => "no interval",
            Self::FewBlocks { .. } => "too few blocks for a claim",
            Self::Stalls { .. } => "stalls",
            Self::StallsDecide { .. } => "stalls decide",
            Self::BaselineDiffersFromItself { .. } => "baseline differs from itself",
            Self::NoNoiseFloor => "noise unknown",
            Self::RunsFailed { .. } => "runs failed",
            Self::NotSettled { .. } => "not steady",
            Self::NeverSettled { .. } => "never settled",
            Self::NothingWaitedFor { .. } => "nothing was waited for",
            Self::TooShortToSettle { .. } => "too short to see it steady",
            Self::MachineDrifts { .. } => "machine drifts",
            Self::FewIndependentSamples { .. } => "few independent samples",
            Self::HarnessIsBusy { .. } => "lab was busy",
            Self::DatabaseIsEmbedded => "database within the lab",
            Self::ProcessorStolen { .. } => "processor time stolen",
            Self::NeighboursOnProcessors { .. } => "other programs on the processors",
            Self::Crowded { .. } => "others had the machine",
            Self::NeighboursOnDisks { .. } => "other programs on disks",
            Self::BlockApart { .. } => "a block apart",
            Self::Overloaded { .. } => "overloaded",
            Self::MissesLimit { .. } => "over the limit",
            Self::OtherClass { .. } => "another durability",
            Self::NotDurable { .. } => "not durable",
            Self::DurabilityUnseen { .. } => "durability not seen",
            Self::NotCut { .. } => "power not cut",
            Self::CutAtFew { .. } => "power cut at few moments",
            Self::RunsGone { .. } => "measured runs are gone",
            Self::RecordsAltered { .. } => "records altered",
            Self::RunsRepeated { .. } => "runs repeated",
            Self::NotFinished { .. } => "not finished",
            Self::HistoryBroken { .. } => "history broken",
            Self::BlocksRaised { .. } => "blocks raised after a verdict",
            Self::OfTheOther { doubt, .. } => doubt.name(),
            Self::OtherDurability { .. } => "other number of copies",
            Self::OtherSettings { .. } => "other settings",
            Self::OtherPaceBeside { .. } => "another pace beside it",
            Self::OtherDeviceCount { .. } => "other number of devices",
            Self::OtherChecksums { .. } => "checksums on one side",
            Self::NoiseOfAnother { .. } => "noise of another",
            Self::CountedInPart { .. } => "counted in part",
            Self::NotCached { .. } => "not cached",
            Self::NotCold { .. } => "not cold",
            Self::DevicesIdle { .. } => "measured in memory",
        }
    }
}
