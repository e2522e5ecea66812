//! The three jobs of `examples/`, submitted as its README says.

use std::path::PathBuf;

use anyhow::Result;
use leasehold_sim::cluster::{Cluster, WorkerOptions};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

fn path(path: &std::path::Path) -> &str {
    path.to_str().expect("the checkout has a readable path")
}

fn prints_what_it_should(name: &str) -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let folder = example(name).canonicalize()?;
    let ended = cluster.cli(&["run", "--spec", path(&folder.join("job.toml")), "--cwd", path(&folder)])?;
    ended.expect_code(0);
    assert_eq!(ended.stdout, std::fs::read_to_string(folder.join("expected.txt"))?, "{ended}");
    cluster.shut_down()
}

#[test]
fn a_pipeline_counts_the_words_of_a_text() -> Result<()> {
    prints_what_it_should("word-count")
}

#[test]
fn a_python_program_reports_over_a_csv() -> Result<()> {
    prints_what_it_should("sales-report")
}

#[test]
fn a_hundred_thousand_lines_arrive_whole_and_in_order() -> Result<()> {
    let mut cluster = Cluster::start()?;
    cluster.join(WorkerOptions::named("near"))?;
    let ended = cluster.cli(&["run", "--spec", path(&example("many-lines").join("job.toml"))])?;
    ended.expect_code(0);

    let mut count = 0;
    for (index, line) in ended.stdout.lines().enumerate() {
        count = index + 1;
        assert_eq!(line, format!("line {count:06}"));
    }
    assert_eq!(count, 100_000);
    let progress: Vec<&str> = ended.stderr.lines().filter(|line| line.ends_with(" %")).collect();
    let expected: Vec<String> = (1..=10).map(|part| format!("{} %", part * 10)).collect();
    assert_eq!(progress, expected);
    cluster.shut_down()
}
