//! What happens in a round: each act once, in an order that the seed draws.
//!
//! An act waits only for what redundancy needs: no second failure group is taken away while what
//! the first one missed, or lost, is still being copied. A rebalance on its way is no reason to
//! wait, so that acts fall into it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spindle_testbed::work::Pass;

use super::clients::ANSWER_AT_MOST;
use super::stage::{Away, FAILURE_GROUPS, GROUP, Member, Stage};

/// Two daemons die in each round.
const KILLS: usize = 2;

/// What a client may have to wait when a daemon dies, beyond what the same takes it otherwise.
const PAUSE_MOST: Duration = Duration::from_secs(2);

/// A wait that begins so long after a death is not due to it.
const AFTER_DEATH: Duration = Duration::from_millis(500);

const OFFLINE_AT_MOST: Duration = Duration::from_secs(20);
const RETURN_AT_MOST: Duration = Duration::from_secs(60);
const SETTLING_AT_MOST: Duration = Duration::from_secs(10);

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// A spare device joins.
    Add,
    /// A disk is told to leave.
    Drop,
    /// A disk stops answering, and cannot be found any more.
    Fail,
    /// It comes back.
    Return,
    /// A spare device takes the place of a disk that works, or of the one that is away.
    Replace,
    /// SIGKILL to the daemon, twice.
    Kill,
    /// Pages are damaged on either copy, and a scrub mends them.
    Scrub,
}

impl Act {
    const ALL: [Self; 7] = [
        Self::Add,
        Self::Drop,
        Self::Fail,
        Self::Return,
        Self::Replace,
        Self::Kill,
        Self::Scrub,
    ];

    /// The acts of a round in their order; a disk fails before it returns.
    pub fn order(stage: &mut Stage) -> Vec<Self> {
        let mut acts = Self::ALL.to_vec();
        stage.random.shuffle(&mut acts);
        let place = |acts: &[Self], act: Self| acts.iter().position(|other| *other == act);
        if let (Some(fails), Some(returns)) = (place(&acts, Self::Fail), place(&acts, Self::Return))
            && returns < fails
        {
            acts.swap(fails, returns);
        }
        acts
    }

    /// Lets it happen; what happened, for a person.
    pub fn happen(self, stage: &mut Stage) -> Result<String> {
        match self {
            Self::Add => stage.add(),
            Self::Drop => stage.drop_one(),
            Self::Fail => stage.fail(),
            Self::Return => stage.come_back(),
            Self::Replace => stage.replace(),
            Self::Kill => stage.kill(),
            Self::Scrub => stage.damage_and_scrub(),
        }
    }
}

/// Whether this pass makes copies that are missing or stale.
fn makes_whole(pass: &Pass) -> bool {
    pass.name != "rebalance"
}

impl Stage {
    /// How many disks of a failure group stay, those that are away not counted.
    fn staying(members: &[Member], failure_group: &str) -> usize {
        members
            .iter()
            .filter(|member| member.is_normal && member.failure_group == failure_group)
            .count()
    }

    fn add(&mut self) -> Result<String> {
        let spares = self.spares()?;
        let device = self.draw(&spares).context("no device is spare")?;
        let members = self.members()?;
        // Where there are fewest, so that no failure group holds more than one copy's worth.
        let fewest = FAILURE_GROUPS
            .iter()
            .map(|group| Self::staying(&members, group))
            .min();
        let smallest: Vec<&str> = FAILURE_GROUPS
            .into_iter()
            .filter(|group| Some(Self::staying(&members, group)) == fewest)
            .collect();
        let failure_group = self.draw(&smallest).context("there are failure groups")?;
        let path = self.shelf.path(&device);
        let named = format!("{failure_group}={}", path.display());
        self.spindle
            .tell(["disk", "add", GROUP, "--failgroup", &named])?;
        Ok(format!("{device} joined {failure_group}"))
    }

    fn drop_one(&mut self) -> Result<String> {
        let members = self.members()?;
        let most = FAILURE_GROUPS
            .iter()
            .map(|group| Self::staying(&members, group))
            .max();
        let candidates: Vec<Member> = members
            .iter()
            .filter(|member| {
                member.is_normal && Some(Self::staying(&members, &member.failure_group)) == most
            })
            .cloned()
            .collect();
        let member = self.draw(&candidates).context("no disk can be spared")?;
        self.spindle.tell(["disk", "drop", GROUP, &member.name])?;
        Ok(format!("{} leaves {}", member.name, member.failure_group))
    }

    fn fail(&mut self) -> Result<String> {
        // What the last failure left is made good first: redundancy is normal, not high.
        self.wait_for_copying(makes_whole)?;
        let members = self.members()?;
        let candidates: Vec<Member> = members
            .into_iter()
            .filter(|member| member.is_normal)
            .collect();
        let member = self.draw(&candidates).context("no disk is left to fail")?;
        let device = member
            .device
            .clone()
            .context("an online disk has a device")?;
        self.shelf.unplug(&device)?;
        self.spindle.tell(["fault", "pull", GROUP, &member.name])?;
        let name = member.name.clone();
        self.away = Some(Away {
            member,
            device: device.clone(),
            is_pulled: true,
        });
        self.wait_for("the disk to be offline", OFFLINE_AT_MOST, |stage| {
            let members = stage.members()?;
            let is_offline = |member: &Member| member.name == name && !member.is_online;
            Ok(members.iter().any(is_offline).then_some(()))
        })?;
        Ok(format!("{name} on {device} is gone"))
    }

