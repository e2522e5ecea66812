//! The control plane of a cluster: how it is started, and how it ends.

use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::Cluster;
use crate::eventually::eventually;
use crate::process::{Ended, Running, Stream};
use crate::request;

impl Cluster {
    /// The control plane's next start, and every command line from now on, is of this file.
    pub fn control_program(&mut self, program: &Path) {
        program.clone_into(&mut self.program);
    }

    /// Every start of the control plane from now on has these flags of `serve`, too.
    pub fn control_flags(&mut self, flags: &[&str]) {
        self.control_flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// Every start of the control plane from now on has these variables, too.
    pub fn control_variables(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        self.control_variables.extend(variables);
    }

    /// The flags that put a control plane on this cluster's ports.
    pub fn listen_flags(&self) -> [String; 4] {
        ["--listen".to_owned(), self.api(), "--worker-listen".to_owned(), self.ingress()]
    }

    /// The variables that every start of the control plane has.
    pub fn variables(&self) -> &[(String, String)] {
        &self.control_variables
    }

    /// Starts the control plane and waits until it answers.
    pub fn start_control(&mut self) -> Result<()> {
        let data = self.data();
        let mut command = self.leasehold();
        command.arg("serve").arg("--data").arg(&data).args(self.listen_flags()).args(&self.control_flags);
        command.envs(self.control_variables.iter().map(|(name, value)| (name, value)));
        if self.logs_everything {
            command.env("LEASEHOLD_LOG", "trace");
        }
        let mut control = Running::start(&mut command)?;
        self.wait_until_healthy(&mut control)?;
        self.control = Some(control);
        Ok(())
    }

    /// Waits until the API of a started process says that it is healthy.
    pub fn wait_until_healthy(&self, process: &mut Running) -> Result<()> {
        let api = self.api();
        eventually(&format!("{api}/healthz"), || {
            if !process.is_running() {
                return Ok(false);
            }
            match request::get(&api, "/healthz", None) {
                Ok(answer) if answer.status == 200 => Ok(true),
                Ok(answer) => Err(format!("{answer:?}")),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .and_then(|healthy| {
            if healthy {
                return Ok(());
            }
            bail!("it ended at once:\n{}", process.written(Stream::Stderr))
        })
    }

    /// Asks the control plane to stop, and waits until it has.
    pub fn stop_control(&mut self) -> Result<()> {
        let control = self.control.take().context("the control plane does not run")?;
        control.signal(Signal::TERM)?;
        control.wait()?.expect_code(0);
        Ok(())
    }

    /// Kills the control plane as a crash would.
    pub fn kill_control(&mut self) -> Result<()> {
        self.control.take().context("the control plane does not run")?.kill()
    }

    /// The admin token that a control plane prints once, on standard error, when its data is new.
    pub fn first_token(&mut self) -> Result<String> {
        let control = self.control.as_mut().context("the control plane does not run")?;
        let line = control.wait_for_text(Stream::Stderr, "token")?;
        line.split_whitespace().next_back().map(str::to_owned).context("the line of the token is empty")
    }

    /// The process id of the control plane.
    ///
    /// # Panics
    ///
    /// When the control plane does not run.
    pub fn control_pid(&self) -> u32 {
        self.control.as_ref().expect("the control plane runs").pid()
    }

    /// Sends a signal to the control plane.
    pub fn signal_control(&self, signal: Signal) -> Result<()> {
        self.control.as_ref().context("the control plane does not run")?.signal(signal)
    }

    /// Waits until the control plane has written this on standard error.
    pub fn wait_for_control_text(&mut self, text: &str) -> Result<String> {
        self.control.as_mut().context("the control plane does not run")?.wait_for_text(Stream::Stderr, text)
    }

    /// Waits until a control plane that was told to go has gone.
    pub fn wait_for_control_end(&mut self) -> Result<Ended> {
        self.control.take().context("the control plane does not run")?.wait()
    }
}
