//! The JSON Schema of a task file, for editors, and of the revision that requests and answers carry.
//!
//! It says what core's strict reader says, as far as a schema can: keys, types, closed sets, bounds of numbers and lists. What
//! needs more than one field, and lengths in bytes, only the reader judges. A test holds the keys of each table to the
//! reader's own.

use leasehold_core::limits as most;
use leasehold_core::revision::{CatchUp, Channel, NotifyOn, OnLeaseLoss, Overlap, RetryOn, Safety};
use leasehold_core::run::OnLost;
use serde_json::{Map, Value, json};

/// The schema of a task file.
pub fn of_files() -> Value {
    let mut schema = revision(&json!(["string", "number"]));
    let about = [
        ("$schema", "https://json-schema.org/draft/2020-12/schema"),
        ("title", "A task file of Leasehold"),
        ("description", "What should run, where, when, and how many at once (TOML). `leasehold task apply -f FILE`."),
    ];
    for (key, text) in about {
        schema[key] = text.into();
    }
    // A task has a name; a run may have none.
    schema["required"] = json!(["name", "command"]);
    schema
}

/// The schema of a revision in a request or an answer, where a number is a whole one.
pub(super) fn of_requests() -> Value {
    let mut schema = revision(&json!(["string", "integer"]));
    schema["description"] = "What a run executes and how, in the shape of a task file.".into();
    schema
}

fn revision(cpu: &Value) -> Value {
    let mut schema = table(
        "A task.",
        &[
            ("name", name("What the task is called within its project.")),
            ("description", text("What it is for.")),
            ("command", command()),
            ("env", environment()),
            ("params", parameters()),
            ("placement", placement()),
            ("limits", limits(cpu)),
            ("retry", retry()),
            ("priority", whole("Higher is served first.", -most::PRIORITY, most::PRIORITY)),
            ("trigger", list("What starts runs by itself.", trigger(), most::TRIGGERS)),
            ("after", set("Tasks that must all have succeeded first.", name("A task."), most::PREDECESSORS)),
            ("inputs", inputs()),
            ("artifacts", artifacts()),
            ("notify", notify()),
        ],
    );
    schema["required"] = json!(["command"]);
    schema
}

fn command() -> Value {
    let mut schema = table(
        "What is executed: exactly one of `argv` and `script`.",
        &[
            ("argv", arguments("The program and its arguments.")),
            ("script", json!({ "type": "string", "minLength": 1, "description": "A script, given to `interpreter`." })),
            ("interpreter", arguments("What executes the script, with its arguments.")),
            ("working_dir", pattern("An absolute path on the worker; without it a fresh private directory.", "^/")),
            ("merge_streams", switch("Whether standard error goes into standard output.")),
            ("run_as", name("The user of the machine that it runs as.")),
        ],
    );
    schema["oneOf"] = json!([{ "required": ["argv"] }, { "required": ["script"] }]);
    schema
}

fn environment() -> Value {
    let secret = table(
        "A secret.",
        &[("secret", name("The name of the secret.")), ("file", switch("Whether it is given as a file."))],
    );
    let secret = requiring(secret, &["secret"]);
    free(
        "Environment variables by name.",
        VARIABLE,
        &json!({ "oneOf": [{ "type": "string" }, secret] }),
        most::VARIABLES,
    )
}

fn parameters() -> Value {
    let parameter = table(
        "A parameter.",
        &[
            ("default", text("What it says unless a run says otherwise; without it every run must say it.")),
            ("description", text("What it is for.")),
            ("file", switch("Whether it is given as a file.")),
        ],
    );
    free("Parameters by name; the process sees `PARAM_<NAME>`.", VARIABLE, &parameter, most::PARAMETERS)
}

