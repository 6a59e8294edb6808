//! What the first screen shows, for the page and the terminal alike: loads by contenders, what may be
//! said in each cell, and every doubt beside what it belongs to.
//!
//! A doubt stands once: in its cell, or, where all cells of a row, a column or a table share it, at
//! the head of these. Its sentence and its advice stand once more below, under its number; doubts of
//! one kind share a number, so that their advice is given once.

mod sentence;

use std::collections::BTreeSet;

pub use self::sentence::sentence;
use crate::analyse::doubt::Doubt;
use crate::analyse::summary::{ContenderSummary, Overall, Ratio, Summary, Told, WorkloadSummary};
use crate::analyse::verdict::Verdict;
use crate::record::{AGAIN, DurabilityClass};

/// The first screen below its sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix<'a> {
    /// One for each durability class, the baseline's first: nothing is ranked across them.
    pub tables: Vec<Table<'a>>,
    /// Every doubt, in the order in which a reader meets their numbers.
    pub notes: Vec<Note<'a>>,
    /// Doubts about the machine and all of the experiment, by their place in `notes`.
    pub of_all: Vec<usize>,
}

/// Loads by contenders of one durability class.
#[derive(Debug, Clone, PartialEq)]
pub struct Table<'a> {
    /// The class; none where that was not looked at.
    pub class: Option<DurabilityClass>,
    /// Doubts that every cell has.
    pub notes: Vec<usize>,
    /// The contenders; the baseline's second name is the noise of a row.
    pub columns: Vec<Column<'a>>,
    /// The loads.
    pub rows: Vec<Row<'a>>,
    /// Over all loads, by column; empty where there is one load.
    pub overall: Vec<Option<&'a Overall>>,
}

/// A contender.
#[derive(Debug, Clone, PartialEq)]
pub struct Column<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is compared with, where that is not the first column.
    pub against: Option<&'a str>,
    /// Doubts that every cell of it has.
    pub notes: Vec<usize>,
}

/// A load.
#[derive(Debug, Clone, PartialEq)]
pub struct Row<'a> {
    /// Its figures.
    pub load: &'a WorkloadSummary,
    /// Its place in the summary.
    pub index: usize,
    /// Doubts about the load, or about every cell of it.
    pub notes: Vec<usize>,
    /// By column.
    pub cells: Vec<Cell<'a>>,
}

/// A contender under a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell<'a> {
    /// What it is.
    pub standing: Standing,
    /// Its figures; none where it was not run under this load.
    pub contender: Option<&'a ContenderSummary>,
    /// Doubts about it alone, those first that forbid a claim.
    pub notes: Vec<usize>,
}

/// What may be said of a contender under a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// The others are compared with it.
    Baseline,
    /// A verdict, and what it rests on.
    Judged(Verdict, Option<Ratio>),
    /// It misses the limit of the file, and is ranked with none.
    OverTheLimit,
    /// There is nothing that it may be compared with.
    NotRanked,
    /// All its runs failed.
    Failed,
    /// It has no runs.
    Absent,
}

impl Standing {
    /// The word in the cell.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Judged(verdict, _) => verdict.word(),
            Self::OverTheLimit => "OVER THE LIMIT",
            Self::NotRanked => "NOT RANKED",
            Self::Failed => "FAILED",
            Self::Absent => "not yet run",
        }
    }

    /// A sign beside the word, which needs neither colour nor reading.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Judged(Verdict::Faster, _) => "\u{25b2}",
            Self::Judged(Verdict::Slower, _) => "\u{25bc}",
            Self::Judged(Verdict::Equivalent, _) => "=",
            Self::Judged(Verdict::Inconclusive, _) => "?",
            Self::Judged(Verdict::Look, _) => "\u{25cb}",
            Self::OverTheLimit | Self::NotRanked | Self::Failed => "\u{2715}",
            Self::Baseline | Self::Absent => "",
        }
    }

    /// Of a contender under one load.
    #[must_use]
    pub fn of(contender: &ContenderSummary) -> Self {
        if contender.rates.is_empty() {
            return if contender.failed > 0 {
                Self::Failed
            } else {
                Self::Absent
            };
        }
        match contender.verdict {
            Some(verdict) => Self::Judged(verdict, contender.ratio),
            None if contender.is_over_the_limit() => Self::OverTheLimit,
            None if contender.against.is_none() => Self::Baseline,
            None => Self::NotRanked,
        }
    }
}

