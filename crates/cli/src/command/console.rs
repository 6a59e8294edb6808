//! `spindle console`: a group in the browser.

use std::io::Write;

use anyhow::Result;
use spindle_control::{Console, Settings};

use crate::arguments::ConsoleArguments;
use crate::line::say;

pub fn run(settings: &Settings, arguments: &ConsoleArguments) -> Result<u8> {
    let group = arguments.group.as_deref();
    let console = Console::listen(settings, group, arguments.listen, arguments.operate)?;
    say!("to look at {}: {}", console.group(), console.look_url());
    if let Some(url) = console.operate_url() {
        say!("to change its disks: {url}");
    }
    say!("Each address holds a token, good for 12 hours or until this command ends (Ctrl-C).");
    std::io::stdout().flush()?;
    console.serve()?;
    say!("the tokens are older than 12 hours: the console has ended");
    Ok(0)
}