fn placement() -> Value {
    let mut preference = table(
        "A worker with these labels is better by this weight.",
        &[
            ("label", pattern("One label, such as `disk=ssd`.", "^[^=]+=.+$")),
            ("labels", labels()),
            (
                "weight",
                whole(
                    "How much better; worse where it is negative.",
                    -most::PREFERENCE_WEIGHT,
                    most::PREFERENCE_WEIGHT,
                ),
            ),
        ],
    );
    preference["required"] = json!(["weight"]);
    preference["oneOf"] = json!([{ "required": ["label"] }, { "required": ["labels"] }]);
    let names = |about: &str, limit| set(about, name("A name."), limit);
    let range = pattern("A range of versions, such as `>=3.11`.", "^.+$");
    let mut executors = names("All of these executors.", most::COLLECTION);
    executors["minItems"] = 1.into();
    let require = table(
        "What a worker must have.",
        &[
            ("arch", names("One of these architectures.", most::COLLECTION)),
            ("os", names("One of these operating systems.", most::COLLECTION)),
            ("executors", executors),
            ("runtimes", free("All of these runtimes, each within its range.", NAME, &range, most::COLLECTION)),
            ("labels", labels()),
            ("memory_mib", whole("At least this much memory, in MiB.", 0, most::SIZE_MIB)),
            ("disk_mib", whole("At least this much disk, in MiB.", 0, most::SIZE_MIB)),
            ("gpu", gpu()),
            ("features", names("All of these features.", most::FEATURES)),
            ("worker_ids", names("One of these workers.", most::COLLECTION)),
        ],
    );
    let prefer = list("What makes one worker better than another.", preference, most::PREFERENCES);
    table("Where it may run, and where best.", &[("require", require), ("prefer", prefer)])
}

fn gpu() -> Value {
    table(
        "GPUs of one kind that the run gets for itself.",
        &[
            ("vendor", name("Made by this vendor.")),
            ("model", name("Of this model.")),
            ("memory_mib", whole("With at least this much memory each, in MiB.", 0, most::SIZE_MIB)),
            ("count", whole("How many.", 1, bound(most::GPUS))),
        ],
    )
}

fn limits(cpu: &Value) -> Value {
    let size = |about: &str, high: u32| whole(about, 1, high.into());
    table(
        "How long, how much, how many.",
        &[
            ("timeout", span("How long the process may run.")),
            ("grace", span("Between SIGTERM and SIGKILL.")),
            ("memory_mib", whole("Memory of the job, in MiB.", 1, most::SIZE_MIB)),
            ("cpu", json!({ "type": cpu, "description": "Processors of the job, such as 2 or \"1.5\"." })),
            ("pids", size("Processes and threads of the job.", most::PIDS_MAX)),
            ("log_mib", size("Log quota, in MiB.", most::LOG_MIB_MAX)),
            ("concurrency", size("Runs of this task at once.", most::CONCURRENCY_MAX)),
            ("mutex", switch("Whether a lost run keeps its place until it is resolved.")),
            ("best_effort", switch("Whether a worker without control groups may do what it can.")),
            ("keep_descendants", switch("Whether descendants may outlive the job.")),
            ("on_lease_loss", one_of("What happens to a job whose lease nobody renews.", OnLeaseLoss::ALL)),
            ("artifact_upload", span("How long artifacts may take to upload before the end.")),
            ("lease", span("How long the machine may be out of reach before the run is declared lost.")),
            ("start", span("From claim to running.")),
        ],
    )
}

fn retry() -> Value {
    let backoff =
        table("The wait between attempts.", &[("initial", span("The first.")), ("max", span("The longest."))]);
    table(
        "When an attempt that ended badly is followed by another.",
        &[
            ("max_attempts", whole("Attempts in all.", 1, most::ATTEMPTS_MAX.into())),
            ("on", set("What a retry follows.", one_of("A cause.", RetryOn::ALL), RetryOn::ALL.len())),
            ("on_lost", one_of("What becomes of a lost run; `retry` needs `safety`.", OnLost::ALL)),
            ("safety", one_of("Why a second start cannot do harm.", Safety::ALL)),
            ("backoff", backoff),
        ],
    )
}

