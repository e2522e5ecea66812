//! What a follower makes of its arrivals, against a second account of the same rule, over random histories.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn task(name: &str) -> TaskName {
    name.parse().unwrap()
}

fn run(number: usize) -> RunId {
    format!("01900000-0000-7000-8000-{number:012}").parse().unwrap()
}

fn arrival(number: usize, of: &str) -> Arrival {
    Arrival { at: UtcMillis::new(i64::try_from(number).unwrap()), run: run(number), predecessor: task(of) }
}

fn after(names: &[&str]) -> BTreeSet<TaskName> {
    names.iter().map(|name| task(name)).collect()
}

fn texts(settled: &Settled) -> Vec<String> {
    let short =
        |run: &RunId| run.to_string().trim_start_matches("01900000-0000-7000-8000-").trim_start_matches('0').to_owned();
    let one = |(task, run): (&TaskName, &RunId)| format!("{task}{}", short(run));
    settled.admits.iter().map(|after| after.0.iter().map(one).collect::<Vec<_>>().join("+")).collect()
}

/// The arrivals as they came: `ab` is one of a and then one of b.
fn story(of: &str) -> Vec<Arrival> {
    of.chars().enumerate().map(|(at, of)| arrival(at + 1, &of.to_string())).collect()
}

#[test]
fn the_newest_of_each_predecessor_counts_until_all_have_come() {
    let made = |story_of: &str| texts(&settle(&after(&["a", "b"]), story(story_of), false, 99));
    assert_eq!(made("a"), [""; 0]);
    assert_eq!(made("ab"), ["a1+b2"]);
    assert_eq!(made("aab"), ["a2+b3"]);
    assert_eq!(made("aba"), ["a1+b2"]);
    assert_eq!(made("abab"), ["a1+b2", "a3+b4"]);
    assert_eq!(made("abba"), ["a1+b2", "a4+b3"]);
}

#[test]
fn with_one_predecessor_every_success_makes_a_run_in_order() {
    let settled = settle(&after(&["a"]), story("aaa").into_iter().rev(), false, 99);
    assert_eq!(texts(&settled), ["a1", "a2", "a3"]);
    assert_eq!(settled.gone, [run(1), run(2), run(3)].into());
    let first = settle(&after(&["a"]), story("aaa"), false, 2);
    assert_eq!((texts(&first), first.more), (vec!["a1".to_owned(), "a2".to_owned()], true));
    assert!(!first.gone.contains(&run(3)) && !first.waiting.contains(&run(3)));
}

#[test]
fn a_paused_follower_keeps_the_newest_of_each_for_one_run_after_its_pause() {
    let paused = settle(&after(&["a"]), story("aaa"), true, 99);
    assert_eq!((paused.admits.len(), paused.waiting), (0, [run(3)].into()));
    let both = settle(&after(&["a", "b"]), story("abab"), true, 99);
    assert_eq!((both.admits.len(), both.waiting), (0, [run(3), run(4)].into()));
}

#[test]
fn what_it_does_not_follow_any_more_goes() {
    let settled = settle(&after(&["b"]), story("ab"), false, 99);
    assert_eq!((texts(&settled), settled.gone), (vec!["b2".to_owned()], [run(1), run(2)].into()));
}

#[test]
fn what_a_job_reads_is_what_is_kept() {
    let after = After([(task("a"), run(1)), (task("b"), run(2))].into());
    let text = format!("a={} b={}", run(1), run(2));
    assert_eq!((after.to_string(), text.parse()), (text.clone(), Ok(after)));
    for wrong in ["", "a", "a=", &format!("b={} a={}", run(1), run(2)), &format!("a={} a={}", run(1), run(2))] {
        assert!(wrong.parse::<After>().is_err(), "{wrong}");
    }
}

#[test]
fn what_is_admitted_together_waits_in_its_order() {
    let (project, now) = (ProjectName::default(), UtcMillis::new(1_800_000_000_000));
    let ids = |of: usize, place| After([(task("a"), run(of))].into()).ids(&project, &task("b"), place, now);
    let together: Vec<_> = (0..64).map(|place| ids(64 - place, place)).collect();
    assert!(together.is_sorted() && together.windows(2).all(|pair| pair[0] != pair[1]));
    assert_ne!(ids(1, 0), ids(2, 0));
}

proptest! {
    /// However the arrivals are divided among passes, and however few runs a pass may admit, they make the same runs; every
    /// arrival is in one run, superseded, or waits; and of one predecessor at most one waits.
    #[test]
    fn what_is_made_does_not_depend_on_when_anybody_looks(
        came in prop::collection::vec(0..3_usize, 0..40),
        looks in prop::collection::vec((1..9_usize, 1..4_usize), 40),
        followed in 1..4_usize,
    ) {
        let names = ["a", "b", "c"];
        let predecessors = after(&names[..followed]);
        let arrivals: Vec<_> = came.iter().enumerate().map(|(at, of)| arrival(at + 1, names[*of])).collect();
        // The second account: a queue of what came, and the last of each that has not been taken.
        let mut expected: Vec<Vec<usize>> = Vec::new();
        let mut last = vec![None; followed];
        for (at, of) in came.iter().enumerate().filter(|(_, of)| **of < followed) {
            last[*of] = Some(at + 1);
            if last.iter().all(Option::is_some) {
                expected.push(last.iter_mut().map(|one| one.take().unwrap()).collect());
            }
        }
        let mut to_come: VecDeque<_> = arrivals.clone().into();
        let mut kept: BTreeSet<Arrival> = BTreeSet::new();
        let mut made: Vec<Vec<RunId>> = Vec::new();
        let mut gone: BTreeSet<RunId> = BTreeSet::new();
        let mut look = |kept: &mut BTreeSet<Arrival>, most| {
            let settled = settle(&predecessors, kept.iter().cloned(), false, most);
            prop_assert!(settled.admits.len() <= most);
            prop_assert!(settled.waiting.len() <= followed);
            prop_assert!(settled.gone.is_disjoint(&gone), "nothing goes twice");
            gone.extend(settled.gone.iter());
            kept.retain(|one| !settled.gone.contains(&one.run));
            made.extend(settled.admits.iter().map(|after| after.0.values().copied().collect()));
            Ok(settled.more)
        };
        for (come, most) in looks {
            kept.extend(to_come.drain(..come.min(to_come.len())));
            look(&mut kept, most)?;
        }
        kept.extend(to_come.drain(..));
        while look(&mut kept, 2)? {}
        let expected: Vec<Vec<RunId>> = expected.into_iter().map(|one| one.into_iter().map(run).collect()).collect();
        prop_assert_eq!(&made, &expected);
        prop_assert_eq!(gone.len() + kept.len(), arrivals.len());
    }
}
