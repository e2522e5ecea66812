//! `/metrics`: what happened is counted, in a form that a strict reader of the format takes, with labels from closed sets.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use leasehold_sim::cluster::{Cluster, WorkerOptions};
use leasehold_sim::eventually::eventually;
use leasehold_sim::request;
use rustix::process::Signal;

/// One scrape: every series with its value.
#[derive(Debug)]
struct Scrape {
    series: BTreeMap<String, f64>,
}

impl Scrape {
    fn of(cluster: &Cluster) -> Result<Self> {
        let answer = request::get_over(&cluster.admin_socket(), "/metrics")?;
        ensure!(answer.status == 200, "{answer:?}");
        Self::read(&answer.body)
    }

    fn value(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.series))
    }

    #[track_caller]
    fn expect(&self, series: &str, expected: f64) {
        let value = self.value(series);
        assert!((value - expected).abs() < 1e-9, "{series}: {value}, not {expected}");
    }

    /// Reads the text form of `OpenMetrics` 1.0, and refuses whatever is not in it.
    fn read(text: &str) -> Result<Self> {
        let body = text.strip_suffix("# EOF\n").context("it ends with # EOF")?;
        let mut series = BTreeMap::new();
        let (mut family, mut kind, mut told) = (String::new(), String::new(), BTreeSet::new());
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').context("a name and its help")?;
                ensure!(told.insert(name.to_owned()), "{name} is told twice");
                ensure!(!help.trim().is_empty(), "{name} says what it is");
                name.clone_into(&mut family);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, of) = rest.split_once(' ').context("a name and its type")?;
                ensure!(name == family, "the type of {name} within {family}");
                ensure!(["counter", "gauge", "histogram", "info"].contains(&of), "{line}");
                of.clone_into(&mut kind);
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').context("a name and its unit")?;
                ensure!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            } else {
                let (name, value) = line.rsplit_once(' ').with_context(|| format!("no sample: `{line}`"))?;
                let value: f64 = value.parse().with_context(|| line.to_owned())?;
                let bare = name.split('{').next().unwrap_or_default();
                let suffix = bare.strip_prefix(family.as_str()).with_context(|| format!("{line} within {family}"))?;
                let allowed: &[&str] = match kind.as_str() {
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_sum", "_count"],
                    "info" => &["_info"],
                    _ => &[""],
                };
                ensure!(allowed.contains(&suffix), "`{line}` is no {kind}");
                ensure!(kind == "gauge" || value >= 0.0, "{line}");
                check_labels(name)?;
                ensure!(series.insert(name.to_owned(), value).is_none(), "{name} stands twice");
            }
        }
        check_histograms(&series)?;
        Ok(Self { series })
    }
}

/// Names as Prometheus takes them, values that are short words: nothing that grows with what runs here.
fn check_labels(series: &str) -> Result<()> {
    let Some((name, rest)) = series.split_once('{') else { return Ok(()) };
    let is_name = |text: &str| {
        let mut letters = text.chars();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_')
    };
    ensure!(is_name(name), "{series}");
    let labels = rest.strip_suffix('}').context("an end of the labels")?;
    for label in labels.split(',').filter(|label| !label.is_empty()) {
        let (key, value) = label.split_once('=').with_context(|| series.to_owned())?;
        let value =
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).with_context(|| series.to_owned())?;
        let is_number = value == "+Inf" || value.parse::<f64>().is_ok();
        let is_version = key == "version" && value.split('.').count() == 3;
        ensure!(is_name(key) && (is_name(value) || is_version || (key == "le" && is_number)), "{series}");
    }
    Ok(())
}

/// Buckets only grow, and the last one is the count.
fn check_histograms(series: &BTreeMap<String, f64>) -> Result<()> {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, value) in series.iter().filter(|(name, _)| name.contains("_bucket{")) {
        let (before, rest) = name.split_once("le=\"").context("a bucket has a bound")?;
        let (bound, after) = rest.split_once('"').context("a bound ends")?;
        let of = format!("{before}{after}").replace("_bucket{", "_count{").replace("{,", "{").replace(",}", "}");
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
        buckets.entry(of).or_default().push((bound, *value));
    }
    for (count, mut of) in buckets {
        of.sort_by(|one, other| one.0.total_cmp(&other.0));
        ensure!(of.is_sorted_by_key(|(_, value)| *value), "{count}: {of:?}");
        let last = of.last().context("a bucket")?;
        ensure!(last.0.is_infinite() && Some(&last.1) == series.get(&count), "{count}: {of:?}");
    }
    Ok(())
}

