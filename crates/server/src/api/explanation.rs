//! `GET /api/v1/runs/{run}/explanation`: why the run is still pending, per worker; what is open about a lost one.

use axum::extract::State;
use leasehold_wire::api::explanation::{Explanation, RunExplanation};

use super::Api;
use super::answer::{Answered, Json};
use super::query::Query;
use super::request::AtRun;

pub(super) async fn explanation(State(api): State<Api>, AtRun(run): AtRun, _: Query<()>) -> Answered<RunExplanation> {
    let found = api.control.explain(run).await?;
    Ok(Json(RunExplanation {
        run_id: run,
        state: found.run.run.state,
        limits: found.limits.iter().map(Into::into).collect(),
        question: found.question.as_ref().map(Into::into),
        remains: found.remains,
        explanation: found.explanation.as_ref().map(|why| Explanation::new(why, found.truncated)),
    }))
}
