//! The control plane's process: whether it runs, can do its work, and is reached where it should listen.

use std::net::SocketAddr;
use std::time::Duration;

use leasehold_core::time::Millis;
use leasehold_wire::api::route;
use tokio::net::TcpStream;

use super::Finding;
use crate::client::{Client, RequestError};
use crate::compose::Holder;

/// How long a listener may take to take a connection, and the control plane to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who holds the data, whether it answers over its admin socket, and whether it can do its work.
pub(crate) async fn control_plane(holder: Holder, client: Option<&Client>) -> Vec<Finding> {
    let Holder::ControlPlane(pid) = holder else {
        let free = Finding::ok("lock", "free: no control plane runs on this data");
        return vec![free, Finding::skipped("control_plane", "it does not run")];
    };
    let who = pid.map_or_else(|| "a process of another namespace".to_owned(), |pid| format!("process {pid}"));
    let lock = Finding::ok("lock", format!("held by {who}"));
    let Some(client) = client else {
        let advice = format!("the admin socket is gone: restart the control plane ({who})");
        return vec![lock, Finding::problem("control_plane", "it has no admin socket", advice)];
    };
    let answer = tokio::time::timeout(PATIENCE, client.probe(route::READYZ)).await;
    let state = match answer {
        Ok(Ok(())) => Finding::ok("control_plane", "ready"),
        Ok(Err(RequestError::Refused(problem))) => Finding::problem(
            "control_plane",
            format!("not ready: {}", problem.detail),
            "its log says more; it recovers by itself once the cause is gone",
        ),
        Ok(Err(error)) => Finding::problem("control_plane", error.to_string(), format!("look at {who} and its log")),
        Err(_) => Finding::problem("control_plane", "it does not answer", format!("look at {who}: it may be frozen")),
    };
    vec![lock, state]
}

/// Whether somebody takes connections at `address`.
pub(crate) async fn listener(check: &'static str, address: SocketAddr, flag: &str, runs: bool) -> Finding {
    if !runs {
        return Finding::skipped(check, "the control plane does not run");
    }
    match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Finding::ok(check, format!("{address} takes connections")),
        failed => {
            let why = match failed {
                Ok(Err(error)) => error.to_string(),
                _ => "no answer".to_owned(),
            };
            let advice =
                format!("tell the doctor where the control plane listens ({flag}), or look for a firewall in between");
            Finding::problem(check, format!("{address}: {why}"), advice)
        }
    }
}

/// How long a process of this machine has run.
pub(crate) fn uptime(pid: u32, boot: Millis) -> Option<Millis> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a bracket too: what counts comes after the last one. Field 22 is the start, in ticks.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(boot.minus(Millis::new(ticks.saturating_mul(1000).checked_div(per_second)?)))
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[tokio::test]
    async fn a_listener_that_is_not_there_is_a_problem_only_while_it_should_be() {
        let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = taken.local_addr().unwrap();
        assert_eq!(listener("api", there, "--listen", true).await.status, Status::Ok);
        drop(taken);
        let gone = listener("api", there, "--listen", true).await;
        assert_eq!(gone.status, Status::Problem);
        assert!(gone.advice.unwrap().contains("--listen"));
        assert_eq!(listener("api", there, "--listen", false).await.status, Status::Skipped);
    }

    #[test]
    fn this_process_has_run_for_a_while_and_not_since_boot() {
        use leasehold_core::time::Clock as _;
        let boot = Millis::new(u64::try_from(crate::system::SystemClock.boot().get()).unwrap());
        let up = uptime(std::process::id(), boot).unwrap();
        assert!(up < boot, "{up} of {boot}");
        assert_eq!(uptime(u32::MAX, boot), None);
    }
}