#[test]
fn what_happened_is_counted() -> Result<()> {
    let mut cluster = Cluster::start()?;
    // Every series is there before it first counts.
    let fresh = Scrape::of(&cluster)?;
    for series in
        ["leasehold_claims_total", "leasehold_runs_ended_total{state=\"failed\"}", "leasehold_runs{state=\"lost\"}"]
    {
        fresh.expect(series, 0.0);
    }
    let near = cluster.join(WorkerOptions::named("near"))?;
    let good = cluster.submit(&["--", "true"]);
    let bad = cluster.submit(&["--", "false"]);
    cluster.wait_for_state(&good, "succeeded")?;
    cluster.wait_for_state(&bad, "failed")?;

    let gate = cluster.directory().join("gate");
    let stubborn = format!("trap '' TERM; echo up >>{}; while :; do sleep 0.1; done", gate.display());
    let stopped = cluster.submit(&["--grace", "1s", "--", "sh", "-c", &stubborn]);
    eventually("the job to be deaf", || if gate.exists() { Ok(()) } else { Err(String::new()) })?;
    cluster.ask(&["cancel", &stopped]);
    cluster.wait_for_state(&stopped, "cancelled")?;

    // Its launcher dies: lost at once, by the agent's evidence.
    let held = cluster.directory().join("held");
    let orphan = cluster.submit(&["--", "sh", "-c", &format!("touch {}; exec sleep 600", held.display())]);
    eventually("the job to run", || if held.exists() { Ok(()) } else { Err(String::new()) })?;
    cluster.wait_for_state(&orphan, "running")?;
    for launcher in cluster.worker(near).launchers() {
        let pid = i32::try_from(launcher).ok().and_then(rustix::process::Pid::from_raw).context("a process id")?;
        rustix::process::kill_process(pid, Signal::KILL)?;
    }
    cluster.wait_for_state(&orphan, "lost")?;
    cluster.kill_agent(near)?;
    let waiting = cluster.submit(&["--", "true"]);

    let scrape = Scrape::of(&cluster)?;
    for (series, expected) in [
        ("leasehold_store_up", 1.0),
        ("leasehold_runs_admitted_total", 5.0),
        ("leasehold_claims_total", 4.0),
        ("leasehold_runs_ended_total{state=\"succeeded\"}", 1.0),
        ("leasehold_runs_ended_total{state=\"failed\"}", 1.0),
        ("leasehold_runs_ended_total{state=\"cancelled\"}", 1.0),
        ("leasehold_runs_lost_total", 1.0),
        ("leasehold_attempts_lost_total{evidence=\"launcher_killed_all_gone\"}", 1.0),
        ("leasehold_cancels_total", 1.0),
        ("leasehold_stop_duration_seconds_count{reason=\"cancel\"}", 1.0),
        ("leasehold_stop_duration_seconds_bucket{le=\"0.5\",reason=\"cancel\"}", 0.0),
        ("leasehold_runs{state=\"pending\"}", 1.0),
        ("leasehold_runs{state=\"lost\"}", 1.0),
        ("leasehold_workers{status=\"online\"}", 1.0),
    ] {
        scrape.expect(series, expected);
    }
    let took = scrape.value("leasehold_stop_duration_seconds_sum{reason=\"cancel\"}");
    assert!((1.0..60.0).contains(&took), "a grace of 1 s: {took}");
    assert!(scrape.value("leasehold_store_call_duration_seconds_sum{access=\"write\"}") > 0.0, "calls take time");
    assert!(scrape.value("leasehold_lease_clock_seconds") > 0.0);
    assert!(scrape.series.keys().all(|series| !series.contains("near")), "nobody is named");
    assert_eq!(cluster.json(&["runs", "get", &waiting])["state"], "pending");

    cluster.start_agent(near)?;
    cluster.wait_for_state(&waiting, "succeeded")?;
    Scrape::of(&cluster)?.expect("leasehold_runs{state=\"pending\"}", 0.0);
    // On the port it takes a token, a viewer's at least.
    assert_eq!(request::get(&cluster.api(), "/metrics", None)?.status, 401);
    let token = cluster.first_token()?;
    let answer = request::get(&cluster.api(), "/metrics", Some(&token))?;
    if answer.status != 200 {
        bail!("{answer:?}");
    }
    cluster.shut_down()
}

#[test]
fn the_reader_is_strict() {
    let good = "# HELP a_total_x Help.\n# TYPE a_total_x counter\na_total_x_total{k=\"v\"} 1\n# EOF\n";
    assert!(Scrape::read(good).is_ok());
    for (what, with) in [
        ("# EOF\n", ""),
        ("x_total{", "x{"),
        ("\"v\"", "\"V 1\""),
        (" 1\n", " one\n"),
        ("counter", "thing"),
        ("Help.", " "),
        ("a_total_x_total{k=\"v\"} 1\n", "a_total_x_total{k=\"v\"} 1\na_total_x_total{k=\"v\"} 2\n"),
    ] {
        assert!(Scrape::read(&good.replace(what, with)).is_err(), "{what}");
    }
}
