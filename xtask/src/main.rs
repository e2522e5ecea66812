//! Everything a developer of Leasehold runs, behind `cargo xtask`.
//!
//! The same commands run on a laptop and in CI, so there is no second description of what "green" means.
//! Nothing here ships, and nothing here is needed to build or use the product.

mod alone;
mod bench;
mod binaries;
mod by_hand;
mod chaos;
mod checkout;
mod ci;
mod environment;
mod kubernetes;
mod licences;
mod postgres18;
mod previous_release;
mod source;
mod spdx;
mod walls;

use std::process::ExitCode;

use by_hand::ByHand;
use lexopt::prelude::*;

const HELP: &str = "\
Everything a developer of Leasehold runs.

Usage:
  cargo xtask ci                 every check, in order, with a table at the end
  cargo xtask ci walls licences  only the named steps
  cargo xtask ci --keep-going    do not stop at the first step that fails
  cargo xtask ci --list          what each step does
  cargo xtask bench              speed and memory, next to this machine's own limits; a quarter of an hour
  cargo xtask bench product      only the whole product on one machine (--runs N, --starts N)
  cargo xtask bench postgres     only the store on PostgreSQL (--ended N runs before, --seconds N)
  cargo xtask bench waiting      only idle workers that wait, on both databases; four minutes (--workers N, --idle SECONDS)
  cargo xtask bench tasks        only tasks and schedules by the thousand; three minutes (--tasks N)
  cargo xtask bench-store        calls per second at the port of the embedded store
  cargo xtask fuzz               minutes of garbage at both listeners
  cargo xtask schedules          ten years of fire times in every time zone, against a brute-force oracle
  cargo xtask skips              a schedule that skips, on three replicas that are killed for three minutes (needs root)
  cargo xtask alone              each package compiled by itself, with what its own manifest asks for; two minutes
  cargo xtask golden             rewrite the golden messages, after a deliberate change of the protocol or the API
  cargo xtask keep-release       keep what a release's binaries write as test input (docs/releases.md)
  cargo xtask chaos --faults N   the release build under faults drawn from a seed (--help for more; needs root)
  cargo xtask chaos --postgres --runs N  the same on three replicas that are killed, and a database that is restarted
  cargo xtask previous-release   build the latest release's binaries, which upgrades are tested from (docs/releases.md)
  cargo xtask environment        install the programs the tests need and this machine lacks
  cargo xtask environment --check  only say what is missing

Exit codes: 0 done, 1 a check failed, 2 usage.
";

enum Command {
    Help,
    Ci(ci::Options),
    Environment {
        check_only: bool,
    },
    Bench(bench::Options),
    /// Its own program reads the arguments.
    Chaos(Vec<String>),
    ByHand(ByHand),
    Alone,
    PreviousRelease,
    /// What a measured job executes; not for people.
    Stamp(std::path::PathBuf),
}

