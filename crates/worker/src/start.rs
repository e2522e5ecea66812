//! The only place of the worker that starts a process: each start is a named step with its fault points.
//!
//! (See [`crate::fault`]; a wall holds that nothing else spawns or executes.)

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::fault::steps::{AGENT_EXEC, LAUNCHER_SPAWN, Step};
use crate::fault::{self, Side, around};

/// Starts a process.
pub(crate) fn spawn(step: Step, command: &mut Command) -> io::Result<Child> {
    // What is armed at this process's own steps is nobody else's; a launcher's faults go to one launcher.
    command.env_remove(fault::VARIABLE);
    if step == LAUNCHER_SPAWN
        && let Some(faults) = fault::take_for_launcher()
    {
        command.env(fault::VARIABLE, faults);
    }
    around(step, || command.spawn())
}

/// Becomes another program; an error says why not.
pub(crate) fn exec(command: &mut Command) -> io::Error {
    match fault::reach(AGENT_EXEC, Side::Before) {
        Ok(()) => command.exec(),
        Err(error) => error,
    }
}
