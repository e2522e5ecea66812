//! The operator routes: a file per resource, and one registry that says what it takes to use each.
//!
//! Served on the API's port and on the admin socket alike. Every refusal is problem+json: unknown routes, wrong methods and
//! wrong content types too. (Product, *The command line*; control design, *Security*.)

mod access;
mod answer;
mod audit;
mod cancel;
mod delete;
mod describe;
mod drain;
mod enrollments;
mod etag;
mod events;
mod explanation;
mod header;
mod health;
mod log;
mod metrics;
mod openapi;
mod problem;
mod projects;
mod query;
mod registry;
mod request;
mod resolve;
mod runs;
mod schedules;
mod sse;
mod takeover;
mod tasks;
mod version;
mod webhooks;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use leasehold_control::ControlPlane;
use leasehold_core::role::Role;
use leasehold_wire::api::problem::ProblemCode;
use leasehold_wire::api::route;

use problem::ApiError;
use registry::Route;
pub use registry::{Needs, RouteInfo};

use crate::drain::Drain;
use crate::rates::Rates;

/// What the operator routes share.
#[derive(Clone)]
pub(crate) struct Api {
    /// The services.
    pub(crate) control: ControlPlane,
    /// Where workers find the ingress, for the line that enrolls one.
    pub(crate) ingress_url: Arc<str>,
    /// How often webhooks are called.
    pub(crate) rates: Arc<Rates>,
    /// Ends streams.
    pub(crate) drain: Drain,
}

