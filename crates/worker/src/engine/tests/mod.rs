//! The real engine in a small world: a disk, launchers, a network and a control plane over the real decisions of `core`.

mod control;
mod world;

use leasehold_core::attempt::AttemptState;
use leasehold_core::run::RunState;

use super::port::{Exit, Signal};
use world::{CALM, Losing, Weather, World};

const STORM: Weather = Weather {
    lost_requests: 6,
    lost_answers: 10,
    open_commits: 5,
    doubled: 6,
    unclear_launches: 20,
    killed_launchers: 4,
    failing_disk: 3,
    crashes: 1,
    reboots: 0,
};

fn all_ended(world: &World) -> bool {
    world.runs.iter().all(|run| world.control.state(*run).is_terminal() || world.control.state(*run) == RunState::Lost)
}

#[test]
fn a_run_travels_there_and_back_and_leaves_nothing() {
    let mut world = World::new(1, CALM);
    world.start_agent();
    for n in 0..6 {
        world.submit_in(n * 10);
    }
    world.run_until("six runs ended", |world| world.runs.len() == 6 && all_ended(world));
    world.run_until("nothing left", World::is_clean);
    world.check();
    assert!(world.control.first_attempts_only());
    assert_eq!(world.faults, Vec::<String>::new());
    for attempt in world.control.attempts.values() {
        let shipped = world.control.logs.get(&attempt.id).copied().unwrap_or(0);
        assert_eq!(shipped, attempt.log.map_or(0, |log| log.length), "the log is complete");
    }
}

#[test]
fn an_idle_worker_writes_nothing() {
    let mut world = World::new(2, CALM);
    world.start_agent();
    let ready = world.now + 60_000;
    world.run_until("a quiet minute", |world| world.now > ready);
    let writes = world.disk.writes;
    let later = world.now + 3_600_000;
    world.run_until("a quiet hour", |world| world.now > later);
    assert_eq!(world.disk.writes, writes);
    assert_eq!(world.calls["heartbeat"] / 240, 1, "one beat per interval: {:?}", world.calls);
}

#[test]
fn an_idle_worker_asks_once_per_interval_outside_its_pull() {
    let mut world = World::new(3, CALM);
    world.start_agent();
    // What it ran before leaves nothing that asks on.
    world.submit_in(1_000);
    world.run_until("the run ended", |world| world.runs.len() == 1 && all_ended(world));
    world.run_until("nothing left", World::is_clean);
    let quiet = world.now + 60_000;
    world.run_until("a quiet minute", |world| world.now > quiet);
    let before = world.calls.clone();
    let later = world.now + 3_600_000;
    world.run_until("a quiet hour", |world| world.now > later);
    let mut asked = world.calls.clone();
    for (call, count) in &mut asked {
        *count -= before.get(call).copied().unwrap_or_default();
    }
    let outside: usize = asked.iter().filter(|(call, _)| **call != "pull").map(|(_, count)| count).sum();
    let intervals = 3_600 / 15;
    assert!(
        (intervals - 4..=intervals + 4).contains(&outside),
        "{outside} requests in {intervals} intervals: {asked:?}"
    );
    assert_eq!(outside, asked["heartbeat"], "and each is a beat: {asked:?}");
}

/// The schedule of one seed: submissions, cancels and crashes in the storm, then fair weather.
fn storm(seed: u64, weather: Weather) -> World {
    let mut world = World::new(seed, weather);
    world.start_agent();
    for _ in 0..8 {
        let after = world.dice.below(60_000);
        world.submit_in(after);
    }
    for _ in 0..world.dice.below(3) {
        let after = world.dice.below(90_000);
        world.cancel_in(after);
    }
    for _ in 0..world.dice.below(6) {
        let after = world.dice.below(120_000);
        world.crash_in(after);
    }
    let calm = world.now + 150_000;
    world.run_until("the storm is over", |world| {
        world.check();
        world.now > calm
    });
    world.weather = CALM;
    // Whatever the storm did, the agent is there again.
    world.start_agent();
    world.run_until("every run ended, or is held as lost with its evidence", |world| {
        world.check();
        all_ended(world)
    });
    world.run_until("every record settled and is gone", |world| {
        world.check();
        world.is_clean() && world.control.open_attempts() == 0
    });
    world
}