    fn come_back(&mut self) -> Result<String> {
        if self.away.is_none() {
            // The one that had failed was replaced: another one fails, and returns.
            self.fail()?;
        }
        let away = self.away.take().context("a disk is away")?;
        let name = away.member.name;
        self.shelf.plug(&away.device)?;
        if away.is_pulled {
            self.spindle.tell(["fault", "plug", GROUP, &name])?;
        }
        let by_hand = self.random.chance(1, 2);
        if by_hand {
            // It may have come back by itself meanwhile.
            let told = self.spindle.tell(["disk", "online", GROUP, &name]);
            if let Err(error) = told {
                let text = format!("{error:#}");
                ensure!(text.contains("online already"), "{text}");
            }
        }
        self.wait_for("the disk to be online again", RETURN_AT_MOST, |stage| {
            let members = stage.members()?;
            let is_online = |member: &Member| member.name == name && member.is_online;
            Ok(members.iter().any(is_online).then_some(()))
        })?;
        let how = if by_hand { "by hand" } else { "by itself" };
        Ok(format!("{name} is back, {how}"))
    }

    fn replace(&mut self) -> Result<String> {
        let spares = self.spares()?;
        let device = self.draw(&spares).context("no device is spare")?;
        let with = self.shelf.path(&device).display().to_string();
        let is_dead = self.away.is_some() && self.random.chance(1, 2);
        let name = if is_dead {
            let away = self.away.take().context("a disk is away")?;
            // It turns up again afterwards, and is passed over.
            self.given_up.push(away.device.clone());
            away.member.name
        } else {
            let members = self.members()?;
            let candidates: Vec<Member> = members
                .into_iter()
                .filter(|member| member.is_normal)
                .collect();
            self.draw(&candidates).context("no disk is left")?.name
        };
        self.spindle
            .tell(["disk", "replace", GROUP, &name, "--with", &with])?;
        let how = if is_dead { ", which was dead" } else { "" };
        Ok(format!("{device} takes the place of {name}{how}"))
    }

    fn kill(&mut self) -> Result<String> {
        let mut longest = Duration::ZERO;
        for _ in 0..KILLS {
            let pause = Duration::from_millis(self.random.below(400));
            self.rest(pause)?;
            let killed = Instant::now();
            self.spindle.kill_daemon(GROUP)?;
            if let Some(away) = &mut self.away {
                // The next process never had it open.
                away.is_pulled = false;
            }
            self.rest(PAUSE_MOST.saturating_sub(killed.elapsed()))?;
            // How long each has waited is known when it was told.
            self.wait_for("every client to be told", ANSWER_AT_MOST, |stage| {
                let clients = stage.clients.as_ref().context("clients run")?;
                Ok(clients.are_told(killed + AFTER_DEATH).then_some(()))
            })?;
            let clients = self.clients.as_ref().context("clients run")?;
            let wait = clients.longest_wait(killed, killed + AFTER_DEATH);
            self.kills_count += 1;
            // What stood still because the machine did is not the daemon's.
            let machine = self.pulse.stood_still(killed, Instant::now())?;
            let Some(wait) = wait else { continue };
            ensure!(
                wait.length <= PAUSE_MOST + wait.usual + machine,
                "{} waited {:?} when the daemon was killed, where {:?} is usual, {:?} of it before, \
                 and the machine {machine:?}",
                wait.who(),
                wait.length,
                wait.usual,
                killed.saturating_duration_since(wait.asked),
            );
            longest = longest.max(wait.length);
        }
        self.longest_pause = self.longest_pause.max(longest);
        Ok(format!(
            "{KILLS} times; the longest that a client waited: {} ms",
            longest.as_millis()
        ))
    }

    /// The end of a round: all is copied, what was given up stays away, and the clients went on.
    pub fn end_round(&mut self, commits_before: usize) -> Result<()> {
        for device in &self.given_up {
            if !self.shelf.path(device).exists() {
                self.shelf.plug(device)?;
            }
        }
        self.wait_for_copying(|_| true)?;
        // A disk that left is listed until the next line of the daemon has forgotten it.
        let members = self.wait_for("every disk to be in or out", SETTLING_AT_MOST, |stage| {
            let members = stage.members()?;
            let are_in = members.iter().all(|member| member.is_normal);
            Ok(are_in.then_some(members))
        })?;
        for device in std::mem::take(&mut self.given_up) {
            ensure!(
                members
                    .iter()
                    .all(|member| member.device.as_deref() != Some(&device)),
                "{device} was given up and is a member again: {members:?}"
            );
            self.shelf.wipe(&device)?;
        }
        self.check_clients()?;
        let clients = self.clients.as_ref().context("clients run")?;
        let commits_count = clients.commits_count();
        ensure!(
            commits_count > commits_before,
            "no client was told of a commit in a whole round"
        );
        Ok(())
    }
}
