//! The operator routes: a file per resource, and one registry that says what it takes to use each.
//!
//! Served on the API's port and on the admin socket alike. Every refusal is problem+json: unknown routes, wrong methods and
//! wrong content types too. (Product, *The command line*; control design, *Security*.)

mod access;
mod answer;
mod audit;
mod cancel;
mod delete;
mod drain;
mod enrollments;
mod events;
mod explanation;
mod health;
mod log;
mod metrics;
mod problem;
mod projects;
mod query;
mod registry;
mod request;
mod resolve;
mod runs;
mod sse;
mod takeover;
mod tasks;
mod version;
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

/// What the operator routes share.
#[derive(Clone)]
pub(crate) struct Api {
    /// The services.
    pub(crate) control: ControlPlane,
    /// Where workers find the ingress, for the line that enrolls one.
    pub(crate) ingress_url: Arc<str>,
    /// Ends streams.
    pub(crate) drain: Drain,
}

/// The registry.
fn registry() -> Vec<Route> {
    const VIEWER: Needs = Needs::Role(Role::Viewer);
    const OPERATOR: Needs = Needs::Role(Role::Operator);
    const ADMIN: Needs = Needs::Role(Role::Admin);
    vec![
        Route::get(route::HEALTHZ, Needs::Nothing, health::healthz),
        Route::get(route::READYZ, Needs::Nothing, health::readyz),
        Route::get(route::METRICS, VIEWER, metrics::metrics),
        Route::get(route::VERSION, VIEWER, version::version),
        Route::get(route::RUNS, VIEWER, runs::list),
        Route::post(route::RUNS, OPERATOR, runs::submit),
        Route::get(route::RUN, VIEWER, runs::get),
        Route::get(route::RUN_LOG, VIEWER, log::log),
        Route::get(route::RUN_EVENTS, VIEWER, events::events),
        Route::get(route::RUN_EXPLANATION, VIEWER, explanation::explanation),
        Route::post(route::RUN_CANCEL, OPERATOR, cancel::cancel),
        Route::post(route::RUN_RESOLVE, OPERATOR, resolve::resolve),
        Route::get(route::WORKERS, VIEWER, workers::list),
        Route::get(route::WORKER, VIEWER, workers::get),
        Route::delete(route::WORKER, ADMIN, delete::delete),
        Route::post(route::WORKER_DRAIN, OPERATOR, drain::drain),
        Route::post(route::WORKER_RESUME, OPERATOR, drain::resume),
        Route::post(route::WORKER_TAKEOVER, ADMIN, takeover::grant),
        Route::get(route::PROJECTS, VIEWER, projects::list),
        Route::post(route::PROJECTS, ADMIN, projects::create),
        Route::get(route::PROJECT, VIEWER, projects::get),
        Route::put(route::PROJECT, ADMIN, projects::set),
        Route::delete(route::PROJECT, ADMIN, projects::delete),
        Route::get(route::TASKS, VIEWER, tasks::list),
        Route::put(route::TASKS, OPERATOR, tasks::apply),
        Route::post(route::TASKS_PLAN, VIEWER, tasks::plan),
        Route::get(route::TASK, VIEWER, tasks::get),
        Route::delete(route::TASK, OPERATOR, tasks::delete),
        Route::post(route::TASK_RUNS, OPERATOR, tasks::run),
        Route::get(route::TASK_REVISIONS, VIEWER, tasks::revisions),
        Route::get(route::TASK_REVISION, VIEWER, tasks::revision),
        Route::post(route::ENROLLMENTS, ADMIN, enrollments::create),
        Route::get(route::AUDIT, ADMIN, audit::audit),
    ]
}

/// Every operator route with its permission, for the documentation and for tests that must miss none.
pub fn routes() -> Vec<RouteInfo> {
    registry().into_iter().map(|route| route.info).collect()
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
                };
                format!("{} {} {needs}", route.method, route.path)
            })
            .collect();
        let expected = [
            "GET /healthz public",
            "GET /readyz public",
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
            "DELETE /api/v1/projects/{project}/tasks/{task} operator",
            "POST /api/v1/projects/{project}/tasks/{task}/runs operator",
            "GET /api/v1/projects/{project}/tasks/{task}/revisions viewer",
            "GET /api/v1/projects/{project}/tasks/{task}/revisions/{number} viewer",
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
            let needs_more_than_reading = matches!(route.needs, Needs::Role(role) if role.includes(Role::Operator));
            assert!(!changes || needs_more_than_reading, "{} {}", route.method, route.path);
        }
    }
}
