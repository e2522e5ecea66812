//! Waiting for a run over connections that may break: its end, and what to say meanwhile.
//!
//! A run goes on whatever happens to the connection, so a broken one is opened again for a while. (Product: Ctrl-C while
//! following leaves the run going and says so.)

use std::time::Duration;

use leasehold_core::run::RunState;
use leasehold_wire::api::event::Event;
use leasehold_wire::api::explanation::RunExplanation;
use leasehold_wire::api::route;
use leasehold_wire::api::run::RunDetail;

use crate::client::{Client, RequestError};
use crate::explanation;
use crate::output::OutputArgs;

/// The first pause before a broken connection is opened again …
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// … doubled up to this …
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// … and given up after this many failures in a row: about a minute.
const FAILURES: u32 = 32;

/// How long a run may be pending before it is said why.
const PENDING_QUIET: Duration = Duration::from_secs(2);
/// How often that is looked at again.
const PENDING_AGAIN: Duration = Duration::from_secs(5);

/// Decides whether a broken connection is opened again.
#[derive(Debug, Default)]
pub(crate) struct Reconnect {
    failures: u32,
}

impl Reconnect {
    /// Something arrived: the next failure is the first again.
    pub(crate) fn progress(&mut self) {
        self.failures = 0;
    }

    /// Waits before the next try, or gives the error back when there is none.
    pub(crate) async fn after(&mut self, error: RequestError, output: &OutputArgs) -> Result<(), RequestError> {
        if !error.is_passing() || self.failures >= FAILURES {
            return Err(error);
        }
        if self.failures == 3 {
            output.note("the control plane does not answer; trying again for a minute (the run goes on)");
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(10)).min(LONGEST_PAUSE);
        self.failures += 1;
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// What a stream that ended without its last event is: broken.
pub(crate) fn cut_off(client: &Client) -> RequestError {
    RequestError::Broken { target: client.target().to_string(), reason: "it ended too early".to_owned() }
}

/// Hands every event of a run to `each`, until the run has ended or is lost; answers the run as it is then.
pub(crate) async fn events(
    client: &Client,
    run: &str,
    output: &OutputArgs,
    mut each: impl FnMut(&Event) -> anyhow::Result<()>,
) -> anyhow::Result<RunDetail> {
    let mut reconnect = Reconnect::default();
    let mut after = None;
    loop {
        match one_stream(client, run, &mut after, &mut reconnect, &mut each).await {
            Ok(Some(detail)) => return Ok(detail),
            Ok(None) => reconnect.after(cut_off(client), output).await?,
            Err(error) => match error.downcast::<RequestError>() {
                Ok(error) => reconnect.after(error, output).await?,
                Err(other) => return Err(other),
            },
        }
    }
}

/// Reads one stream to its end; answers the run if that is settled.
async fn one_stream(
    client: &Client,
    run: &str,
    after: &mut Option<String>,
    reconnect: &mut Reconnect,
    each: &mut impl FnMut(&Event) -> anyhow::Result<()>,
) -> anyhow::Result<Option<RunDetail>> {
    let path = format!("{}?follow=true", route::of_run(route::RUN_EVENTS, run));
    let mut stream = client.events(&path, after.clone()).await?;
    while let Some(event) = stream.next().await? {
        reconnect.progress();
        match event.kind.as_str() {
            "event" => {
                let told: Event = serde_json::from_str(&event.data).map_err(|error| client.not_understood(&error))?;
                if event.id.is_some() {
                    *after = event.id;
                }
                each(&told)?;
                // A lost run is no end, but nothing is to be waited for: its question is open.
                if told.kind == "run.lost" {
                    let detail: RunDetail = client.get(&route::of_run(route::RUN, run)).await?;
                    if detail.item.state == RunState::Lost {
                        return Ok(Some(detail));
                    }
                }
            }
            "end" => return Ok(Some(client.get(&route::of_run(route::RUN, run)).await?)),
            _ => {}
        }
    }
    Ok(None)
}

/// Waits for `wait`, and says meanwhile why the run is still pending.
pub(crate) async fn saying_why_pending<T>(
    client: &Client,
    run: &str,
    output: &OutputArgs,
    wait: impl Future<Output = T>,
) -> T {
    let said = say_why_pending(client, run, output);
    tokio::pin!(wait, said);
    tokio::select! {
        waited = &mut wait => waited,
        () = said => wait.await,
    }
}

/// Says why a run is still pending, again whenever the reason changes, until it is no longer. Never an error: what
/// matters is told by whoever waits for the run itself.
async fn say_why_pending(client: &Client, run: &str, output: &OutputArgs) {
    if output.quiet {
        return;
    }
    tokio::time::sleep(PENDING_QUIET).await;
    let mut said = String::new();
    while let Ok(answer) = client.get::<RunExplanation>(&route::of_run(route::RUN_EXPLANATION, run)).await {
        if answer.state.is_terminal() || matches!(answer.state, RunState::Running | RunState::Lost) {
            return;
        }
        if let Some(found) = &answer.explanation {
            let mut text = Vec::new();
            // Writing to memory does not fail.
            let _ = explanation::write(&mut text, found);
            let text = String::from_utf8_lossy(&text).trim_end().to_owned();
            if text != said {
                output.note(&format!("run {run} is pending: {text}"));
                said = text;
            }
        }
        tokio::time::sleep(PENDING_AGAIN).await;
    }
}