#[test]
fn no_attempt_starts_twice_and_every_record_settles_in_any_weather() {
    let first = std::option_env!("LEASEHOLD_SEED").and_then(|seed| seed.parse().ok());
    let seeds = first.map_or(0..120, |seed: u64| seed..seed + 1);
    let (mut spawns, mut lost) = (0, 0);
    for seed in seeds {
        eprintln!("seed {seed}");
        let world = storm(seed, STORM);
        spawns += world.spawns.len();
        lost += world.runs.iter().filter(|run| world.control.state(**run) == RunState::Lost).count();
        assert!(!world.exits.contains(&Exit::Fenced), "seed {seed}: fenced by itself\n{}", world.story());
    }
    assert!(spawns > 0);
    eprintln!("{spawns} starts, {lost} runs held as lost");
}

#[test]
fn after_a_reboot_nothing_is_started_again_or_called_never_spawned() {
    for seed in 1000..1060 {
        eprintln!("seed {seed}");
        let weather = Weather { crashes: 0, reboots: 60, ..STORM };
        let world = storm(seed, weather);
        for attempt in world.control.attempts.values() {
            let never = attempt.outcome == Some(leasehold_core::attempt::Outcome::NeverSpawned);
            assert!(
                !(never && world.spawns.contains_key(&attempt.id)),
                "seed {seed}: {}\n{}",
                attempt.id,
                world.story()
            );
        }
    }
}

#[test]
fn a_cut_network_shorter_than_the_lease_loses_nothing() {
    for seed in 2000..2020 {
        eprintln!("seed {seed}");
        let mut world = World::new(seed, CALM);
        world.start_agent();
        world.submit_in(5_000);
        world.run_until("it runs", |world| !world.spawns.is_empty() || world.now > 1_010_000);
        world.cut_until = world.now + 30_000 + i64::try_from(world.dice.below(10_000)).unwrap();
        world.run_until("ended", |world| world.runs.len() == 1 && all_ended(world));
        world.run_until("clean", World::is_clean);
        world.check();
        assert_ne!(world.control.state(world.runs[0]), RunState::Lost, "seed {seed}\n{}", world.story());
    }
}

#[test]
fn the_answer_of_a_claim_may_be_lost_two_hundred_times() {
    let mut world = World::new(7, CALM);
    world.losing = Some(Losing::answers_of("pull", 200));
    world.longest_job = 500;
    world.start_agent();
    for n in 0..200 {
        world.submit_in(n * 3_000);
    }
    world.run_until("two hundred runs ended", |world| world.runs.len() == 200 && all_ended(world));
    world.run_until("nothing left", World::is_clean);
    world.check();
    assert_eq!(world.losing.as_ref().map(|losing| losing.left), Some(0), "each claim was answered to nobody once");
    assert_eq!(world.control.claims(), 200, "and then with the same offer");
    assert!(world.control.first_attempts_only());
    assert!(world.runs.iter().all(|run| world.control.state(*run) != RunState::Lost));
}

#[test]
fn the_answer_of_a_registration_may_be_lost_a_hundred_times() {
    let mut world = World::new(8, CALM);
    world.losing = Some(Losing::answers_of("register", 100));
    world.start_agent();
    world.submit_in(0);
    world.run_until("the run ended", |world| world.runs.len() == 1 && all_ended(world));
    world.run_until("nothing left", World::is_clean);
    world.check();
    assert_eq!(world.losing.as_ref().map(|losing| losing.left), Some(0));
    assert_eq!((world.control.copies, world.exits.len()), (0, 0), "nobody is taken for a copy, and nobody gives up");
    assert!(world.control.first_attempts_only());
}

#[test]
fn a_call_whose_commit_the_control_plane_does_not_know_of_is_repeated_until_it_is_answered() {
    for call in ["register", "heartbeat", "pull", "starting", "running", "end"] {
        let mut world = World::new(10, CALM);
        world.losing = Some(Losing::commits_of(call, 3));
        world.longest_job = 60_000;
        world.start_agent();
        world.submit_in(0);
        world.run_until("the run ended", |world| world.runs.len() == 1 && all_ended(world));
        world.run_until("nothing left", World::is_clean);
        world.check();
        assert_eq!((world.control.copies, world.exits.len()), (0, 0), "{call}: {}", world.story());
        assert!(world.losing.as_ref().is_some_and(|losing| losing.left < 3), "{call} was lost");
        assert!(world.control.first_attempts_only(), "{call}");
    }
}

