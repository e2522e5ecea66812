//! Bad input: each is refused with a sentence that names the problem and the fix, and with the documented exit code.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_sim::binaries;
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::process::{self, Ended};

#[track_caller]
fn refused(ended: &Ended, code: i32, words: &[&str]) {
    ended.expect_code(code);
    assert_eq!(ended.stdout, "", "an error goes to stderr\n{ended}");
    for word in words {
        assert!(ended.stderr.contains(word), "the sentence should say `{word}`\n{ended}");
    }
}

#[test]
fn an_unknown_flag_or_command_is_a_usage_error() -> Result<()> {
    let cluster = Cluster::prepare()?;
    refused(&cluster.cli(&["runs", "list", "--colour"])?, 2, &["--colour", "--help"]);
    refused(&cluster.cli(&["rnus"])?, 2, &["rnus", "runs"]);
    let worker = |argument: &str| process::run(std::process::Command::new(binaries::leasehold_worker()).arg(argument));
    refused(&worker("--colour")?, 2, &["--colour"]);
    refused(&worker("jion")?, 2, &["jion"]);
    Ok(())
}

#[test]
fn help_of_every_verb_teaches_by_example() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let verbs: [&[&str]; 14] = [
        &["up"],
        &["serve"],
        &["run"],
        &["runs"],
        &["runs", "list"],
        &["runs", "get"],
        &["runs", "logs"],
        &["runs", "cancel"],
        &["runs", "watch"],
        &["runs", "explain"],
        &["worker"],
        &["worker", "enroll"],
        &["worker", "list"],
        &["worker", "get"],
    ];
    for verb in verbs {
        let help = cluster.ask(&[verb, &["--help"]].concat());
        let example = format!("leasehold {}", verb.join(" "));
        assert!(help.contains("Example") && help.contains(&example), "`{example} --help` has no example:\n{help}");
    }
    Ok(())
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_fix() -> Result<()> {
    let cluster = Cluster::prepare()?;
    refused(&cluster.cli(&["runs", "list"])?, 1, &["leasehold up", "LEASEHOLD_ADDR"]);
    let mut dead = cluster.leasehold();
    dead.args(["runs", "list"]).env("LEASEHOLD_ADDR", format!("http://{}", cluster.api())).env("LEASEHOLD_TOKEN", "x");
    refused(&process::run(&mut dead)?, 1, &[&cluster.api()]);
    Ok(())
}

#[test]
fn a_wrong_token_is_not_allowed() -> Result<()> {
    let cluster = Cluster::start()?;
    let mut wrong = cluster.leasehold();
    wrong.args(["runs", "list"]).env("LEASEHOLD_ADDR", format!("http://{}", cluster.api()));
    let wrong_token = "A".repeat(43);
    wrong.env("LEASEHOLD_TOKEN", &wrong_token);
    let ended = process::run(&mut wrong)?;
    refused(&ended, 4, &["LEASEHOLD_TOKEN"]);
    assert!(!ended.stderr.contains(&wrong_token), "a token is never printed\n{ended}");
    cluster.shut_down()
}

#[test]
fn an_enrollment_token_works_once_and_for_its_lifetime() -> Result<()> {
    let cluster = Cluster::start()?;
    let join = |cluster: &Cluster, line: &str, state: &str| {
        let mut command = std::process::Command::new(binaries::leasehold_worker());
        command
            .args(line.split_whitespace().skip(1))
            .env("LEASEHOLD_WORKER_STATE_DIR", cluster.directory().join(state))
            .env("LEASEHOLD_WORKER_ALLOW_ROOT", "1");
        process::run(&mut command)
    };
    let line = cluster.ask(&["worker", "enroll", "--name", "once", "-q"]);
    join(&cluster, &line, "first")?.expect_code(0);
    refused(&join(&cluster, &line, "second")?, 1, &["worker enroll"]);

    let short = cluster.ask(&["worker", "enroll", "--name", "late", "--ttl", "1s", "-q"]);
    wait_out(Duration::from_secs(1))?;
    refused(&join(&cluster, &short, "late")?, 1, &["expired", "worker enroll"]);
    cluster.shut_down()
}

/// Lets a lifetime pass: here the clock is the fact.
#[expect(clippy::disallowed_methods, reason = "a lifetime is measured by the clock")]
fn wait_out(lifetime: Duration) -> Result<()> {
    let begin = Instant::now();
    eventually("a lifetime to end", || {
        if begin.elapsed() > lifetime { Ok(()) } else { Err(format!("{:?}", begin.elapsed())) }
    })
}

#[test]
fn a_port_in_use_is_named() -> Result<()> {
    let cluster = Cluster::prepare()?;
    let _holder = TcpListener::bind(cluster.api())?;
    let mut command = cluster.leasehold();
    command.arg("serve").arg("--data").arg(cluster.data()).args(cluster.listen_flags());
    let ended = process::run(&mut command)?;
    refused(&ended, 1, &[&cluster.api(), "--listen"]);
    let place = |word: &str| ended.stderr.find(word);
    assert!(place("another program") < place("--listen"), "what is wrong comes before the fix\n{ended}");
    Ok(())
}