fn trigger() -> Value {
    let mut schema = table(
        "One thing that starts runs: exactly one of `cron` and `webhook = true`.",
        &[
            ("name", name("Its name within the task.")),
            ("cron", pattern("Five or six fields, or `@daily`, `@every 90s` and the like.", "^.+$")),
            ("webhook", switch("Whether calls start it; then `overlap` is `skip` or `allow-all`.")),
            (
                "time_zone",
                pattern("The IANA time zone of `cron`, such as Europe/Berlin.", "^[A-Za-z0-9_+-][A-Za-z0-9/_+-]*$"),
            ),
            ("catchup", one_of("What becomes of fire times that passed while nothing could fire.", CatchUp::ALL)),
            ("catchup_window", span("How far back a catch-up looks.")),
            ("catchup_max", whole("How many runs one catch-up starts.", 1, most::CATCHUP_RUNS_MAX.into())),
            ("overlap", one_of("What happens when a run is due while another is there.", Overlap::ALL)),
            ("jitter", span("How far fire times are spread.")),
        ],
    );
    // A pattern, since this part closes nothing: the table around it names the keys.
    let overlap = json!({ "^overlap$": { "enum": [Overlap::Skip.as_str(), Overlap::AllowAll.as_str()] } });
    schema["anyOf"] = json!([{ "required": ["cron"] }, { "required": ["webhook"], "patternProperties": overlap }]);
    schema
}

fn inputs() -> Value {
    let input = table("An input.", &[("task", name("The task that made it.")), ("artifact", text("Its name there."))]);
    let input = requiring(input, &["task", "artifact"]);
    free("Input artifacts by the relative path that the run finds them at.", "^[^/]", &input, most::INPUTS)
}

fn artifacts() -> Value {
    let pattern = text("A relative path, with `*` and `**`.");
    table("What is kept of a run.", &[("collect", set("Patterns of files.", pattern, most::ARTIFACT_PATTERNS))])
}

fn notify() -> Value {
    let cause = one_of("A cause.", NotifyOn::ALL);
    let mut entries = vec![("on", set("What people are told about.", cause, NotifyOn::ALL.len()))];
    for channel in Channel::ALL {
        let target = table("A channel.", &[("secret", name("The secret that holds its address."))]);
        entries.push((channel.as_str(), requiring(target, &["secret"])));
    }
    table("Who is told what, by at least one channel.", &entries)
}

const VARIABLE: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._/-]*$";

/// A table with these keys and no others.
fn table(about: &str, entries: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        entries.iter().map(|(key, schema)| ((*key).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "description": about, "additionalProperties": false, "properties": properties })
}

fn requiring(mut table: Value, keys: &[&str]) -> Value {
    table["required"] = json!(keys);
    table
}

/// A table whose keys people choose.
fn free(about: &str, keys: &str, value: &Value, limit: usize) -> Value {
    json!({
        "type": "object", "description": about, "maxProperties": limit,
        "additionalProperties": value, "propertyNames": { "pattern": keys },
    })
}

fn labels() -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    free("All of these labels, with these texts.", NAME, &text, most::LABELS)
}

fn arguments(about: &str) -> Value {
    json!({
        "type": "array", "description": about, "minItems": 1, "maxItems": most::ARGUMENTS,
        "items": { "type": "string" },
    })
}

fn list(about: &str, member: impl Into<Value>, limit: usize) -> Value {
    json!({ "type": "array", "description": about, "maxItems": limit, "items": member.into() })
}

fn set(about: &str, member: Value, limit: usize) -> Value {
    let mut schema = list(about, member, limit);
    schema["uniqueItems"] = true.into();
    schema
}

fn text(about: &str) -> Value {
    json!({ "type": "string", "description": about })
}

fn name(about: &str) -> Value {
    json!({ "type": "string", "description": about, "minLength": 1, "maxLength": most::NAME_BYTES })
}

fn pattern(about: &str, pattern: &str) -> Value {
    json!({ "type": "string", "description": about, "pattern": pattern })
}

fn span(about: &str) -> Value {
    let units = "^([0-9]+(ms|s|m|h|d))+$";
    json!({ "type": "string", "description": about, "pattern": units, "examples": ["10s", "5m", "1h30m"] })
}

fn switch(about: &str) -> Value {
    json!({ "type": "boolean", "description": about })
}

fn whole(about: &str, least: i64, greatest: i64) -> Value {
    json!({ "type": "integer", "description": about, "minimum": least, "maximum": greatest })
}

fn one_of<T: std::fmt::Display>(about: &str, all: &[T]) -> Value {
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    json!({ "type": "string", "description": about, "enum": names })
}

fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
