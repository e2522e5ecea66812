//! Every route of the operator API: the template that a server mounts, and the path that a client asks.

/// `POST` submits a run, `GET` lists runs (`?project=&state=&task=&since=&limit=&after=`, `state` repeatable).
pub const RUNS: &str = "/api/v1/runs";
/// `GET`: one run; `{run}` is an id or the beginning of one.
pub const RUN: &str = "/api/v1/runs/{run}";
/// `POST`: the run is to stop.
pub const RUN_CANCEL: &str = "/api/v1/runs/{run}/cancel";
/// `POST`: what is to become of a lost run.
pub const RUN_RESOLVE: &str = "/api/v1/runs/{run}/resolve";
/// `GET`: a page of the run's events (`?after=&limit=`); with `?follow=true` server-sent events, resumed with `Last-Event-ID`.
pub const RUN_EVENTS: &str = "/api/v1/runs/{run}/events";
/// `GET`: why the run is still pending; of a lost one, what is known and what a person may say.
pub const RUN_EXPLANATION: &str = "/api/v1/runs/{run}/explanation";
/// `GET`: the run's output as server-sent events (`?follow=true|false&attempt=N`; resumes with `Last-Event-ID`),
/// or its plain bytes (`?format=raw&stream=stdout|stderr&attempt=N`).
pub const RUN_LOG: &str = "/api/v1/runs/{run}/log";
/// `GET`: the workers (`?limit=&after=`).
pub const WORKERS: &str = "/api/v1/workers";
/// `GET`: one worker; `DELETE`: its identity ends.
pub const WORKER: &str = "/api/v1/workers/{worker}";
/// `POST`: the worker is given nothing new.
pub const WORKER_DRAIN: &str = "/api/v1/workers/{worker}/drain";
/// `POST`: the worker takes work again.
pub const WORKER_RESUME: &str = "/api/v1/workers/{worker}/resume";
/// `POST`: the worker's next registration that would be kept out is let in, once.
pub const WORKER_TAKEOVER: &str = "/api/v1/workers/{worker}/grant-takeover";
/// `GET`: the projects (`?limit=&after=`); `POST`: makes one.
pub const PROJECTS: &str = "/api/v1/projects";
/// `GET`: one project; `PUT`: its settings, whole; `DELETE`: it ends, once nothing of it is open.
pub const PROJECT: &str = "/api/v1/projects/{project}";
/// `GET`: a project's tasks (`?limit=&after=`); `PUT`: what they are from now on.
pub const TASKS: &str = "/api/v1/projects/{project}/tasks";
/// `POST`: what applying tasks would do.
pub const TASKS_PLAN: &str = "/api/v1/projects/{project}/task-plan";
/// `GET`: one task; `PUT`: what it is from now on; `DELETE`: it ends (`?cascade=true`: with its runs).
pub const TASK: &str = "/api/v1/projects/{project}/tasks/{task}";
/// `POST` submits a run of the task as it is.
pub const TASK_RUNS: &str = "/api/v1/projects/{project}/tasks/{task}/runs";
/// `GET`: the revisions that the task had, the newest first (`?limit=&after=`).
pub const TASK_REVISIONS: &str = "/api/v1/projects/{project}/tasks/{task}/revisions";
/// `GET`: one of them.
pub const TASK_REVISION: &str = "/api/v1/projects/{project}/tasks/{task}/revisions/{number}";
/// `GET`: a project's triggers (`?task=&limit=&after=`).
pub const SCHEDULES: &str = "/api/v1/projects/{project}/schedules";
/// `GET`: when a task fires next (`?trigger=&count=`).
pub const TASK_FIRE_TIMES: &str = "/api/v1/projects/{project}/tasks/{task}/fire-times";
/// `GET`: what became of a task's fire times, the newest first (`?trigger=&limit=&after=`).
pub const TASK_LEDGER: &str = "/api/v1/projects/{project}/tasks/{task}/ledger";
/// `POST`: a task, or one of its triggers, starts nothing by itself.
pub const TASK_PAUSE: &str = "/api/v1/projects/{project}/tasks/{task}/pause";
/// `POST`: that pause is over.
pub const TASK_RESUME: &str = "/api/v1/projects/{project}/tasks/{task}/resume";
/// `POST`: the runs of fire times that have passed.
pub const TASK_BACKFILL: &str = "/api/v1/projects/{project}/tasks/{task}/backfill";
/// `POST`: a new token of a webhook.
pub const TRIGGER_TOKEN: &str = "/api/v1/projects/{project}/tasks/{task}/triggers/{trigger}/token";
/// `POST` calls a webhook, with its own token.
pub const HOOK: &str = "/api/v1/hooks/{project}/{task}/{trigger}";
/// `POST`: allows one machine to become a worker.
pub const ENROLLMENTS: &str = "/api/v1/enrollments";
/// `GET`: a page of the audit, oldest first (`?limit=&after=`); with `?newest=true` newest first.
pub const AUDIT: &str = "/api/v1/audit";
/// `GET`: the API's description, `OpenAPI` 3.1.
pub const OPENAPI: &str = "/api/v1/openapi.json";
/// `GET`: what the control plane is and speaks.
pub const VERSION: &str = "/api/v1/version";
/// `GET`: the process lives.
pub const HEALTHZ: &str = "/healthz";
/// `GET`: it can do its work now.
pub const READYZ: &str = "/readyz";

/// `GET`: what is counted, for Prometheus (`OpenMetrics` text).
pub const METRICS: &str = "/metrics";

/// The header that makes creating safe to repeat.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The path of a template of one run. `run` is percent-encoded where it must be.
pub fn of_run(template: &str, run: &str) -> String {
    template.replace("{run}", &segment(run))
}

/// The path of a template of one worker. `worker` is percent-encoded where it must be.
pub fn of_worker(template: &str, worker: &str) -> String {
    template.replace("{worker}", &segment(worker))
}

/// The path of a template of one project. `project` is percent-encoded where it must be.
pub fn of_project(template: &str, project: &str) -> String {
    template.replace("{project}", &segment(project))
}

/// The path of a template of one task. Both names are percent-encoded where they must be.
pub fn of_task(template: &str, project: &str, task: &str) -> String {
    of_project(template, project).replace("{task}", &segment(task))
}

/// The path of a template of one trigger. All names are percent-encoded where they must be.
pub fn of_trigger(template: &str, project: &str, task: &str, trigger: &str) -> String {
    of_task(template, project, task).replace("{trigger}", &segment(trigger))
}

/// A text as one segment of a path, or one value of a query: what a person typed cannot reach another route.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            // Dots too: a segment of dots alone would walk up the path.
            _ => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(digit.into(), 16).map_or('0', |digit| digit.to_ascii_uppercase()));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_typed_stays_one_segment() {
        assert_eq!(of_run(RUN, "0190"), "/api/v1/runs/0190");
        assert_eq!(of_run(RUN_LOG, "../workers?x"), "/api/v1/runs/%2E%2E%2Fworkers%3Fx/log");
        assert_eq!(of_worker(WORKER, "büro"), "/api/v1/workers/b%C3%BCro");
        assert_eq!(of_project(PROJECT, "a/b"), "/api/v1/projects/a%2Fb");
        assert_eq!(of_trigger(HOOK, "lab", "report", "a/b"), "/api/v1/hooks/lab/report/a%2Fb");
        assert_eq!(of_task(TASK, "{task}", "a/b"), "/api/v1/projects/%7Btask%7D/tasks/a%2Fb");
    }
}