/// The registry.
fn registry() -> Vec<Route> {
    const VIEWER: Needs = Needs::Role(Role::Viewer);
    const OPERATOR: Needs = Needs::Role(Role::Operator);
    const ADMIN: Needs = Needs::Role(Role::Admin);
    vec![
        Route::get(route::HEALTHZ, Needs::Nothing, health::healthz).is("healthz", "Whether the process lives."),
        Route::get(route::READYZ, Needs::Nothing, health::readyz)
            .is("readyz", "Whether it can do its work now; if not, why."),
        Route::get(route::OPENAPI, Needs::Nothing, openapi::get).is("getOpenApi", "This description."),
        Route::get(route::METRICS, VIEWER, metrics::metrics).is("getMetrics", "What is counted, for Prometheus."),
        Route::get(route::VERSION, VIEWER, version::version).is("getVersion", "What the control plane is and speaks."),
        Route::get(route::RUNS, VIEWER, runs::list).is("listRuns", "Runs, the newest first."),
        Route::post(route::RUNS, OPERATOR, runs::submit).is("submitRun", "Submits a run: it waits for a worker."),
        Route::get(route::RUN, VIEWER, runs::get).is("getRun", "Everything about a run."),
        Route::get(route::RUN_LOG, VIEWER, log::log).is("getRunLog", "A run's output."),
        Route::get(route::RUN_EVENTS, VIEWER, events::events).is("getRunEvents", "A run's story, event by event."),
        Route::get(route::RUN_EXPLANATION, VIEWER, explanation::explanation)
            .is("explainRun", "Why a run is still pending, per worker; what is open about a lost one."),
        Route::post(route::RUN_CANCEL, OPERATOR, cancel::cancel).is("cancelRun", "A run is to stop."),
        Route::post(route::RUN_RESOLVE, OPERATOR, resolve::resolve)
            .is("resolveRun", "A person's word on a run that contact was lost with."),
        Route::get(route::WORKERS, VIEWER, workers::list).is("listWorkers", "Workers, in the order of their names."),
        Route::get(route::WORKER, VIEWER, workers::get).is("getWorker", "Everything about a worker."),
        Route::delete(route::WORKER, ADMIN, delete::delete).is("deleteWorker", "Ends a worker's identity."),
        Route::post(route::WORKER_DRAIN, OPERATOR, drain::drain).is("drainWorker", "A worker is given nothing new."),
        Route::post(route::WORKER_RESUME, OPERATOR, drain::resume).is("resumeWorker", "A worker takes work again."),
        Route::post(route::WORKER_TAKEOVER, ADMIN, takeover::grant)
            .is("grantTakeover", "Lets one registration of a worker in that would be kept out."),
        Route::get(route::PROJECTS, VIEWER, projects::list)
            .is("listProjects", "Projects, in the order of their names."),
        Route::post(route::PROJECTS, ADMIN, projects::create).is("createProject", "Makes a project."),
        Route::get(route::PROJECT, VIEWER, projects::get).is("getProject", "One project."),
        Route::put(route::PROJECT, ADMIN, projects::set).is("setProject", "What a project's settings are from now on."),
        Route::delete(route::PROJECT, ADMIN, projects::delete)
            .is("deleteProject", "Ends a project of which no run is open and no task is left."),
        Route::get(route::TASKS, VIEWER, tasks::list)
            .is("listTasks", "A project's tasks, in the order of their names."),
        Route::put(route::TASKS, OPERATOR, tasks::apply).is(
            "applyTasks",
            "What the named tasks are from now on, all of it or nothing; with `prune`, all there are.",
        ),
        Route::post(route::TASKS_PLAN, VIEWER, tasks::plan).is("planTasks", "What applying would do; nothing changes."),
        Route::get(route::TASK, VIEWER, tasks::get).is("getTask", "A task, with what its next run executes."),
        Route::put(route::TASK, OPERATOR, tasks::put)
            .is("putTask", "What one task is from now on, if nobody changed it since it was seen."),
        Route::delete(route::TASK, OPERATOR, tasks::delete).is("deleteTask", "Ends a task of which no run is open."),
        Route::post(route::TASK_RUNS, OPERATOR, tasks::run).is("runTask", "Submits a run of a task as it is."),
        Route::get(route::TASK_REVISIONS, VIEWER, tasks::revisions)
            .is("listTaskRevisions", "The revisions that a task had, the newest first; those of a deleted one, too."),
        Route::get(route::TASK_REVISION, VIEWER, tasks::revision).is("getTaskRevision", "One of a task's revisions."),
        Route::get(route::SCHEDULES, VIEWER, schedules::list)
            .is("listSchedules", "A project's triggers, in the order of their tasks and names."),
        Route::get(route::TASK_FIRE_TIMES, VIEWER, schedules::fire_times)
            .is("getFireTimes", "When a task fires next, the earliest first."),
        Route::get(route::TASK_LEDGER, VIEWER, schedules::ledger)
            .is("getLedger", "What became of a task's fire times, the newest first; of a deleted task, too."),
        Route::post(route::TASK_PAUSE, OPERATOR, schedules::pause)
            .is("pauseTask", "A task, or one of its triggers, starts nothing by itself."),
        Route::post(route::TASK_RESUME, OPERATOR, schedules::resume).is("resumeTask", "That pause is over."),
        Route::post(route::TASK_BACKFILL, OPERATOR, schedules::backfill)
            .is("backfillTask", "Submits the runs of fire times that have passed, a page of them."),
        Route::post(route::TRIGGER_TOKEN, OPERATOR, webhooks::make_token)
            .is("makeWebhookToken", "Makes a webhook's token; one that it had stops. The one answer that holds it."),
        Route::post(route::HOOK, Needs::Webhook, webhooks::call)
            .is("callWebhook", "Starts a run of a webhook's task, unless one stands in the way."),
        Route::post(route::ENROLLMENTS, ADMIN, enrollments::create)
            .is("createEnrollment", "Allows one machine to become a worker. The one answer that holds a token."),
        Route::get(route::AUDIT, ADMIN, audit::audit).is("listAudit", "Who changed what, from where."),
    ]
}

/// Every operator route with its permission, for the documentation and for tests that must miss none.
pub fn routes() -> Vec<RouteInfo> {
    registry().into_iter().map(|route| route.info).collect()
}

/// The API's description, `OpenAPI` 3.1: of every operator route.
pub fn openapi() -> serde_json::Value {
    openapi::document(&registry())
}

/// Every operator route.
pub(crate) fn router(api: Api) -> Router {
    registry::mount(registry(), &api).fallback(unknown_route).method_not_allowed_fallback(wrong_method).with_state(api)
}

