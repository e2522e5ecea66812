//! What an operator does with a cluster: command lines, and the questions of a test, asked over the admin socket.

use std::process::Command;

use anyhow::Result;
use serde_json::Value;

use super::Cluster;
use crate::eventually::eventually;
use crate::process::{self, Ended};
use crate::request;

impl Cluster {
    /// `leasehold` in the cluster's directory, with nothing inherited that could point it elsewhere.
    pub fn leasehold(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.directory());
        for variable in ["LEASEHOLD_ADDR", "LEASEHOLD_TOKEN", "LEASEHOLD_PROJECT", "LEASEHOLD_CACERT"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs one command line to its end.
    pub fn cli(&self, arguments: &[&str]) -> Result<Ended> {
        process::run(self.leasehold().args(arguments))
    }

    /// Runs one command line that must succeed, and returns its standard output.
    ///
    /// # Panics
    ///
    /// With everything it wrote when it fails.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> String {
        let ended = self.cli(arguments).expect("leasehold can be started");
        ended.expect_code(0).answer().to_owned()
    }

    /// One object as the command line prints it with `-o json`.
    ///
    /// # Panics
    ///
    /// When the command fails or does not print JSON.
    #[track_caller]
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ask(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    }

    /// The objects of a list as the command line prints them with `-o jsonl`.
    ///
    /// # Panics
    ///
    /// When the command fails or does not print JSON.
    #[track_caller]
    pub fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.ask(&[arguments, &["-o", "jsonl"]].concat());
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in:\n{line}")))
            .collect()
    }

    /// Submits a run without waiting for it and returns its id.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    pub fn submit(&self, arguments: &[&str]) -> String {
        self.ask(&[&["run", "--detach", "-q"], arguments].concat())
    }

    /// Submits a run as the API takes it; its id.
    ///
    /// # Panics
    ///
    /// When it is refused.
    #[track_caller]
    pub fn submit_over_the_socket(&self, body: &Value) -> String {
        let answer = request::post_over(&self.admin_socket(), "/api/v1/runs", body).expect("the control plane answers");
        assert_eq!(answer.status, 201, "{answer:?}");
        let run: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        run["id"].as_str().map_or_else(|| panic!("no id in {answer:?}"), str::to_owned)
    }

    /// A run as the API tells it. For looks that are taken again and again: a process for each is most of what a test costs.
    pub fn look_at(&self, run: &str) -> Result<Value, String> {
        let answer = request::get_over(&self.admin_socket(), &format!("/api/v1/runs/{run}"));
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.status != 200 {
            return Err(format!("{answer:?}"));
        }
        serde_json::from_str(&answer.body).map_err(|error| format!("{error} in {answer:?}"))
    }

    /// Waits until a run has the state that is asked for.
    pub fn wait_for_state(&self, run: &str, state: &str) -> Result<Value> {
        eventually(&format!("run {run} to be {state}"), || {
            let found = self.look_at(run)?;
            if found["state"] == state { Ok(found) } else { Err(found.to_string()) }
        })
    }

    /// The ids of the runs in a state.
    ///
    /// # Panics
    ///
    /// When the list is refused.
    #[track_caller]
    pub fn runs_in_state(&self, state: &str) -> Vec<String> {
        let text = self.ask(&["runs", "list", "--state", state, "--limit", "500", "-o", "name"]);
        text.lines().map(str::to_owned).collect()
    }

    /// What the last attempt of a run wrote, which has ended, once its worker has handed over all of it or given up the rest.
    ///
    /// # Panics
    ///
    /// When that does not come.
    #[track_caller]
    pub fn log(&self, run: &str) -> String {
        let shipped = eventually(&format!("the whole log of {run}"), || {
            let found = self.look_at(run)?;
            let last = found["attempts"].as_array().and_then(|attempts| attempts.last()).cloned().unwrap_or_default();
            let whole = ["complete", "incomplete"].iter().any(|state| last["log"]["state"] == *state);
            if whole { Ok(()) } else { Err(last["log"].to_string()) }
        });
        shipped.unwrap_or_else(|error| panic!("{error:#}"));
        self.ask(&["runs", "logs", run])
    }

    /// The state of a worker's session as the control plane tells it; empty when it never had one.
    ///
    /// # Panics
    ///
    /// When there is no such worker.
    #[track_caller]
    pub fn session_state(&self, name: &str) -> String {
        let worker = self.json(&["worker", "get", name]);
        worker["session"]["state"].as_str().unwrap_or_default().to_owned()
    }
}