#[test]
fn a_data_directory_that_cannot_be_written_is_named() -> Result<()> {
    let cluster = Cluster::prepare()?;
    // A file in its place cannot be written by anybody, root included.
    let blocked = cluster.directory().join("blocked");
    std::fs::write(&blocked, "")?;
    let mut command = cluster.leasehold();
    command.arg("serve").arg("--data").arg(&blocked).args(cluster.listen_flags());
    refused(&process::run(&mut command)?, 1, &["blocked", "--data"]);

    if !rustix::process::geteuid().is_root() {
        let closed = cluster.directory().join("closed");
        std::fs::create_dir(&closed)?;
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500))?;
        let mut command = cluster.leasehold();
        command.arg("serve").arg("--data").arg(closed.join("data")).args(cluster.listen_flags());
        refused(&process::run(&mut command)?, 1, &["closed", "--data"]);
    }
    Ok(())
}

#[test]
fn an_unknown_key_in_a_spec_names_the_nearest_one_and_its_place() -> Result<()> {
    let cluster = Cluster::start()?;
    let spec = cluster.directory().join("job.toml");
    std::fs::write(&spec, "name = \"job\"\n\n[command]\nargv = [\"true\"]\n\n[limits]\ntimout = \"1m\"\n")?;
    let ended = cluster.cli(&["run", "--spec", "job.toml"])?;
    refused(&ended, 2, &["timout", "timeout", "job.toml", "7"]);
    assert_eq!(cluster.list(&["runs", "list"]).len(), 0, "nothing is half-written");
    cluster.shut_down()
}

#[test]
fn a_spec_that_is_missing_or_broken_is_named() -> Result<()> {
    let cluster = Cluster::start()?;
    refused(&cluster.cli(&["run", "--spec", "nowhere.toml"])?, 1, &["nowhere.toml"]);
    std::fs::write(cluster.directory().join("both.toml"), "[command]\nargv = [\"true\"]\nscript = \"true\"\n")?;
    refused(&cluster.cli(&["run", "--spec", "both.toml"])?, 2, &["argv", "script"]);
    refused(&cluster.cli(&["run"])?, 2, &["--"]);
    cluster.shut_down()
}

#[test]
fn a_placement_that_nobody_meets_stays_pending_and_says_why() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let run = cluster.submit(&["--require", "label.site=office", "--require", "runtime.python>=99", "--", "true"]);
    cluster
        .cli(&["run", "--wait", "--wait-timeout", "1s", "--require", "label.site=office", "--", "true"])?
        .expect_code(9);

    assert_eq!(cluster.json(&["runs", "get", &run])["state"], "pending");
    for verb in ["get", "explain"] {
        let said = cluster.ask(&["runs", verb, &run]);
        for word in ["near", "site", "office", "python", "99"] {
            assert!(said.contains(word), "`runs {verb}` should say `{word}`:\n{said}");
        }
    }
    cluster.cli(&["runs", "cancel", &run])?.expect_code(0);
    cluster.wait_for_state(&run, "cancelled")?;
    cluster.shut_down()
}

#[test]
fn what_is_not_built_yet_is_refused_by_name_and_never_dropped() -> Result<()> {
    let cluster = Cluster::start()?;
    for (field, text) in [
        ("artifacts.collect", "[artifacts]\ncollect = [\"report.csv\"]\n"),
        ("notify", "[notify]\nwebhook = { secret = \"team\" }\n"),
    ] {
        let command = "command = { argv = [\"true\"] }\n";
        std::fs::write(cluster.directory().join("job.toml"), format!("{command}{text}"))?;
        refused(&cluster.cli(&["run", "--spec", "job.toml"])?, 2, &[field, "not built yet"]);
    }
    for (field, text) in [("after", "after = [\"build\"]\n"), ("trigger", "[[trigger]]\nwebhook = true\n")] {
        std::fs::write(cluster.directory().join("job.toml"), format!("{text}[command]\nargv = [\"true\"]\n"))?;
        refused(&cluster.cli(&["run", "--spec", "job.toml"])?, 2, &[field, "leasehold task apply"]);
    }
    assert_eq!(cluster.list(&["runs", "list"]).len(), 0, "nothing is half-written");
    cluster.shut_down()
}

#[test]
fn what_is_not_there_is_not_found() -> Result<()> {
    let cluster = Cluster::start()?;
    let nobody = "01900000-0000-7000-8000-000000000000";
    for verb in ["get", "logs", "cancel", "watch", "explain"] {
        refused(&cluster.cli(&["runs", verb, nobody])?, 3, &[nobody]);
    }
    refused(&cluster.cli(&["worker", "get", "nobody"])?, 3, &["nobody"]);
    for words in
        ["task get", "task token", "schedule ledger", "schedule list --task", "schedule next", "schedule pause"]
    {
        let arguments: Vec<&str> = words.split(' ').chain(["gone"]).collect();
        refused(&cluster.cli(&arguments)?, 3, &["error: there is no task `gone`\n"]);
    }
    for noun in ["task", "schedule"] {
        refused(&cluster.cli(&[noun, "list", "--project", "lab"])?, 3, &["error: there is no project `lab`\n"]);
    }
    cluster.shut_down()
}

#[test]
fn a_program_that_does_not_exist_fails_the_run_and_says_so() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let ended = cluster.cli(&["run", "--", "no-such-program"])?;
    ended.expect_code(5);
    assert!(ended.stderr.contains("no-such-program"), "{ended}");
    cluster.shut_down()
}
