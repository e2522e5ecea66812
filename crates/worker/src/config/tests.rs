//! What is said about the keys, by whom, and what is refused.

use tracing::level_filters::LevelFilter;

use super::*;

const HOME: (&str, &str) = ("HOME", "/home/ann");

fn config(text: &str, variables: &[(&str, &str)], flags: &Flags) -> Result<Config, String> {
    let variable = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let around = Surroundings { variable: &variable, root: false };
    Config::of(Path::new("worker.toml"), text, &around, flags).map_err(|error| error.to_string())
}

#[test]
fn nothing_said_is_a_good_configuration() {
    let config = config("", &[HOME], &Flags::default()).unwrap();
    let expected = Config {
        state_dir: "/home/ann/.local/state/leasehold-worker".into(),
        allow_root: false,
        detect_runtimes: true,
        run_as: Vec::new(),
        slots: None,
        gpus: GpuSetting::Auto,
        labels: BTreeMap::new(),
        drain_timeout: limits::DRAIN_TIMEOUT,
        inbox_records: limits::INBOX_RECORDS,
        cgroup: CgroupSetting::Auto,
        logging: Logging::default(),
        server: None,
        origins: BTreeMap::new(),
    };
    assert_eq!(config, expected);
}

#[test]
fn root_keeps_its_state_where_services_do() {
    let around = Surroundings { variable: &|_| None, root: true };
    let config = Config::of(Path::new("worker.toml"), "", &around, &Flags::default()).unwrap();
    assert_eq!(config.state_dir, Path::new(STATE_DIR));
}

#[test]
fn flags_outweigh_the_environment_and_that_the_file() {
    let file = "state_dir = '/file'\nslots = 1\nallow_root = true\nrun_as = ['ann']\ndrain_timeout = '1m'\nlog_level = 'warn'\n\
                log_format = 'json'\nlabels = { site = 'file', rack = '7' }";
    let of_file = config(file, &[], &Flags::default()).unwrap();
    assert_eq!((of_file.state_dir.to_str(), of_file.slots, of_file.allow_root), (Some("/file"), Some(1), true));
    assert_eq!((of_file.drain_timeout, of_file.run_as), (Millis::from_secs(60), vec!["ann".to_owned()]));
    assert_eq!(of_file.logging, Logging { level: LevelFilter::WARN, format: Format::Json });

    let environment = [
        ("LEASEHOLD_WORKER_STATE_DIR", "/variable"),
        ("LEASEHOLD_WORKER_SLOTS", "2"),
        ("LEASEHOLD_WORKER_ALLOW_ROOT", "0"),
        ("LEASEHOLD_WORKER_RUN_AS", "bob, eve"),
        ("LEASEHOLD_WORKER_LABELS", "site=variable,os=own"),
        ("LEASEHOLD_WORKER_DRAIN_TIMEOUT", ""),
    ];
    let of_both = config(file, &environment, &Flags::default()).unwrap();
    assert_eq!((of_both.state_dir.to_str(), of_both.slots, of_both.allow_root), (Some("/variable"), Some(2), false));
    assert_eq!(of_both.drain_timeout, Millis::from_secs(60), "an empty variable says nothing");
    assert_eq!(of_both.run_as, ["bob", "eve"]);
    let labels: Vec<_> = of_both.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(labels, ["os=own", "rack=7", "site=variable"]);

    let flags = Flags {
        state_dir: Some("/flag".into()),
        slots: Some("3".to_owned()),
        allow_root: true,
        run_as: vec!["zoe".to_owned()],
        labels: vec!["site=flag".to_owned()],
        ..Flags::default()
    };
    let of_all = config(file, &environment, &flags).unwrap();
    assert_eq!((of_all.state_dir.to_str(), of_all.slots, of_all.allow_root), (Some("/flag"), Some(3), true));
    assert_eq!((of_all.labels["site"].as_str(), of_all.run_as), ("flag", vec!["zoe".to_owned()]));
}