#[test]
fn a_control_plane_that_is_away_for_five_minutes_stops_no_job() {
    let mut world = World::new(9, CALM);
    // The default of a run that is not retried when it is lost.
    world.lease = "10m";
    world.longest_job = 3_600_000;
    world.start_agent();
    world.submit_in(0);
    let running = |world: &World| {
        world
            .control
            .attempts
            .values()
            .any(|attempt| attempt.state == AttemptState::Running && world.is_running(attempt.id))
    };
    world.run_until("it runs", running);
    let attempt = *world.spawns.keys().next().unwrap();
    world.cut_until = world.now + 300_000;
    let (back, later) = (world.cut_until, world.cut_until + 30_000);
    world.run_until("five minutes have passed", |world| {
        assert!(world.is_running(attempt), "{}", world.story());
        world.now > back
    });
    world.run_until("the worker speaks again", |world| world.now > later);
    assert!(running(&world), "{}", world.story());
    world.cancel_in(0);
    world.run_until("cancelled", all_ended);
    assert_eq!(world.control.state(world.runs[0]), RunState::Cancelled);
    assert!(world.control.first_attempts_only());
}

#[test]
fn a_frozen_launcher_does_not_keep_its_job_from_a_cancel() {
    let mut world = World::new(10, CALM);
    world.lease = "10m";
    world.longest_job = 3_600_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.keys().any(|attempt| world.is_running(*attempt)));
    let attempt = *world.spawns.keys().next().unwrap();
    world.frozen = true;
    // A new agent cannot attach to it either.
    world.crash_in(20_000);
    world.cancel_in(60_000);
    let bound = world.now + 60_000 + 30_000;
    world.run_until("it is over", |world| {
        assert!(world.now < bound, "renewed and not stopped\n{}", world.story());
        world.is_stopped(attempt)
    });
    world.run_until("settled", World::is_clean);
    assert_eq!(world.control.state(world.runs[0]), RunState::Cancelled);
    world.check();
}

#[test]
fn a_cut_longer_than_the_lease_stops_the_job_and_the_receipt_says_so() {
    let mut world = World::new(3, CALM);
    world.longest_job = 10_000_000;
    world.start_agent();
    world.submit_in(5_000);
    world.run_until("it runs", |world| !world.spawns.is_empty());
    let attempt = *world.spawns.keys().next().unwrap();
    world.cut_until = world.now + 120_000;
    world.run_until("lost", |world| world.control.state(world.runs[0]) == RunState::Lost);
    assert!(world.is_stopped(attempt), "the job was over before the control plane declared it lost");
    world.run_until("settled", World::is_clean);
    world.check();
}

#[test]
fn a_revoked_worker_goes_when_its_last_lease_has_ended() {
    let mut world = World::new(11, CALM);
    world.longest_job = 10_000_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.keys().any(|attempt| world.is_running(*attempt)));
    world.control.revoked = true;
    // Its job is over before its lease is, and nothing else happens then.
    world.run_until("gone", |world| !world.exits.is_empty());
    assert_eq!(world.exits, [Exit::Revoked]);
    assert!(world.is_stopped(*world.spawns.keys().next().unwrap()));
}

#[test]
fn a_drained_worker_goes_offline_and_leaves_nothing() {
    let mut world = World::new(4, CALM);
    world.start_agent();
    for n in 0..5 {
        world.submit_in(n * 100);
    }
    world.run_until("three run", |world| world.spawns.len() == 3);
    let mut accepted: Vec<_> = world.disk.records.values().map(crate::inbox::record::Record::attempt).collect();
    accepted.extend(world.spawns.keys());
    world.signal(Signal::Terminate);
    world.run_until("gone", |world| !world.exits.is_empty());
    assert_eq!(world.exits, [Exit::Done]);
    assert!(world.is_clean());
    for attempt in world.spawns.keys() {
        assert!(accepted.contains(attempt), "{attempt} was taken on by a draining worker");
    }
    assert!(world.runs.iter().any(|run| world.control.state(*run) == RunState::Pending));
}

#[test]
fn a_second_terminate_stops_the_jobs_with_the_truth() {
    let mut world = World::new(5, CALM);
    world.longest_job = 10_000_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.signal(Signal::Terminate);
    world.signal(Signal::Terminate);
    world.run_until("gone", |world| !world.exits.is_empty());
    assert_eq!(world.exits, [Exit::Done]);
    assert_eq!(world.control.state(world.runs[0]), RunState::Cancelled);
    assert!(world.is_clean());
}

