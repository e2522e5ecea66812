//! The only place of the worker that starts a process: each start is a named step with its fault points.
//!
//! (See [`crate::fault`]; a wall holds that nothing else spawns or executes.)

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command};

use crate::fault::steps::{AGENT_EXEC, LAUNCHER_SPAWN, Step};
use crate::fault::{self, Side, around};

/// The variable by which an image of this process tells its next one which it found at this machine.
pub(crate) const FOUND: &str = "LEASEHOLD_FOUND";

/// Starts a process.
pub(crate) fn spawn(step: Step, command: &mut Command) -> io::Result<Child> {
    // What is armed at this process's own steps is nobody else's; a launcher's faults go to one launcher.
    command.env_remove(fault::VARIABLE);
    command.env_remove(FOUND);
    if step == LAUNCHER_SPAWN
        && let Some(faults) = fault::take_for_launcher()
    {
        command.env(fault::VARIABLE, faults);
    }
    around(step, || command.spawn())
}

/// Becomes another program, with this environment and this process's signal mask; an error says why not. Not through the
/// standard library's way, which hands a file that is no program to a shell.
pub(crate) fn exec(program: &Path, arguments: &[&OsStr], environment: &[(OsString, OsString)]) -> io::Error {
    let text = |text: &OsStr| CString::new(text.as_bytes());
    let line = std::iter::once(program.as_os_str()).chain(arguments.iter().copied()).map(text);
    let variables = environment.iter().map(|(name, value)| {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        text(&variable)
    });
    let texts = || -> io::Result<_> {
        Ok((
            text(program.as_os_str())?,
            line.collect::<Result<Vec<_>, _>>()?,
            variables.collect::<Result<Vec<_>, _>>()?,
        ))
    };
    match (texts(), fault::reach(AGENT_EXEC, Side::Before)) {
        (Ok((program, line, variables)), Ok(())) => match nix::unistd::execve(&program, &line, &variables) {
            Ok(never) => match never {},
            Err(errno) => errno.into(),
        },
        (_, Err(error)) | (Err(error), _) => error,
    }
}