/// Doubts of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Note<'a> {
    /// In a few words, as it stands beside the cells.
    pub name: &'static str,
    /// Whether it forbids a claim.
    pub forbids_a_claim: bool,
    /// What to do.
    pub advice: &'a str,
    /// What was seen, each with whose it is.
    pub seen: Vec<Seen<'a>>,
}

/// The name of a contender and the title of a load.
type Whose<'a> = (Option<&'a str>, Option<&'a str>);

/// What was seen, in a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<'a> {
    /// The sentence.
    pub what: &'a str,
    /// Of whom, under which load: a name, the title of a load, or both; empty for all of it.
    pub of: Vec<Whose<'a>>,
}

impl Seen<'_> {
    /// Of whom, under which load, in a clause; nothing for all of it.
    #[must_use]
    pub fn whose(&self) -> String {
        let mut by_load: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
        for (name, load) in &self.of {
            match by_load.iter_mut().find(|(other, _)| other == load) {
                Some((_, names)) => names.extend(name),
                None => by_load.push((*load, name.iter().copied().collect())),
            }
        }
        let parts: Vec<String> = (by_load.into_iter())
            .map(|(load, names)| match (names.join(", "), load) {
                (names, None) => names,
                (names, Some(load)) if names.is_empty() => load.to_owned(),
                (names, Some(load)) => format!("{names} ({load})"),
            })
            .collect();
        parts.join("; ")
    }
}

/// Makes it from a summary.
#[must_use]
pub fn matrix(summary: &Summary) -> Matrix<'_> {
    let mut notes = Vec::new();
    let of_all = (summary.doubts.iter())
        .map(|told| note(&mut notes, told, (None, None)))
        .collect::<BTreeSet<usize>>()
        .into_iter()
        .collect();
    let tables = classes(summary)
        .into_iter()
        .enumerate()
        .map(|(place, (class, names))| table(summary, (class, place == 0), &names, &mut notes))
        .collect();
    Matrix {
        tables,
        notes,
        of_all,
    }
}

/// Of a contender; none where no run of it was measured.
fn class_of(summary: &Summary, name: &str) -> Option<Option<DurabilityClass>> {
    (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .find(|one| one.name == name && !one.rates.is_empty())
        .map(|one| one.durability.as_ref().map(|found| found.class))
}

/// The contenders by class, the baseline's class first. What has no measured run has no class, and
/// stands with the baseline.
fn classes(summary: &Summary) -> Vec<(Option<DurabilityClass>, Vec<&str>)> {
    let all = (summary.workloads.iter()).flat_map(|load| &load.contenders);
    let first = class_of(summary, &summary.baseline).flatten();
    let mut names: Vec<&str> = Vec::new();
    let mut classes: Vec<(Option<DurabilityClass>, Vec<&str>)> = Vec::new();
    for contender in all {
        let name = contender.name.as_str();
        if name.ends_with(AGAIN) || names.contains(&name) {
            continue;
        }
        names.push(name);
        let class = class_of(summary, name).unwrap_or(first);
        match classes.iter_mut().find(|(other, _)| *other == class) {
            Some((_, members)) => members.push(name),
            None => classes.push((class, vec![name])),
        }
    }
    classes
}

fn table<'a>(
    summary: &'a Summary,
    (class, is_first): (Option<DurabilityClass>, bool),
    names: &[&'a str],
    notes: &mut Vec<Note<'a>>,
) -> Table<'a> {
    let mut table = Table {
        class,
        notes: Vec::new(),
        columns: names
            .iter()
            .map(|name| Column {
                name,
                against: against(summary, name, names),
                notes: Vec::new(),
            })
            .collect(),
        rows: (summary.workloads.iter().enumerate())
            .map(|(index, load)| row(load, index, names))
            .collect(),
        overall: overall(summary, names),
    };
    let mut marks = marks(summary, &table, names);
    if is_first {
        for (row, load) in summary.workloads.iter().enumerate() {
            marks.extend(load.doubts.iter().map(|told| (Place::Load(row), told)));
        }
    }
    marks.sort_by_key(|(place, told)| (place.order(), !told.doubt.forbids_a_claim()));
    for (place, told) in marks {
        let number = note(notes, told, place.of(summary, names));
        let at = match place {
            Place::All => &mut table.notes,
            Place::Column(column) => &mut table.columns[column].notes,
            Place::Load(row) | Place::Row(row) => &mut table.rows[row].notes,
            Place::Cell(row, column) => &mut table.rows[row].cells[column].notes,
        };
        if !at.contains(&number) {
            at.push(number);
        }
    }
    table
}

