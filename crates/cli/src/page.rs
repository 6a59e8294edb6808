//! Completions and man pages, made from the definition of the arguments.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) {
    let mut command = Arguments::command();
    clap_complete::generate(shell, &mut command, "spindle", &mut std::io::stdout());
}

/// Writes a page for each command into `directory`, or the main page to the standard output.
pub fn man(directory: Option<&Path>) -> Result<()> {
    // Pages of the help command would only repeat the others.
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let Some(directory) = directory else {
        clap_mangen::Man::new(command).render(&mut std::io::stdout())?;
        return Ok(());
    };
    clap_mangen::generate_to(command, directory)
        .with_context(|| format!("cannot write the man pages into {}", directory.display()))?;
    Ok(())
}