#[test]
fn a_worker_that_is_leaving_does_not_start_over() {
    let mut world = World::new(7, CALM);
    world.longest_job = 600_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.signal(Signal::Terminate);
    world.signal(Signal::StartOver);
    world.run_until("gone", |world| !world.exits.is_empty());
    assert_eq!(world.exits, [Exit::Done], "the next image would not know that it is to leave");
    assert!(world.is_clean());
}

#[test]
fn leaving_a_job_running_lets_the_next_start_carry_it_on() {
    let mut world = World::new(6, CALM);
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.signal(Signal::LeaveRunning);
    world.run_until("gone", |world| !world.exits.is_empty());
    world.start_agent();
    world.run_until("ended", all_ended);
    world.run_until("clean", World::is_clean);
    world.check();
    assert!(matches!(world.control.state(world.runs[0]), RunState::Succeeded | RunState::Failed));
}

#[test]
fn a_job_whose_record_is_damaged_is_stopped_before_it_is_called_lost() {
    let mut ran = 0;
    for seed in 3000..3010 {
        let mut world = World::new(seed, CALM);
        world.longest_job = 3_600_000;
        world.lease = "24h";
        world.start_agent();
        world.submit_in(0);
        let runs = |world: &World| {
            let mut attempts = world.control.attempts.values();
            attempts.any(|attempt| attempt.state == AttemptState::Running && world.is_running(attempt.id))
        };
        world.run_until("the job runs, or was rejected", |world| {
            runs(world) || (world.runs.len() == 1 && all_ended(world))
        });
        if !runs(&world) {
            continue;
        }
        ran += 1;
        let Some(attempt) = world.control.attempts.keys().next().copied() else { panic!("seed {seed}") };
        world.crash_and_damage_records();
        world.run_until("the attempt is over", |world| world.control.attempts[&attempt].state.is_terminal());
        assert!(world.is_stopped(attempt), "seed {seed}: called over while its process lives\n{}", world.story());
        world.run_until("nothing left", World::is_clean);
    }
    assert!(ran > 5, "{ran} of 10 jobs ran");
}

#[test]
fn a_worker_that_a_person_drains_keeps_what_runs_and_takes_nothing_until_it_is_resumed() {
    let mut world = World::new(7, CALM);
    world.longest_job = 600_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.control.drain(true);
    world.run_until("it obeys", |world| world.control.said() == (0, true));
    for n in 0..3 {
        world.submit_in(n * 1000);
    }
    let later = world.now + 60_000;
    world.run_until("a minute", |world| world.now > later);
    assert_eq!(world.spawns.len(), 1, "nothing new\n{}", world.story());
    assert!(world.exits.is_empty(), "it stays");

    // A new process knows nothing of it, and is told again.
    world.signal(Signal::LeaveRunning);
    world.run_until("gone", |world| !world.exits.is_empty());
    world.start_agent();
    world.run_until("the new life obeys", |world| world.control.said() == (0, true));
    world.run_until("what ran has ended", |world| world.control.state(world.runs[0]).is_terminal());
    assert_eq!(world.spawns.len(), 1, "nothing new\n{}", world.story());

    world.control.drain(false);
    world.run_until("the rest", all_ended);
    world.run_until("clean", World::is_clean);
    assert_eq!(world.spawns.len(), 4);
    assert!(!world.control.said().1);
    world.check();
}

#[test]
fn a_drain_and_its_end_in_any_weather_start_nothing_twice() {
    for seed in 4000..4030 {
        eprintln!("seed {seed}");
        let mut world = World::new(seed, STORM);
        world.start_agent();
        for _ in 0..6 {
            let after = world.dice.below(60_000);
            world.submit_in(after);
        }
        for drain in [true, false, true, false] {
            let until = world.now + i64::try_from(world.dice.below(30_000)).unwrap();
            world.run_until("the person makes up their mind", |world| {
                world.check();
                world.now > until
            });
            if world.dice.percent(50) {
                world.control.drain(drain);
            } else {
                world.drain_here(drain);
            }
        }
        world.control.drain(false);
        world.drain_here(false);
        world.weather = CALM;
        world.start_agent();
        world.run_until("every run ended, or is held as lost", |world| {
            world.check();
            world.runs.len() == 6 && all_ended(world)
        });
        world.run_until("clean", |world| world.is_clean() && world.control.open_attempts() == 0);
    }
}