fn row<'a>(load: &'a WorkloadSummary, index: usize, names: &[&str]) -> Row<'a> {
    let cell = |name: &&str| {
        let contender = load.contenders.iter().find(|one| one.name == *name);
        Cell {
            standing: contender.map_or(Standing::Absent, Standing::of),
            contender,
            notes: Vec::new(),
        }
    };
    Row {
        load,
        index,
        notes: Vec::new(),
        cells: names.iter().map(cell).collect(),
    }
}

/// What a column is compared with, where that is another than the first one and stands beside it.
fn against<'a>(summary: &'a Summary, name: &str, names: &[&str]) -> Option<&'a str> {
    let found = (summary.workloads.iter())
        .flat_map(|load| &load.contenders)
        .find(|one| one.name == name && one.ratio.is_some())?;
    let against = found.against.as_deref()?;
    (names.first() != Some(&against)).then_some(against)
}

fn overall<'a>(summary: &'a Summary, names: &[&str]) -> Vec<Option<&'a Overall>> {
    let found: Vec<Option<&Overall>> = names
        .iter()
        .map(|name| summary.overall.iter().find(|one| one.name == *name))
        .collect();
    if found.iter().all(Option::is_none) {
        return Vec::new();
    }
    found
}

/// In place of the names, where all share a doubt: its sentence is about one of them.
const EACH: &str = "each";

/// What a doubt belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    All,
    Column(usize),
    /// The load of this row itself.
    Load(usize),
    /// Every cell of this row.
    Row(usize),
    /// Of this row, in this column.
    Cell(usize, usize),
}

impl Place {
    /// As one reads: what is over the table, its head, then row by row.
    fn order(self) -> (usize, usize, usize) {
        match self {
            Self::All => (0, 0, 0),
            Self::Column(column) => (1, column, 0),
            Self::Load(row) | Self::Row(row) => (2, row, 0),
            Self::Cell(row, column) => (2, row, column + 1),
        }
    }

