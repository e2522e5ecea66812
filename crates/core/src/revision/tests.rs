//! The shape of a task file: defaults, cross-field rules, limits, and a digest that never changes.

use super::*;
use crate::limits::{RUN_LEASE, RUN_LEASE_RETRY};
use crate::run::OnLost;
use crate::time::Millis;

fn value(json: &str) -> Value {
    Value::parse(json.as_bytes(), 1 << 20).unwrap_or_else(|error| panic!("{error}"))
}

fn revision(json: &str) -> Revision {
    Revision::from_value(&value(json)).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A revision with `argv` and these further keys.
fn with(keys: &str) -> String {
    format!(r#"{{"command":{{"argv":["true"]}}{}{keys}}}"#, if keys.is_empty() { "" } else { "," })
}

fn mistakes(json: &str) -> Vec<String> {
    let errors = Revision::from_value(&value(json)).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

/// The task file of the product's description, as the command line would hand it over.
const REPORT: &str = r#"{
    "name": "nightly-report",
    "description": "Sales report for the team",
    "command": {
        "script": "python3 report.py --day \"$PARAM_DAY\"\n",
        "interpreter": ["bash", "-euo", "pipefail"],
        "working_dir": "/srv/reports"
    },
    "env": {"TZ": "Asia/Shanghai", "DB_PASSWORD": {"secret": "reports-db"}},
    "params": {"DAY": {"default": "yesterday", "description": "which day"}},
    "placement": {
        "require": {
            "arch": ["x86_64", "aarch64"], "runtimes": {"python": ">=3.11"}, "labels": {"site": "office"},
            "memory_mib": 512, "features": ["cgroup-kill"]
        },
        "prefer": [{"label": "disk=ssd", "weight": 10}]
    },
    "limits": {
        "timeout": "30m", "grace": "10s", "memory_mib": 1024, "log_mib": 64, "concurrency": 1, "mutex": false,
        "lease": "10m", "start": "10m"
    },
    "retry": {
        "max_attempts": 3, "on": ["failed"], "on_lost": "retry", "safety": "idempotent",
        "backoff": {"initial": "10s", "max": "10m"}
    },
    "trigger": [{
        "cron": "0 3 * * *", "time_zone": "Asia/Shanghai", "catchup": "latest", "overlap": "skip", "jitter": "30s"
    }],
    "artifacts": {"collect": ["report.csv"]},
    "notify": {"on": ["failed", "lost", "recovered"], "webhook": {"secret": "team-webhook-url"}}
}"#;

#[test]
fn a_command_has_every_default_written_out_and_a_stable_digest() {
    let revision = Revision::of_argv(["true"]).unwrap();
    assert_eq!(
        revision.to_value().to_canonical_text(),
        concat!(
            r#"{"after":[],"artifacts":{"collect":[]},"command":{"argv":["true"],"merge_streams":false},"env":{},"#,
            r#""inputs":{},"limits":{"artifact_upload":"10m","best_effort":false,"grace":"10s","#,
            r#""keep_descendants":false,"lease":"10m","log_mib":64,"mutex":false,"on_lease_loss":"stop","start":"10m"},"#,
            r#""params":{},"placement":{"prefer":[],"require":{"arch":[],"disk_mib":0,"executors":["process"],"#,
            r#""features":[],"labels":{},"memory_mib":0,"os":[],"runtimes":{},"worker_ids":[]}},"priority":0,"#,
            r#""retry":{"backoff":{"initial":"10s","max":"10m"},"max_attempts":1,"on":["failed"],"on_lost":"hold","#,
            r#""safety":"none"},"trigger":[]}"#
        )
    );
    // printf 'leasehold/revision/v1\0…' | sha256sum. It never changes: stored revisions would no longer be themselves.
    assert_eq!(revision.digest().to_string(), "4808d101a4e578efad5603cb8e8d72b64ad1f9ae52777a1c9298df74d7b4e888");
}

#[test]
fn the_task_file_of_the_documentation_is_understood() {
    let report = revision(REPORT);
    assert_eq!(report.name().map(TaskName::as_str), Some("nightly-report"));
    assert_eq!(report.limits().timeout, Some(Millis::from_secs(1800)));
    assert!(report.placement().require().features.contains("cgroup-memory"), "a limit implies its feature");
    assert_eq!(report.triggers()[0].name.as_str(), "cron");
    assert_eq!(report.public_variables()["PARAM_DAY"], "yesterday");
    assert!(!report.public_variables().contains_key("DB_PASSWORD"));
    assert_eq!(report.secrets().into_iter().map(SecretName::as_str).collect::<Vec<_>>(), ["reports-db"]);
    assert!(report.needs_materials());
    assert_eq!(report.digest().to_string(), "82fe45de3397804a6119289cf1f9620d883d0bf3346e8db10da709cafbc447d3");
}

#[test]
fn the_canonical_form_is_read_back_as_itself() {
    for json in [
        REPORT,
        &with(""),
        &with(
            r#""trigger":[{"webhook":true,"name":"push","overlap":"allow-all"},{"cron":"@every 90s"},{"cron":"@daily","name":"a"}]"#,
        ),
        &with(r#""inputs":{"in/data.csv":{"task":"other","artifact":"out.csv"}},"after":["b","a"],"priority":-100"#),
        &with(r#""limits":{"cpu":"0.50","pids":9,"best_effort":true},"notify":{"ntfy":{"secret":"s"}}"#),
        &with(r#""limits":{"memory_mib":1,"cpu":2,"pids":9},"env":{"K":{"secret":"s","file":true},"E":""}"#),
    ] {
        let read = revision(json);
        let bytes = read.to_canonical_bytes();
        assert_eq!(Revision::from_canonical_bytes(&bytes).map(|again| again.digest()), Ok(read.digest()), "{json}");
        assert_eq!(Revision::from_canonical_bytes(&bytes), Ok(read), "{json}");
    }
}

#[test]
fn stored_bytes_without_their_defaults_are_refused() {
    assert!(Revision::from_canonical_bytes(br#"{"command":{"argv":["true"]}}"#).is_err());
    assert!(Revision::from_canonical_bytes(br#"{ "command":{"argv":["true"]}}"#).is_err());
}

#[test]
fn the_lease_is_short_where_a_lost_run_is_retried_by_itself() {
    assert_eq!(revision(&with("")).limits().lease, RUN_LEASE);
    let retried = revision(&with(r#""retry":{"on_lost":"retry","safety":"deduplicated"}"#));
    assert_eq!(retried.limits().lease, RUN_LEASE_RETRY);
    assert_eq!(retried.policy().on_lost, OnLost::Retry);
}

#[test]
fn limits_imply_features_unless_best_effort_will_do() {
    let features = |extra: &str| {
        let json = with(&format!(r#""limits":{{"memory_mib":64,"cpu":"1.5","pids":10{extra}}}"#));
        revision(&json).placement().require().features.iter().cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(features(""), "cgroup-cpu cgroup-memory cgroup-pids");
    assert_eq!(features(r#","best_effort":true"#), "");
}

#[test]
fn a_limit_is_kept_by_its_control_group_or_as_well_as_the_revision_allows() {
    use crate::attempt::{LimitMeans, LimitsKept};
    let limits = |extra: &str| {
        let json = with(&format!(r#""limits":{{"memory_mib":64,"cpu":"1.5"{extra}}}"#));
        revision(&json).limits().clone()
    };
    let features = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let memory_only = features(&["cgroup-kill", "cgroup-memory"]);
    assert_eq!(limits("").kept(&memory_only), Err("cgroup-cpu"));
    let lenient = limits(r#","pids":9,"best_effort":true"#);
    let by = |memory, cpu, pids| Ok(LimitsKept { memory: Some(memory), cpu: Some(cpu), pids: Some(pids) });
    assert_eq!(lenient.kept(&memory_only), by(LimitMeans::Cgroup, LimitMeans::None, LimitMeans::Rlimit));
    assert_eq!(lenient.kept(&features(&[])), by(LimitMeans::Rlimit, LimitMeans::None, LimitMeans::Rlimit));
    let all = features(&["cgroup-memory", "cgroup-cpu", "cgroup-pids"]);
    assert_eq!(lenient.kept(&all), by(LimitMeans::Cgroup, LimitMeans::Cgroup, LimitMeans::Cgroup));
    assert_eq!(revision(&with("")).limits().kept(&features(&[])), Ok(LimitsKept::default()));
}

#[test]
fn every_mistake_has_its_words() {
    for (json, expected) in [
        ("{}", "`command`: missing"),
        (r#"{"command":{}}"#, "got neither `argv` nor `script`, expected exactly one of them"),
        (r#"{"command":{"argv":["a"],"script":"b"}}"#, "got both `argv` and `script`"),
        (r#"{"comand":{"argv":["a"]}}"#, "`comand`: unknown key, did you mean `command`?"),
        (r#"{"command":{"scirpt":"b"}}"#, "`command.scirpt`: unknown key, did you mean `script`?"),
        (r#"{"command":{"argv":[]}}"#, "`command.argv`: got an empty list"),
        (r#"{"command":{"argv":[""]}}"#, "`command.argv[0]`: got an empty text"),
        (r#"{"command":{"argv":["a\u0000"]}}"#, "NUL"),
        (r#"{"command":{"argv":["a"],"interpreter":["sh"]}}"#, "`interpreter` only with `script`"),
        (r#"{"command":{"script":""}}"#, "`command.script`: got an empty text"),
        (r#"{"command":{"argv":["a"],"working_dir":"srv"}}"#, "an absolute path"),
        (&with(r#""tigger":[]"#), "`tigger`: unknown key, did you mean `trigger`?"),
        (&with(r#""limits":{"timeuot":"1s"}"#), "`limits.timeuot`: unknown key, did you mean `timeout`?"),
        (&with(r#""limits":{"timeout":30}"#), "`limits.timeout`: got an integer, expected a duration"),
        (
            &with(r#""limits":{"lease":"24s"}"#),
            "`limits.lease`: got 24s, expected a duration from 25s to 1d, such as 5m or 1h30m",
        ),
        (&with(r#""limits":{"lease":"25h"}"#), "`limits.lease`"),
        (&with(r#""limits":{"cpu":"1.0001"}"#), "`limits.cpu`"),
        (&with(r#""limits":{"cpu":"0"}"#), "`limits.cpu`"),
        (
            &with(r#""limits":{"on_lease_loss":"finish"}"#),
            "`limits.on_lease_loss`: got finish with on_lost = hold, mutex = false",
        ),
        (
            &with(r#""limits":{"on_lease_loss":"finish","mutex":true},"retry":{"on_lost":"fail"}"#),
            "`limits.on_lease_loss`: got finish with on_lost = fail, mutex = true",
        ),
        (&with(r#""retry":{"on_lost":"retry"}"#), "`retry.on_lost`: got retry without declared safety"),
        (&with(r#""retry":{"max_attempts":0}"#), "`retry.max_attempts`: got 0"),
        (&with(r#""retry":{"on":["lost"]}"#), "`retry.on[0]`: got `lost`, expected one of failed, timed_out"),
        (
            &with(r#""retry":{"backoff":{"initial":"1h","max":"1m"}}"#),
            "`retry.backoff.max`: got 1m, expected at least 1h",
        ),
        (&with(r#""priority":101"#), "`priority`: got 101"),
        (&with(r#""env":{"1A":"x"}"#), "the name `1A`"),
        (&with(r#""env":{"LEASEHOLD_FENCE":"9"}"#), "the name `LEASEHOLD_FENCE`"),
        (&with(r#""env":{"A":1}"#), "`env.A`: got an integer, expected a text"),
        (&with(r#""env":{"A":{"secret":"No Label"}}"#), "`env.A.secret`"),
        (&with(r#""env":{"A":{}}"#), "`env.A.secret`: missing"),
        (&with(r#""env":{"PARAM_A":"x"},"params":{"A":{}}"#), "`env`: got `PARAM_A` and a parameter of that name"),
        (&with(r#""trigger":[{}]"#), "got neither `cron` nor `webhook = true`"),
        (&with(r#""trigger":[{"cron":"@daily","webhook":true}]"#), "got both `cron` and `webhook`"),
        (&with(r#""trigger":[{"webhook":false}]"#), "got neither `cron` nor `webhook = true`"),
        (&with(r#""trigger":[{"webhok":true}]"#), "`trigger[0].webhok`: unknown key, did you mean `webhook`?"),
        (&with(r#""trigger":[{"webhook":"yes"}]"#), "`trigger[0].webhook`: got a text, expected true or false"),
        (&with(r#""trigger":[{"crn":"@daily"}]"#), "`trigger[0].crn`: unknown key, did you mean `cron`?"),
        (&with(r#""trigger":[{"cron":"* * *"}]"#), "5 or 6 fields"),
        (&with(r#""trigger":[{"cron":"@fortnightly"}]"#), "5 or 6 fields"),
        (&with(r#""trigger":[{"cron":"@daily"},{"cron":"@hourly"}]"#), "a `name` of its own"),
        (&with(r#""trigger":[{"webhook":true,"jitter":"1s"}]"#), "it only with `cron`"),
        (&with(r#""trigger":[{"webhook":true,"overlap":"buffer-one"}]"#), "skip or allow-all: a call never waits"),
        (&with(r#""trigger":[{"webhook":true,"overlap":"cancel-other"}]"#), "got `cancel-other` with a webhook"),
        (&with(r#""trigger":[{"cron":"@daily","overlap":"skp"}]"#), "(did you mean `skip`?)"),
        (&with(r#""trigger":[{"cron":"@daily","time_zone":"/etc/passwd"}]"#), "an IANA time zone"),
        (&with(r#""artifacts":{"collect":["../x"]}"#), "a relative path"),
        (&with(r#""inputs":{"/etc/x":{"task":"a","artifact":"b"}}"#), "the path `/etc/x`"),
        (&with(r#""after":["a","a"]"#), "`after[1]`: got the same member twice"),
        (&with(r#""notify":{"on":["failed"]}"#), "`notify`: got no channel"),
        (&with(r#""notify":{"mial":{"secret":"a"}}"#), "`notify.mial`: unknown key, did you mean `mail`?"),
        (&with(r#""notify":{"mail":{"secret":"b"},"pager":{"secret":"a"}}"#), "`notify.pager`: unknown key"),
        (&with(r#""placement":{"require":{"runtimes":{"python":"latest"}}}"#), "`placement.require.runtimes.python`"),
    ] {
        let got = mistakes(json);
        assert_eq!(got.len(), 1, "{json}: {got:?}");
        assert!(got[0].contains(expected), "{json}: {}", got[0]);
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    assert_eq!(mistakes(&with(r#""priority":1000,"x":1,"limits":{"grace":"x"},"env":{"=":"y"}"#)).len(), 4);
}

#[test]
fn the_whole_is_bounded() {
    let argument = "x".repeat(32 * 1024);
    let argv = |count| Revision::of_argv(std::iter::repeat_n(argument.as_str(), count));
    assert!(argv(2).is_ok());
    let errors = argv(3).unwrap_err();
    assert!(errors[0].to_string().contains("at most 98304 bytes"), "{errors:?}");
}

#[test]
fn parameters_are_pinned_by_name() {
    let task = revision(&with(r#""params":{"DAY":{"default":"today"},"CITY":{}}"#));
    let say = |pairs: &[(&str, &str)]| {
        task.with_parameters(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    };
    let run = say(&[("CITY", "Ulm")]).unwrap();
    assert_eq!(run.public_variables()["PARAM_CITY"], "Ulm");
    assert_eq!(run.public_variables()["PARAM_DAY"], "today");
    assert_ne!(run.digest(), task.digest());
    let told = |pairs: &[(&str, &str)]| say(pairs).unwrap_err().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told(&[]), ["`params.CITY`: missing: a value, since the parameter has no default"]);
    assert_eq!(told(&[("CITY", "Ulm"), ("a\nb", "x")]), ["`params.\"a\u{fffd}b\"`: unknown key, known are CITY, DAY"]);
    assert!(say(&[("CITY", "Ulm"), ("DAYS", "x")]).unwrap_err()[0].to_string().contains("did you mean `DAY`?"));
    assert!(say(&[("CITY", "a\0b")]).is_err());
}

#[test]
fn shares_of_processors_have_one_spelling() {
    for (text, spelled, milli) in
        [("1.5", "1.5", 1500), ("2", "2", 2000), ("0.050", "0.05", 50), ("01.10", "1.1", 1100)]
    {
        let cpu: Cpu = text.parse().unwrap();
        assert_eq!((cpu.to_string().as_str(), cpu.milli()), (spelled, milli));
    }
    for text in ["", ".", "1.", ".5", "-1", "0", "0.0001", "1e3", "1025", "99999"] {
        assert!(text.parse::<Cpu>().is_err(), "{text}");
    }
}