fn main() -> ExitCode {
    let command = match parse(lexopt::Parser::from_env()) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let outcome = match command {
        Command::Help => {
            print!("{HELP}");
            Ok(())
        }
        Command::Ci(options) => ci::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Chaos(arguments) => chaos::run(&arguments),
        Command::ByHand(verb) => verb.run(),
        Command::Alone => alone::run(),
        Command::PreviousRelease => previous_release::build().map(|built| {
            println!("{}\n{}", built.leasehold.display(), built.worker.display());
        }),
        Command::Stamp(file) => bench::stamp(&file),
        Command::Environment { check_only: true } => environment::check(),
        Command::Environment { check_only: false } => environment::prepare(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let verb = match arguments.next()? {
        None | Some(Long("help") | Short('h')) => return Ok(Command::Help),
        Some(Value(verb)) => verb.string()?,
        Some(other) => return Err(other.unexpected()),
    };
    match verb.as_str() {
        "ci" => parse_ci(arguments),
        "bench" => parse_bench(arguments),
        "chaos" => {
            let words: Result<Vec<String>, _> = arguments.raw_args()?.map(ValueExt::string).collect();
            Ok(Command::Chaos(words?))
        }
        "bench-store" => parse_bare(arguments, Command::ByHand(ByHand::BenchStore)),
        "fuzz" => parse_bare(arguments, Command::ByHand(ByHand::Fuzz)),
        "schedules" => parse_bare(arguments, Command::ByHand(ByHand::Schedules)),
        "skips" => parse_bare(arguments, Command::ByHand(ByHand::Skips)),
        "golden" => parse_bare(arguments, Command::ByHand(ByHand::Golden)),
        "keep-release" => parse_bare(arguments, Command::ByHand(ByHand::KeepRelease)),
        "alone" => parse_bare(arguments, Command::Alone),
        "previous-release" => parse_bare(arguments, Command::PreviousRelease),
        "stamp" => Ok(Command::Stamp(arguments.value()?.into())),
        "environment" => {
            let mut check_only = false;
            while let Some(argument) = arguments.next()? {
                match argument {
                    Long("check") => check_only = true,
                    Long("help") | Short('h') => return Ok(Command::Help),
                    other => return Err(other.unexpected()),
                }
            }
            Ok(Command::Environment { check_only })
        }
        "help" => Ok(Command::Help),
        unknown => Err(format!("there is no `cargo xtask {unknown}`").into()),
    }
}

fn parse_ci(mut arguments: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut options = ci::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Help),
            Long("list") => options.list = true,
            Long("keep-going") => options.keep_going = true,
            Value(name) => options.only.push(name.string()?.parse::<ci::Step>()?),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Ci(options))
}

fn parse_bench(mut arguments: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut options = bench::Options::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Long("runs") => options.runs = arguments.value()?.parse()?,
            Long("starts") => options.starts = arguments.value()?.parse()?,
            Long("ended") => options.ended = arguments.value()?.parse()?,
            Long("seconds") => options.seconds = arguments.value()?.parse()?,
            Long("workers") => options.workers = arguments.value()?.parse()?,
            Long("tasks") => options.tasks = arguments.value()?.parse()?,
            Long("idle") => options.idle = arguments.value()?.parse()?,
            Value(part) => options.only.push(part.string()?.parse::<bench::Part>()?),
            Long("help") | Short('h') => return Ok(Command::Help),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Command::Bench(options))
}

/// A verb that takes nothing.
fn parse_bare(mut arguments: lexopt::Parser, command: Command) -> Result<Command, lexopt::Error> {
    match arguments.next()? {
        None => Ok(command),
        Some(Long("help") | Short('h')) => Ok(Command::Help),
        Some(other) => Err(other.unexpected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Command, lexopt::Error> {
        parse(lexopt::Parser::from_args(arguments.iter().copied()))
    }

    #[test]
    fn steps_can_be_named_one_by_one() {
        let Ok(Command::Ci(options)) = parsed(&["ci", "walls", "fmt"]) else { panic!("not a ci command") };
        assert_eq!(options.only, [ci::Step::Walls, ci::Step::Fmt]);
    }

    #[test]
    fn an_unknown_step_is_refused_with_the_known_ones() {
        let Err(error) = parsed(&["ci", "wall"]) else { panic!("accepted") };
        let sentence = error.to_string();
        assert!(sentence.contains("wall") && sentence.contains("licences"), "{sentence}");
    }

    #[test]
    fn parts_of_the_bench_can_be_named() {
        let Ok(Command::Bench(options)) = parsed(&["bench", "postgres", "--ended", "7"]) else { panic!("no bench") };
        assert_eq!((options.only, options.ended), (vec![bench::Part::Postgres], 7));
        let Ok(Command::Bench(options)) = parsed(&["bench", "waiting", "--workers", "9"]) else { panic!("no bench") };
        assert_eq!((options.only, options.workers), (vec![bench::Part::Waiting], 9));
        assert!(parsed(&["bench", "oracle"]).is_err());
    }

    #[test]
    fn an_unknown_verb_is_refused() {
        assert!(parsed(&["deploy"]).is_err());
    }
}