    /// Of whom, under which load.
    fn of<'a>(self, summary: &'a Summary, names: &[&'a str]) -> Whose<'a> {
        let load = |row: usize| summary.workloads[row].title.as_str();
        match self {
            Self::All => (Some(EACH), None),
            Self::Column(column) => (Some(names[column]), None),
            Self::Load(row) => (None, Some(load(row))),
            Self::Row(row) => (Some(EACH), Some(load(row))),
            Self::Cell(_, column) if summary.workloads.len() == 1 => (Some(names[column]), None),
            Self::Cell(row, column) => (Some(names[column]), Some(load(row))),
        }
    }
}

/// Every doubt about contenders with its place. The baseline's are its own whichever of its two
/// names they were raised under.
fn marks<'a>(summary: &'a Summary, table: &Table<'a>, names: &[&str]) -> Vec<(Place, &'a Told)> {
    let mut raised: Vec<(&Told, BTreeSet<(usize, usize)>)> = Vec::new();
    for (row, load) in summary.workloads.iter().enumerate() {
        for contender in &load.contenders {
            let name = contender.name.strip_suffix(AGAIN);
            let name = name.unwrap_or(&contender.name);
            let Some(column) = names.iter().position(|other| *other == name) else {
                continue;
            };
            for told in &contender.doubts {
                match raised.iter_mut().find(|(other, _)| other.what == told.what) {
                    Some((_, cells)) => {
                        cells.insert((row, column));
                    }
                    None => raised.push((told, [(row, column)].into())),
                }
            }
        }
    }
    // What has still fewer blocks has too few for a claim as well.
    let fewer: BTreeSet<(usize, usize)> = (raised.iter())
        .filter(|(told, _)| matches!(told.doubt, Doubt::TooFewBlocks { .. }))
        .flat_map(|(_, cells)| cells.clone())
        .collect();
    for (told, cells) in &mut raised {
        if matches!(told.doubt, Doubt::FewBlocks { .. }) {
            cells.extend(&fewer);
        }
    }
    raised
        .into_iter()
        .flat_map(|(told, cells)| places(table, cells).into_iter().map(move |at| (at, told)))
        .collect()
}

/// Where a doubt about these cells stands: at the head of what shares it.
fn places(table: &Table<'_>, mut cells: BTreeSet<(usize, usize)>) -> Vec<Place> {
    let all: Vec<(usize, usize)> = (table.rows.iter().enumerate())
        .flat_map(|(row, of)| {
            let is_there = |cell: &Cell<'_>| cell.standing != Standing::Absent;
            (of.cells.iter().enumerate())
                .filter(move |(_, cell)| is_there(cell))
                .map(move |(column, _)| (row, column))
        })
        .collect();
    // Neither what the others are compared with nor what has no figures keeps a doubt from being
    // that of all.
    let is_compared = |&(row, column): &(usize, usize)| {
        let standing = table.rows[row].cells[column].standing;
        standing != Standing::Baseline && standing != Standing::Failed
    };
    let mut found = Vec::new();
    // What all that is compared shares is the baseline's, too.
    let mut shared = |cells: &mut BTreeSet<(usize, usize)>,
                      place: Place,
                      of: &dyn Fn(&(usize, usize)) -> bool,
                      needs: usize| {
        let compared: Vec<_> = (all.iter())
            .filter(|at| of(at) && (is_compared(at) || matches!(place, Place::Column(_))))
            .collect();
        if compared.len() >= needs && compared.iter().all(|at| cells.contains(at)) {
            cells.retain(|at| !of(at));
            found.push(place);
        }
    };
    shared(&mut cells, Place::All, &|_| true, 2);
    for column in 0..table.columns.len() {
        shared(&mut cells, Place::Column(column), &|at| at.1 == column, 2);
    }
    for row in 0..table.rows.len() {
        shared(&mut cells, Place::Row(row), &|at| at.0 == row, 2);
    }
    found.extend(
        cells
            .into_iter()
            .map(|(row, column)| Place::Cell(row, column)),
    );
    found
}

/// Puts a doubt among the notes and gives its place there.
fn note<'a>(notes: &mut Vec<Note<'a>>, told: &'a Told, of: Whose<'a>) -> usize {
    let (name, advice) = (told.doubt.name(), told.what_to_do.as_str());
    let is_it = |note: &Note<'_>| note.name == name && note.advice == advice;
    let place = notes.iter().position(is_it).unwrap_or_else(|| {
        notes.push(Note {
            name,
            forbids_a_claim: told.doubt.forbids_a_claim(),
            advice,
            seen: Vec::new(),
        });
        notes.len() - 1
    });
    let seen = &mut notes[place].seen;
    let of = Some(of).filter(|of| *of != (None, None));
    match seen.iter_mut().find(|seen| seen.what == told.what) {
        Some(seen) => seen.of.extend(of),
        None => seen.push(Seen {
            what: &told.what,
            of: of.into_iter().collect(),
        }),
    }
    place
}

#[cfg(test)]
mod tests;