#[test]
fn a_drained_worker_that_is_told_to_go_leaves_as_any_other() {
    let mut world = World::new(8, CALM);
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.control.drain(true);
    world.run_until("it obeys", |world| world.control.said() == (0, true));
    world.signal(Signal::Terminate);
    world.run_until("gone", |world| !world.exits.is_empty());
    assert_eq!(world.exits, [Exit::Done]);
    assert!(world.is_clean());
}

#[test]
fn a_drain_at_the_machine_outlives_the_agent_and_an_operators_word_does_not_end_it() {
    let mut world = World::new(9, CALM);
    world.longest_job = 600_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.drain_here(true);
    world.run_until("it is heard", |world| world.control.said() == (0, false));
    for n in 0..3 {
        world.submit_in(n * 1000);
    }
    world.control.drain(true);
    world.run_until("the operator is obeyed, too", |world| world.control.said() == (0, true));
    world.signal(Signal::LeaveRunning);
    world.run_until("gone", |world| !world.exits.is_empty());
    world.start_agent();
    world.control.drain(false);
    let later = world.now + 120_000;
    world.run_until("two minutes", |world| world.now > later);
    assert_eq!(world.control.said(), (0, false), "drained here, and by nobody else");
    assert_eq!(world.spawns.len(), 1, "nothing new\n{}", world.story());

    world.drain_here(false);
    world.run_until("the rest", all_ended);
    world.run_until("clean", World::is_clean);
    assert_eq!(world.spawns.len(), 4);
    world.check();
}

#[test]
fn a_low_disk_takes_nothing_new_and_touches_nothing_that_runs() {
    let mut world = World::new(7, CALM);
    world.longest_job = 10_000_000;
    world.start_agent();
    world.submit_in(0);
    world.run_until("it runs", |world| world.spawns.len() == 1);
    world.disk_low(true);
    for _ in 0..3 {
        world.submit_in(10);
    }
    let later = world.now + 200_000;
    world.run_until("three more wait", |world| world.now > later);
    assert_eq!(world.spawns.len(), 1, "{}", world.story());
    assert!(world.faults.iter().any(|fault| fault.contains("disk is low")), "{:?}", world.faults);
    let running = *world.spawns.keys().next().unwrap();
    assert!(world.is_running(running));
    world.disk_low(false);
    world.run_until("the next is taken", |world| world.spawns.len() == 3);
    world.check();
}

#[test]
fn a_log_endpoint_that_misbehaves_in_turn_delays_no_beat_and_loses_no_byte() {
    for seed in 4000..4020 {
        let mut world = World::new(seed, CALM);
        world.bad_logs = true;
        world.longest_job = 10_000;
        world.start_agent();
        for n in 0..5 {
            world.submit_in(n * 100);
        }
        let after = world.dice.below(8_000);
        world.crash_in(after);
        world.run_until("five runs ended", |world| world.runs.len() == 5 && all_ended(world));
        world.run_until("nothing left", World::is_clean);
        world.check();
        for attempt in world.control.attempts.values() {
            let shipped = world.control.logs.get(&attempt.id).copied().unwrap_or(0);
            assert_eq!(shipped, attempt.log.map_or(0, |log| log.length), "seed {seed}\n{}", world.story());
        }
        // One beat per interval (12 s under a lease of 60 s, 15 s without), whatever the logs do; a start beats at once.
        let seconds = usize::try_from(world.now / 1000 - 1000).unwrap();
        let beats = world.calls["heartbeat"];
        assert!(beats >= seconds / 17, "seed {seed}: {beats} beats in {seconds} s");
    }
}

#[test]
fn what_is_wrong_with_the_machine_is_told_with_a_beat_and_so_is_its_end() {
    use leasehold_core::fault::FaultKind;

    let told = |world: &World| world.control.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>();
    let mut world = World::new(9, CALM);
    world.start_agent();
    world.control.skew = -180_000;
    world.run_until("its clock is told", |world| told(world) == [FaultKind::Clock]);
    let detail = world.control.faults[0].detail.clone();
    assert!(detail.contains("3 min ahead of the control plane's"), "{detail}");
    world.disk_low(true);
    world.run_until("both are told", |world| told(world) == [FaultKind::Clock, FaultKind::DiskLow]);
    assert_eq!(world.faults.len(), 2, "each is said aloud once: {:?}", world.faults);

    // A new session begins with what its own process knows.
    world.signal(Signal::LeaveRunning);
    world.run_until("gone", |world| !world.exits.is_empty());
    world.control.skew = 0;
    world.start_agent();
    world.run_until("nothing is wrong any more", |world| told(world).is_empty());
}
