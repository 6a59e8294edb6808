//! The scenario: a group on real devices under PostgreSQL and MariaDB, both under load, while its
//! disks are added, dropped, taken away, brought back and replaced, its daemon is killed, and
//! pages are damaged on either copy.
//!
//! In each round every act happens once, in an order drawn from the seed, and falls into what the
//! last one set off. No client may see an error; at the end everything that they were told of is
//! there, both databases find themselves sound, no copy differs, no disk is short of its share,
//! and the group's books agree.
//!
//! A round that fails names its seed. The order of the acts and what they choose repeat with it;
//! the scheduling does not.

mod act;
mod clients;
mod damage;
mod databases;
mod ending;
mod pulse;
mod shelf;
mod stage;

use std::path::PathBuf;

use anyhow::{Context, Result};
use spindle_testbed::figures::thousands;
use spindle_testbed::progress::Step;
use spindle_testbed::scene::Scene;
use spindle_testbed::work::keeper_is_lacking;
use spindle_testbed::{mariadb, postgres};

use self::act::Act;
use self::clients::Clients;
use self::databases::{Databases, Installations};
use self::stage::{GROUP, Stage};

/// The powers of a round: from one that gives way to one that does not.
const POWERS: [&str; 4] = ["2", "6", "16", "1024"];

/// How often, and what it is drawn from.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many rounds.
    #[arg(long, default_value_t = 3)]
    rounds: u64,

    /// What the rounds are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Where the files below loop devices are made.
    #[arg(long, default_value_os_t = crate::memory_directory())]
    dir: PathBuf,
}

/// Plays the scenario.
pub fn run(arguments: &Arguments) -> Result<()> {
    let installations = match (
        postgres::Installation::find(),
        mariadb::Installation::find(),
    ) {
        (Ok(postgresql), Ok(mariadb)) => Installations {
            postgresql,
            mariadb,
        },
        (Err(error), _) | (_, Err(error)) => {
            println!("skipped: {error:#}");
            return Ok(());
        }
    };
    if let Some(why) = keeper_is_lacking() {
        println!("skipped: {why}");
        return Ok(());
    }
    let seed = arguments.seed;
    play(arguments, &installations).with_context(|| {
        format!(
            "repeat: spindle-proof scenario --rounds {} --seed {seed}",
            arguments.rounds
        )
    })
}

fn play(arguments: &Arguments, installations: &Installations) -> Result<()> {
    let scene = Scene::make(&arguments.dir, "spindle-scenario")?;
    let step = Step::begin("a group on real devices", 0);
    let mut stage = Stage::make(&scene, arguments.seed)?;
    let devices: Vec<&str> = stage.shelf.names().collect();
    step.done(&devices.join(" "));
    println!(
        "{}, {}",
        installations.postgresql.version()?,
        installations.mariadb.version()?
    );
    let databases = Databases::new(installations, &scene, stage.point())?;
    stage.cold = databases.make()?.to_vec();
    let servers = databases.start()?;
    stage.clients = Some(Clients::start(&servers.postgresql, &servers.mariadb)?);
    stage.servers = Some(servers);
    let played = (1..=arguments.rounds)
        .try_for_each(|round| {
            play_round(&mut stage, round).with_context(|| format!("round {round}"))
        })
        .and_then(|()| stage.judge_all(&databases));
    if let Err(error) = played {
        // What daemon and server had to say goes with the scene, and so do the disks.
        println!("{}", stage.log_tail());
        println!("{}", stage.findings());
        return Err(error);
    }
    let kills_count = stage.kills_count;
    println!(
        "{} rounds: {kills_count} daemons killed, the longest that a client waited {} ms; {} \
         damaged pages mended; no client saw an error",
        arguments.rounds,
        stage.longest_pause.as_millis(),
        thousands(stage.mended_count as u64)
    );
    Ok(())
}

fn play_round(stage: &mut Stage, round: u64) -> Result<()> {
    let commits_before = stage
        .clients
        .as_ref()
        .map_or(0, |clients| clients.commits_count());
    let power = stage.draw(&POWERS).context("there are powers")?;
    stage
        .spindle
        .tell(["rebalance", GROUP, "--power", power, "--default"])?;
    let acts = Act::order(stage);
    println!("round {round}, power {power}: {acts:?}");
    for act in acts {
        let step = Step::begin(&format!("{round} {act:?}"), 0);
        let happened = act
            .happen(stage)
            .with_context(|| format!("{act:?} in round {round}"))?;
        stage.check_clients()?;
        step.done(&happened);
        // Something of it is under way when the next one comes.
        let pause = std::time::Duration::from_millis(stage.random.below(800));
        stage.rest(pause)?;
    }
    let step = Step::begin(&format!("{round} the copying that is left"), 0);
    stage.end_round(commits_before)?;
    step.done("");
    Ok(())
}
