//! `docs/first-night.md`, executed as it stands: a page that a newcomer follows is held to what the product does.
//!
//! A `console` block holds commands, each behind the name of the machine that types it, and what they print: `[..]` stands for
//! anything within a line, a line `...` for any lines. A command that ends in ` &` stays. A word that ends in `…` is the one
//! that was printed before. A `toml` block whose first line is a comment with a path is that file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use leasehold_sim::binaries;
use leasehold_sim::eventually::eventually;
use leasehold_sim::port::Port;
use leasehold_sim::process::{self, Running, Stream};

/// Commands that change nothing.
const LOOKS: [&str; 3] = ["leasehold ps ", "leasehold worker list", "leasehold explain "];

const PAGE: &str = include_str!("../../../../docs/first-night.md");
const PAGE_IN_CHINESE: &str = include_str!("../../../../docs/first-night.zh-CN.md");

/// What a page asks its reader to do.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    File { path: String, text: String },
    Type { machine: String, command: String, prints: Vec<String> },
}

fn steps(page: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind {
            "toml" => {
                let path = block.first().and_then(|line| line.strip_prefix("# ")).context("a file has its path")?;
                steps.push(Step::File { path: path.to_owned(), text: block.join("\n") + "\n" });
            }
            "console" => typed(&block, &mut steps)?,
            other => bail!("a block of {other}: what does the reader do with it?"),
        }
    }
    Ok(steps)
}

fn typed(block: &[&str], steps: &mut Vec<Step>) -> Result<()> {
    for line in block {
        let prompt = line.split_once("$ ").filter(|(machine, _)| machine.chars().all(|c| c.is_ascii_lowercase()));
        match (prompt, steps.last_mut()) {
            (Some((machine, command)), _) => {
                let (machine, command) = (machine.to_owned(), command.to_owned());
                steps.push(Step::Type { machine, command, prints: Vec::new() });
            }
            (None, Some(Step::Type { prints, .. })) => prints.push((*line).to_owned()),
            (None, _) => bail!("`{line}` is printed by no command"),
        }
    }
    Ok(())
}

