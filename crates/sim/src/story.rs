//! What the control plane says has happened: the events of a run and the audit, over the admin socket.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::request;

/// Every event of a run, oldest first.
pub fn events(cluster: &Cluster, run: &str) -> Result<Vec<Value>> {
    pages(cluster, &format!("/api/v1/runs/{run}/events"))
}

/// The kinds of a run's events, oldest first.
pub fn kinds(cluster: &Cluster, run: &str) -> Result<Vec<String>> {
    let kind = |event: &Value| event["kind"].as_str().unwrap_or_default().to_owned();
    Ok(events(cluster, run)?.iter().map(kind).collect())
}

/// Every row of the audit, oldest first.
pub fn audit(cluster: &Cluster) -> Result<Vec<Value>> {
    pages(cluster, "/api/v1/audit")
}

fn pages(cluster: &Cluster, path: &str) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let after = next.map(|after| format!("&after={after}")).unwrap_or_default();
        let answer = request::get_over(&cluster.admin_socket(), &format!("{path}?limit=64{after}"))?;
        if answer.status != 200 {
            bail!("{path}: {answer:?}");
        }
        let page: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
        items.extend(page["items"].as_array().context("a page has items")?.iter().cloned());
        match page["next"].as_str() {
            Some(after) => next = Some(after.to_owned()),
            None => return Ok(items),
        }
    }
}
