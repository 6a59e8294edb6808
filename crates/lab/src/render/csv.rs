//! The samples of all runs in one table, for whoever wants to draw their own.

use crate::analyse::folder::Folder;

/// Run, label, workload, then the columns of the samples; a column that a run lacks is empty.
#[must_use]
pub fn samples(folder: &Folder) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for run in &folder.runs {
        for column in &run.samples.columns {
            if !columns.contains(&column.as_str()) {
                columns.push(column);
            }
        }
    }
    let mut text = format!("run,block,contender,workload,{}\n", columns.join(","));
    for run in &folder.runs {
        let planned = &run.run.planned;
        let title = folder.experiment.workloads[planned.workload].title();
        let places: Vec<Option<usize>> = columns
            .iter()
            .map(|column| run.samples.columns.iter().position(|own| own == column))
            .collect();
        for row in &run.samples.rows {
            let cells: Vec<String> = places
                .iter()
                .map(|place| place.map_or(String::new(), |place| row[place].to_string()))
                .collect();
            text.push_str(&format!(
                "{},{},{},{},{}\n",
                planned.number,
                planned.block,
                quoted(&planned.label),
                quoted(&title),
                cells.join(",")
            ));
        }
    }
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
