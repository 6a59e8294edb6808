//! Completions and man pages, made from the definition of the arguments.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

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
        return write_page(&command, &mut std::io::stdout()).context("cannot write the man page");
    };
    write_pages(&command, directory)
        .with_context(|| format!("cannot write the man pages into {}", directory.display()))
}

/// The page of a command and those of the commands below it.
fn write_pages(command: &Command, directory: &Path) -> std::io::Result<()> {
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_pages(below, directory)?;
    }
    let mut page = Vec::new();
    write_page(command, &mut page)?;
    let file = Man::new(command.clone()).get_filename();
    std::fs::write(directory.join(file), page)
}

fn write_page(command: &Command, out: &mut dyn Write) -> std::io::Result<()> {
    let man = Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        man.render_options_section(out)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }
    let help = (command.get_after_long_help()).or_else(|| command.get_after_help());
    if let Some(help) = help {
        out.write_all(sections(&help.to_string()).as_bytes())?;
    }
    match command.get_version().or(command.get_long_version()) {
        Some(_) => man.render_version_section(out),
        None => Ok(()),
    }
}

/// What stands below the options in the help, as sections of a page. A line that ends with a colon
/// heads the indented lines after it, which stay as they are; other paragraphs are filled.
fn sections(help: &str) -> String {
    let mut page = String::new();
    let mut is_headed = false;
    for paragraph in help.trim_end().split("\n\n") {
        let mut lines = paragraph.lines().peekable();
        let heading = lines.next_if(|first| {
            let body = paragraph.lines().nth(1);
            first.ends_with(':') && body.is_some_and(|line| line.starts_with(' '))
        });
        match heading.map(|heading| heading.trim_end_matches(':')) {
            Some(heading) => {
                let _ = writeln!(page, ".SH {}", heading.to_uppercase());
                is_headed = true;
            }
            None if !is_headed => {
                page.push_str(".SH NOTES\n");
                is_headed = true;
            }
            None => page.push_str(".PP\n"),
        }
        let body: Vec<&str> = lines.collect();
        let is_verbatim = body.iter().any(|line| line.starts_with(' '));
        if is_verbatim {
            page.push_str(".nf\n");
        }
        for line in body {
            let _ = writeln!(page, "{}", escaped(line));
        }
        if is_verbatim {
            page.push_str(".fi\n");
        }
    }
    page
}

/// A line that a page shows as it is.
fn escaped(line: &str) -> String {
    let line = line
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq");
    match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_in_a_page_as_in_the_help() {
        let help = "Examples:\n  spindle disk add data \\\n      --disk /dev/sdf   its own\n\n\
                    The group uses it at once.\n.conf is no request.\n\nExit codes:\n  0   done";
        let page = sections(help);
        assert_eq!(
            page,
            ".SH EXAMPLES\n.nf\n  spindle disk add data \\e\n      \\-\\-disk /dev/sdf   its own\n.fi\n\
             .PP\nThe group uses it at once.\n\\&.conf is no request.\n.SH EXIT CODES\n.nf\n  0   done\n.fi\n"
        );
    }

    #[test]
    fn each_command_has_a_page_with_its_examples() {
        let directory = tempfile::tempdir().unwrap();
        man(Some(directory.path())).unwrap();
        let page = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        for name in ["spindle.1", "spindle-group-create.1", "spindle-disk-add.1"] {
            let page = page(name);
            assert!(page.contains(".nf\n  spindle "), "{name}: {page}");
            assert!(!page.contains(".SH EXTRA"), "{name}");
        }
        assert!(page("spindle-disk-add.1").contains(".SH EXAMPLES\n"));
    }
}