async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    ApiError::new(ProblemCode::NotFound, format!("there is no route {method} {}", cut(uri.path())))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::new(ProblemCode::MethodNotAllowed, format!("{} does not know {method}", cut(uri.path())))
}

fn cut(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_route_and_its_permission() {
        let listed: Vec<String> = routes()
            .iter()
            .map(|route| {
                let needs = match route.needs {
                    Needs::Nothing => "public",
                    Needs::Role(role) => role.as_str(),
                    Needs::Webhook => "webhook",
                };
                format!("{} {} {needs}", route.method, route.path)
            })
            .collect();
        let expected = [
            "GET /healthz public",
            "GET /readyz public",
            "GET /api/v1/openapi.json public",
            "GET /metrics viewer",
            "GET /api/v1/version viewer",
            "GET /api/v1/runs viewer",
            "POST /api/v1/runs operator",
            "GET /api/v1/runs/{run} viewer",
            "GET /api/v1/runs/{run}/log viewer",
            "GET /api/v1/runs/{run}/events viewer",
            "GET /api/v1/runs/{run}/explanation viewer",
            "POST /api/v1/runs/{run}/cancel operator",
            "POST /api/v1/runs/{run}/resolve operator",
            "GET /api/v1/workers viewer",
            "GET /api/v1/workers/{worker} viewer",
            "DELETE /api/v1/workers/{worker} admin",
            "POST /api/v1/workers/{worker}/drain operator",
            "POST /api/v1/workers/{worker}/resume operator",
            "POST /api/v1/workers/{worker}/grant-takeover admin",
            "GET /api/v1/projects viewer",
            "POST /api/v1/projects admin",
            "GET /api/v1/projects/{project} viewer",
            "PUT /api/v1/projects/{project} admin",
            "DELETE /api/v1/projects/{project} admin",
            "GET /api/v1/projects/{project}/tasks viewer",
            "PUT /api/v1/projects/{project}/tasks operator",
            "POST /api/v1/projects/{project}/task-plan viewer",
            "GET /api/v1/projects/{project}/tasks/{task} viewer",
            "PUT /api/v1/projects/{project}/tasks/{task} operator",
            "DELETE /api/v1/projects/{project}/tasks/{task} operator",
            "POST /api/v1/projects/{project}/tasks/{task}/runs operator",
            "GET /api/v1/projects/{project}/tasks/{task}/revisions viewer",
            "GET /api/v1/projects/{project}/tasks/{task}/revisions/{number} viewer",
            "GET /api/v1/projects/{project}/schedules viewer",
            "GET /api/v1/projects/{project}/tasks/{task}/fire-times viewer",
            "GET /api/v1/projects/{project}/tasks/{task}/ledger viewer",
            "POST /api/v1/projects/{project}/tasks/{task}/pause operator",
            "POST /api/v1/projects/{project}/tasks/{task}/resume operator",
            "POST /api/v1/projects/{project}/tasks/{task}/backfill operator",
            "POST /api/v1/projects/{project}/tasks/{task}/triggers/{trigger}/token operator",
            "POST /api/v1/hooks/{project}/{task}/{trigger} webhook",
            "POST /api/v1/enrollments admin",
            "GET /api/v1/audit admin",
        ];
        assert_eq!(listed, expected);
    }

    #[test]
    fn no_route_stands_twice_and_nothing_that_changes_is_public() {
        let mut seen = HashSet::new();
        for route in routes() {
            assert!(seen.insert((route.method.clone(), route.path)), "{} {}", route.method, route.path);
            // A plan is asked with a body, and changes nothing.
            let changes = route.method != Method::GET && route.path != route::TASKS_PLAN;
            let needs_more_than_reading = match route.needs {
                Needs::Nothing => false,
                Needs::Role(role) => role.includes(Role::Operator),
                Needs::Webhook => true,
            };
            assert!(!changes || needs_more_than_reading, "{} {}", route.method, route.path);
        }
    }
}