#[test]
fn what_is_not_allowed_names_its_place_and_what_is() {
    for (text, variables, expected) in [
        ("slots = 1\nslot = 2", &[][..], "worker.toml:2:1: unknown key `slot`, did you mean `slots`?"),
        ("wings = 2", &[], "worker.toml:1:1: unknown key `wings`, known are state_dir, "),
        ("slots = ", &[], "worker.toml:1:9: "),
        ("\nslots = 0", &[], "worker.toml:2:1: slots: got `0`, expected a whole number from 1 to 256"),
        ("slots = '2'", &[], "slots: another kind of value, expected a whole number"),
        ("allow_root = 1", &[], "allow_root: another kind of value, expected true or false"),
        ("state_dir = 'here'", &[], "state_dir: got `here`, expected an absolute path"),
        ("run_as = 'ann'", &[], "run_as: another kind of value, expected names of users"),
        ("run_as = [1]", &[], "run_as: another kind of member, expected names of users"),
        ("", &[("LEASEHOLD_WORKER_RUN_AS", "ann,")], "got `ann,`, expected names of users"),
        ("labels = 'a=b'", &[], "labels: another kind of value, expected texts by name"),
        ("[labels]\nsite = 3", &[], "worker.toml:2:1: a label is a text"),
        ("labels = { a = 'b', c = 1 }", &[], "worker.toml:1:21: a label is a text"),
        ("server = 'http://h'", &[], "worker.toml:1:1: server: got `http://h`, expected the URL of a control plane"),
        ("detect_runtimes = 'no'", &[], "detect_runtimes: another kind of value, expected true or false"),
        ("inbox_records = 63", &[], "inbox_records: got `63`, expected a whole number from 64 to 1024"),
        ("inbox_records = -1", &[], "inbox_records: got `-1`"),
        ("", &[("LEASEHOLD_WORKER_SLOTS", "257")], "LEASEHOLD_WORKER_SLOTS: slots: got `257`"),
        ("", &[("LEASEHOLD_WORKER_LABELS", "a=b,c")], "LEASEHOLD_WORKER_LABELS: got `c`, expected a label"),
        ("", &[("LEASEHOLD_WORKER_LABELS", "a=b,a=c")], "LEASEHOLD_WORKER_LABELS: the label `a` is said twice"),
        ("", &[("LEASEHOLD_WORKER_ALLOW_ROOT", "yes")], "got `yes`, expected true or false"),
        ("", &[("LEASEHOLD_WORKER_DRAIN_TIMEOUT", "10")], "got `10`, expected a duration such as 10m"),
        ("cgroup = 'on'", &[], "cgroup: got `on`, expected auto, off or the absolute path"),
        ("", &[("LEASEHOLD_WORKER_LOG_LEVEL", "loud")], "expected error, warn, info"),
        ("", &[("LEASEHOLD_WORKER_LOG_FORMAT", "xml")], "expected text or json"),
        ("", &[("HOME", "")], "set LEASEHOLD_WORKER_STATE_DIR"),
    ] {
        let error = config(text, variables, &Flags::default()).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_named_file_must_exist_and_the_default_need_not() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("other.toml");
    let flags = Flags { config: Some(file.clone()), ..Flags::default() };
    let around = Surroundings { variable: &|_| None, root: true };
    assert!(Config::load(&around, &flags).unwrap_err().to_string().contains("cannot read"));
    std::fs::write(&file, "slots = 9").unwrap();
    assert_eq!(Config::load(&around, &flags).unwrap().slots, Some(9));
}

#[test]
fn the_default_file_says_what_holds_without_it() {
    let file = default_file();
    assert_eq!(config(&file, &[HOME], &Flags::default()), config("", &[HOME], &Flags::default()));
    // Uncommented, each key is taken, and one whose default does not depend on the machine changes nothing.
    let nothing_said = config("", &[HOME], &Flags::default()).unwrap();
    for key in KEYS {
        let begin = format!("#{} = ", key.name);
        let line = file.lines().find(|line| line.starts_with(&begin)).unwrap();
        let mut said = config(&line[1..], &[HOME], &Flags::default()).unwrap();
        assert!(said.origins.remove(key.name).is_some(), "{line}");
        if matches!(key.unset, key::Unset::Is(_)) {
            assert_eq!(said, nothing_said, "{line}");
        }
    }
    let settings = file.lines().filter_map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')));
    let all = settings.collect::<Vec<_>>().join("\n");
    assert_eq!(config(&all, &[HOME], &Flags::default()).unwrap().origins.len(), KEYS.len());
}

#[test]
fn what_holds_is_shown_with_its_origin_and_can_be_read_again() {
    let file = "slots = 3\nlabels = { site = 'a \"b\"' }";
    let flags = Flags { run_as: vec!["zoe".to_owned()], ..Flags::default() };
    let held = config(file, &[HOME, ("LEASEHOLD_WORKER_SERVER", "https://[::1]:7443")], &flags).unwrap();
    let text = held.to_text();
    for line in [
        "slots = 3  # worker.toml:1:1",
        "run_as = [\"zoe\"]  # --run-as",
        "server = \"https://[::1]:7443\"  # LEASEHOLD_WORKER_SERVER",
        "drain_timeout = \"10m\"  # default",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    let again = config(&text, &[], &Flags::default()).unwrap();
    assert_eq!(Config { origins: BTreeMap::new(), ..again }, Config { origins: BTreeMap::new(), ..held });
}