/// Whether a line is as the page says, `[..]` standing for anything.
fn is_line(line: &str, said: &str) -> bool {
    let mut parts = said.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Whether lines are as the page says, `...` standing for any.
fn are_lines(lines: &[&str], said: &[String]) -> bool {
    match said {
        [] => lines.is_empty(),
        [any, rest @ ..] if any == "..." => (0..=lines.len()).any(|from| are_lines(&lines[from..], rest)),
        [one, rest @ ..] => lines.first().is_some_and(|line| is_line(line, one)) && are_lines(&lines[1..], rest),
    }
}

/// Somebody who follows the page.
struct Reader {
    home: tempfile::TempDir,
    /// The addresses of the page, and those that a test may use in their place.
    addresses: Vec<(&'static str, String)>,
    /// What was printed, by its beginning.
    printed: BTreeMap<&'static str, String>,
    staying: Vec<Running>,
    _ports: [Port; 2],
}

impl Reader {
    fn new() -> Result<Self> {
        let ports = [Port::take("127.0.0.1")?, Port::take("127.0.0.1")?];
        let [api, ingress] = [&ports[0], &ports[1]].map(|port| format!("127.0.0.1:{}", port.number()));
        let addresses = vec![
            ("0.0.0.0:7440", api),
            ("0.0.0.0:7443", ingress.clone()),
            ("control.example:7443", ingress),
            ("control.example", "127.0.0.1".to_owned()),
        ];
        let home = tempfile::tempdir()?;
        let programs = home.path().join("bin");
        std::fs::create_dir(&programs)?;
        for (name, program) in
            [("leasehold", binaries::leasehold()), ("leasehold-worker", binaries::leasehold_worker())]
        {
            std::os::unix::fs::symlink(program, programs.join(name))?;
        }
        Ok(Self { home, addresses, printed: BTreeMap::new(), staying: Vec::new(), _ports: ports })
    }

    fn here(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (page, test) in &self.addresses {
            text = text.replace(page, test);
        }
        for (begins, whole) in &self.printed {
            text = text.replace(&format!("{begins}…"), whole);
        }
        text
    }

    fn machine(&self, machine: &str) -> Result<PathBuf> {
        let directory = self.home.path().join(machine);
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    #[expect(clippy::disallowed_methods, reason = "the programs that the commands of the page find")]
    fn shell(&self, machine: &str, command: &str) -> Result<Command> {
        let directory = self.machine(machine)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&directory);
        shell.env("PATH", format!("{}:{path}", self.home.path().join("bin").display()));
        shell.env("LEASEHOLD_WORKER_STATE_DIR", directory.join("state"));
        shell.env("LEASEHOLD_WORKER_ALLOW_ROOT", "1");
        for variable in ["LEASEHOLD_ADDR", "LEASEHOLD_TOKEN", "LEASEHOLD_PROJECT", "LEASEHOLD_CACERT"] {
            shell.env_remove(variable);
        }
        Ok(shell)
    }

    fn follow(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::File { path, text } => {
                let path = self.machine("control")?.join(path);
                std::fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
                Ok(std::fs::write(path, text)?)
            }
            Step::Type { machine, command, prints } => {
                let prints: Vec<String> = prints.iter().map(|line| self.here(line)).collect();
                match command.strip_suffix(" &") {
                    Some(command) => self.stays(machine, &self.here(command), &prints),
                    None => self.ends(machine, &self.here(command), &prints),
                }
            }
        }
    }

    fn ends(&mut self, machine: &str, command: &str, prints: &[String]) -> Result<()> {
        let typed = || {
            let ended = process::run(&mut self.shell(machine, &format!("exec 2>&1; {command}"))?)?;
            ensure!(ended.code() == Some(0), "{ended}");
            let lines: Vec<&str> = ended.stdout.lines().collect();
            let said = prints.join("\n");
            ensure!(are_lines(&lines, prints), "it was to print\n{said}\n\nand printed\n{}", ended.stdout);
            Ok(ended)
        };
        // Who looks and is too early looks again.
        let ended = if LOOKS.iter().any(|look| command.starts_with(look)) {
            eventually(&format!("`{command}`"), || typed().map_err(|error| format!("{error:#}")))?
        } else {
            typed().with_context(|| format!("`{command}`"))?
        };
        if let Some(token) = ended.stdout.split_whitespace().find(|word| word.starts_with("lhj1_")) {
            self.printed.insert("lhj1_", token.to_owned());
        }
        Ok(())
    }

    fn stays(&mut self, machine: &str, command: &str, prints: &[String]) -> Result<()> {
        let process = Running::start(&mut self.shell(machine, &format!("exec {command} 2>&1"))?)?;
        eventually(&format!("`{command}` to print {prints:?}"), || {
            let written = process.written(Stream::Stdout);
            let lines: Vec<&str> = written.lines().collect();
            if are_lines(&lines, prints) { Ok(()) } else { Err(written) }
        })?;
        self.staying.push(process);
        Ok(())
    }
}

#[test]
fn the_page_of_the_first_night_does_what_it_says() -> Result<()> {
    let mut reader = Reader::new()?;
    for step in steps(PAGE)? {
        reader.follow(&step)?;
    }
    while let Some(process) = reader.staying.pop() {
        process.signal(rustix::process::Signal::TERM)?;
        process.wait()?.expect_code(0);
    }
    Ok(())
}

#[test]
fn the_page_of_the_first_night_asks_for_the_same_in_both_languages() -> Result<()> {
    assert_eq!(steps(PAGE)?, steps(PAGE_IN_CHINESE)?);
    Ok(())
}

#[test]
fn what_a_page_says_is_what_is_printed() {
    let said = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let lines = ["2027-01-31 INFO ready on nas", "run 17", "done"];
    for (page, holds) in [
        ("[..] ready on [..]\nrun [..]\ndone", true),
        ("...\ndone", true),
        ("...", true),
        ("...\nrun 17\n...", true),
        ("...\nrun 18\n...", false),
        ("[..] ready\n...", false),
        ("", false),
    ] {
        assert_eq!(are_lines(&lines, &said(page)), holds, "{page}");
    }
    assert!(is_line("a b a", "a[..]a") && !is_line("a", "a[..]a") && !is_line("ab", "a"));
}
