//! Placement against the limits and rules of its design, and its order against every shuffle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::capability::tests::machine;
use crate::capability::{Capabilities, Claimed, Gpu};
use crate::limits::PLACEMENT_PREFERENCE;
use crate::occupancy::{LimitFact, LimitOf, Places};
use crate::time::{Millis, UtcMillis};

fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

fn placement(require: &[&str], prefer: &[&str]) -> Placement {
    let mut requirements = Requirements::default();
    for text in require {
        parse_requirement(text, &mut requirements).unwrap_or_else(|error| panic!("{error}"));
    }
    let prefer = prefer.iter().map(|text| parse_preference(text).unwrap_or_else(|error| panic!("{error}")));
    Placement::new(requirements, prefer.collect()).unwrap()
}

fn capable(change: impl FnOnce(&mut Claimed)) -> Capabilities {
    let mut claimed = machine();
    change(&mut claimed);
    Capabilities::new(claimed).unwrap()
}

/// The mismatches of the test machine, one line each.
fn mismatches(require: &str) -> String {
    let lacks = matches(&placement(&[require], &[]), &capable(|_| ()), &worker("nas")).err().unwrap_or_default();
    lacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_requirement_admits_and_refuses_with_its_own_class() {
    for (good, bad, expected) in [
        ("arch=x86_64", "arch=aarch64,armv7l", "arch: wants aarch64 or armv7l, has x86_64"),
        ("os=linux", "os=freebsd", "os: wants freebsd, has linux"),
        ("executor=process", "executor=docker", "executor: wants docker, has process"),
        ("runtime.python>=3.11", "runtime.python>=3.12", "runtime_version: wants python >=3.12, has python 3.11.7"),
        ("runtime.python", "runtime.node", "runtime_missing: wants node >=0, has no node"),
        ("label.site=office", "label.site=home", "label: wants site=home, has site=office"),
        ("label.site=office", "label.zone=a", "label: wants zone=a, has no label zone"),
        ("memory>=2GiB", "memory_mib>=2049", "memory: wants 2049 MiB, has 2048 MiB"),
        ("disk>=10000MiB", "disk>=1TiB", "disk: wants 1048576 MiB, has 10000 MiB"),
        ("gpu", "gpu>=2", "gpu: wants 2 GPU, has nvidia T4 with 16000 MiB"),
        ("gpu.vendor=nvidia", "gpu.vendor=amd", "gpu: wants 1 GPU amd, has nvidia T4 with 16000 MiB"),
        ("gpu.memory>=8GiB", "gpu.memory>=80GiB", "gpu: wants 1 GPU with 81920 MiB, has nvidia T4 with 16000 MiB"),
        ("feature=cgroup-kill", "feature=kvm", "feature: wants kvm, has no kvm"),
        ("worker=nas", "worker=router", "worker_id: wants router, has nas"),
    ] {
        assert_eq!(mismatches(good), "", "{good}");
        assert_eq!(mismatches(bad), expected, "{bad}");
    }
}

#[test]
fn every_mismatch_is_named_at_once() {
    let wanted = placement(&["arch=riscv64", "memory>=1TiB", "runtime.go"], &[]);
    let lacks = matches(&wanted, &capable(|_| ()), &worker("nas")).unwrap_err();
    let classes: Vec<_> = lacks.iter().map(|mismatch| mismatch.class.as_str()).collect();
    assert_eq!(classes, ["arch", "runtime_missing", "memory"]);
}

#[test]
fn an_explanation_says_everything_that_a_machine_lacks() {
    let small = capable(|c| {
        c.arch = "aarch64".into();
        c.memory_mib = 256;
        c.runtimes = BTreeMap::from([("python".to_owned(), "3.9.2".parse().unwrap())]);
        c.labels = BTreeMap::from([("zone".to_owned(), "home".to_owned())]);
        c.gpus = Vec::new();
    });
    let small = WorkerFacts { capabilities: Some(small), ..facts("pi") };
    let wanted = ["arch=x86_64", "runtime.python>=3.11", "memory>=512MiB", "label.zone=office", "gpu.vendor=nvidia"];
    let explanation = explain(&placement(&wanted, &[]), &[], &[small], UtcMillis::new(0));
    let lacks: Vec<_> = explanation.workers[0].mismatches.iter().map(ToString::to_string).collect();
    assert_eq!(
        lacks,
        [
            "arch: wants x86_64, has aarch64",
            "runtime_version: wants python >=3.11, has python 3.9.2",
            "label: wants zone=office, has zone=home",
            "memory: wants 512 MiB, has 256 MiB",
            "gpu: wants 1 GPU nvidia, has no GPU",
        ]
    );
    assert_eq!((explanation.outlook, explanation.classes.len()), (Outlook::Never, 5));
}

#[test]
fn the_list_of_classes_is_closed() {
    let names: Vec<_> = MismatchClass::ALL.iter().map(|class| class.as_str()).collect();
    assert_eq!(
        names.join(" "),
        "arch os executor runtime_missing runtime_version label memory disk gpu feature worker_id offline draining \
         paused protocol_version no_free_slot limit refused_by_worker"
    );
}

#[test]
fn preferences_order_and_never_admit() {
    let wanted = placement(&["memory>=1TiB"], &["label.site=office:100"]);
    assert!(matches(&wanted, &capable(|_| ()), &worker("nas")).is_err());

    let wanted = placement(&[], &["label.site=office:10", "label.site=office,label.disk=ssd:5", "label.disk=hdd:-7"]);
    let at = |labels: &[(&str, &str)]| {
        let own = labels.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        matches(&wanted, &capable(|c| c.labels = own), &worker("nas")).unwrap().get()
    };
    assert_eq!(at(&[("site", "office")]), 10);
    assert_eq!(at(&[("site", "office"), ("disk", "ssd")]), 15);
    assert_eq!(at(&[("disk", "hdd")]), -7);
    assert_eq!(at(&[]), 0);
}

fn candidate(name: &str, score: i64, free_slots: u32) -> Candidate {
    Candidate { worker: worker(name), score: Score::new(score), free_slots }
}

#[test]
fn the_best_is_first_by_score_then_slots_then_id() {
    let ranked = rank(vec![
        candidate("c", 0, 9),
        candidate("b", 0, 9),
        candidate("a", 0, 1),
        candidate("d", -5, 99),
        candidate("e", 7, 1),
    ]);
    let names: Vec<_> = ranked.iter().map(|candidate| candidate.worker.as_str()).collect();
    assert_eq!(names, ["e", "b", "c", "a", "d"]);
}

#[test]
fn candidates_are_cut_after_they_are_ordered() {
    let ranked = rank((0..200).map(|n| candidate(&format!("w{n}"), n, 1)).collect());
    assert_eq!(ranked.len(), 64);
    assert_eq!(ranked.last().unwrap().score, Score::new(136));
}

proptest! {
    #[test]
    fn the_order_does_not_depend_on_who_came_first(
        seeds in prop::collection::btree_map(0..500u32, (-3..3i64, 0..3u32), 0..90),
        turn in any::<usize>(),
    ) {
        let candidates: Vec<_> = seeds.iter().map(|(n, (score, free))| candidate(&format!("w{n}"), *score, *free)).collect();
        let mut turned = candidates.clone();
        if !turned.is_empty() {
            let by = turn % turned.len();
            turned.rotate_left(by);
        }
        prop_assert_eq!(rank(turned), rank(candidates));
    }
}

#[test]
fn the_canonical_form_and_its_digest_are_stable() {
    let wanted = placement(
        &["arch=x86_64", "runtime.python<4", "runtime.python>=3.11", "gpu.vendor=nvidia", "worker=nas"],
        &["label.disk=ssd:10"],
    );
    assert_eq!(
        wanted.to_value().to_canonical_text(),
        concat!(
            r#"{"prefer":[{"labels":{"disk":"ssd"},"weight":10}],"require":{"arch":["x86_64"],"disk_mib":0,"#,
            r#""executors":["process"],"features":[],"gpu":{"count":1,"memory_mib":0,"vendor":"nvidia"},"labels":{},"#,
            r#""memory_mib":0,"os":[],"runtimes":{"python":">=3.11,<4"},"worker_ids":["nas"]}}"#
        )
    );
    assert_eq!(Placement::from_canonical_bytes(&wanted.to_canonical_bytes()), Ok(wanted));
    // printf 'leasehold/placement/v1\0…' | sha256sum
    assert_eq!(
        Placement::default().digest().to_string(),
        "435cb5c4ac72d4cf7cd568d8933d26d374edc436f284987c5c6d938d5075c7d5"
    );
}

#[test]
fn what_means_the_same_has_one_digest() {
    let one = placement(&["arch=a,b", "memory>=1GiB"], &["label.a=1:1", "label.b=2:2"]);
    let other = placement(&["memory_mib>=1024", "arch=b", "arch=a"], &["label.b=2:2", "label.a=1:1"]);
    assert_eq!(one.digest(), other.digest());
}

#[test]
fn limits_of_a_placement_are_enforced() {
    for (json, expected) in [
        (r#"{"require":{"archs":["x"]}}"#, "`require.archs`: unknown key, did you mean `arch`?"),
        (r#"{"require":{"executors":[]}}"#, "at least one executor"),
        (r#"{"require":{"gpu":{"count":17}}}"#, "`require.gpu.count`: got 17"),
        (r#"{"require":{"memory_mib":-1}}"#, "`require.memory_mib`: got -1"),
        (r#"{"require":{"runtimes":{"python":"3.11"}}}"#, "`require.runtimes.python`"),
        (r#"{"require":{"arch":["x","x"]}}"#, "`require.arch[1]`: got the same member twice"),
        (r#"{"require":{"worker_ids":["NAS"]}}"#, "`require.worker_ids[0]`"),
        (r#"{"prefer":[{"label":"disk","weight":1}]}"#, "a label such as `disk=ssd`"),
        (r#"{"prefer":[{"label":"disk=ssd"}]}"#, "`prefer[0].weight`: missing"),
        (r#"{"prefer":[{"label":"disk=ssd","weight":101}]}"#, "from -100 to 100"),
        (r#"{"prefer":[{"weight":1}]}"#, "exactly one of them"),
        (r#"{"prefer":[{"lable":"disk=ssd","weight":1}]}"#, "`prefer[0].lable`: unknown key, did you mean `label`?"),
        (r#"{"prefer":[{"labels":{"":"x"},"weight":1}]}"#, "the key ``"),
        (r#"{"prefer":[{"labels":{},"weight":1}]}"#, "at least one label"),
        (r#"{"prefer":[{"label":"a=1","weight":1},{"labels":{"a":"1"},"weight":2}]}"#, "every label set once"),
    ] {
        let value = Value::parse(json.as_bytes(), PLACEMENT_BYTES).unwrap();
        let errors = Placement::from_value(&value).unwrap_err();
        assert_eq!(errors.len(), 1, "{json}: {errors:?}");
        assert!(errors[0].to_string().contains(expected), "{json}: {}", errors[0]);
    }
    let many = (0..17).map(|n| Preference { labels: BTreeMap::from([(format!("k{n}"), "x".into())]), weight: 1 });
    assert!(Placement::new(Requirements::default(), many.collect()).is_err());
    let mut wide = Requirements::default();
    wide.labels.extend((0..64).map(|n| (format!("{n:x<128}"), "y".repeat(128))));
    assert!(Placement::new(wide, Vec::new()).is_err());
}

#[test]
fn short_forms_that_are_not_understood_say_what_is() {
    for (text, expected) in [
        ("arhc=x", "did you mean arch?"),
        ("runtime.python=>3", "is not a version range"),
        ("memory=5", "write memory>=512MiB"),
        ("memory>=5", "is not a size"),
        ("memory>=99999999999999999999GiB", "is not a size"),
        ("label.site", "write label.KEY=VALUE"),
        ("arch=", "write arch=VALUE"),
        ("worker=NAS", "is not a worker id"),
        ("gpu>=0", "write gpu>=2"),
        ("", "unknown requirement"),
    ] {
        let error = parse_requirement(text, &mut Requirements::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    let mut require = Requirements::default();
    parse_requirement("label.a=1", &mut require).unwrap();
    assert!(parse_requirement("label.a=2", &mut require).is_err());
    for text in ["label.a=1", "label.a=1:x", "label.a=1:101", "a=1:5", "label.a:5", "label.a=1,label.a=2:5"] {
        assert!(parse_preference(text).is_err(), "{text}");
    }
}

#[test]
fn a_label_may_hold_any_sign() {
    let mut require = Requirements::default();
    parse_requirement("label.note=a=b>c", &mut require).unwrap();
    assert_eq!(require.labels["note"], "a=b>c");
}

#[test]
fn the_smallest_fitting_devices_are_picked() {
    let gpu = |id: &str, vendor: &str, memory_mib| Gpu {
        id: id.parse().unwrap(),
        vendor: vendor.into(),
        model: "m".into(),
        memory_mib,
    };
    let have = capable(|c| {
        c.gpus = vec![gpu("a", "nvidia", 48), gpu("b", "nvidia", 16), gpu("c", "nvidia", 24), gpu("d", "amd", 16)];
    });
    let want = GpuRequirement { vendor: Some("nvidia".into()), memory_mib: 16, count: 2, ..GpuRequirement::default() };
    let picked = |busy: &[&str]| {
        let busy: BTreeSet<_> = busy.iter().map(|id| id.parse().unwrap()).collect();
        pick_gpus(&want, &have, &busy).map(|devices| devices.to_string())
    };
    assert_eq!(picked(&[]).as_deref(), Some("b,c"));
    assert_eq!(picked(&["b"]).as_deref(), Some("c,a"));
    assert_eq!(picked(&["b", "c"]), None);
}

fn facts(name: &str) -> WorkerFacts {
    WorkerFacts {
        worker: worker(name),
        capabilities: Some(capable(|_| ())),
        state: Availability::Online,
        free_slots: 1,
        busy_devices: BTreeSet::new(),
        refused_for: None,
    }
}

/// Outlook, leading class and words for a run that wants `require`.
fn explained(require: &[&str], workers: &[WorkerFacts]) -> (Outlook, Option<MismatchClass>, String) {
    let explanation = explain(&placement(require, &[]), &[], workers, UtcMillis::new(0));
    (explanation.outlook, explanation.leading, explanation.nearest)
}

#[test]
fn never_is_told_apart_from_busy() {
    let (outlook, leading, words) = explained(&["runtime.python>=3.12"], &[facts("a"), facts("b")]);
    assert_eq!((outlook, leading), (Outlook::Never, Some(MismatchClass::RuntimeVersion)));
    assert_eq!(words, "no registered worker can ever run this; nearest is a: wants python >=3.12, has python 3.11.7");

    let full = WorkerFacts { free_slots: 0, ..facts("b") };
    let (outlook, leading, words) = explained(&[], std::slice::from_ref(&full));
    assert_eq!((outlook, leading), (Outlook::Busy, Some(MismatchClass::NoFreeSlot)));
    assert_eq!(words, "waiting for b: every slot taken");

    assert_eq!(explained(&[], &[full, facts("c")]).0, Outlook::Ready);
    assert_eq!(explained(&[], &[]).0, Outlook::NoWorkers);
    let fresh = WorkerFacts { capabilities: None, state: Availability::Offline, ..facts("d") };
    assert_eq!(explained(&[], &[fresh]).0, Outlook::NoWorkers);
}

#[test]
fn a_worker_that_lacks_something_is_not_waited_for() {
    let offline = WorkerFacts { state: Availability::Offline, ..facts("able") };
    let lacking = WorkerFacts { capabilities: Some(capable(|c| c.arch = "mips".into())), ..facts("other") };
    let (outlook, leading, words) = explained(&["arch=x86_64"], &[lacking.clone(), offline]);
    assert_eq!((outlook, leading), (Outlook::Busy, Some(MismatchClass::Offline)));
    assert_eq!(words, "waiting for able: offline");
    // Its passing state does not hide what it lacks for good.
    let gone = WorkerFacts { state: Availability::Offline, ..lacking };
    assert_eq!(explained(&["arch=x86_64"], &[gone]).1, Some(MismatchClass::Arch));
}

#[test]
fn the_nearest_miss_is_who_lacks_least() {
    let far = WorkerFacts { capabilities: Some(capable(|c| (c.memory_mib, c.disk_mib) = (1, 1))), ..facts("a") };
    let near = WorkerFacts { capabilities: Some(capable(|c| c.memory_mib = 1)), free_slots: 0, ..facts("z") };
    let words = explained(&["memory>=1GiB", "disk>=1GiB"], &[far, near]).2;
    assert!(words.ends_with("nearest is z: wants 1024 MiB, has 1 MiB"), "{words}");
}

#[test]
fn every_passing_reason_is_named() {
    for (change, class) in [
        (WorkerFacts { state: Availability::Draining, ..facts("a") }, MismatchClass::Draining),
        (WorkerFacts { state: Availability::Paused, ..facts("a") }, MismatchClass::Paused),
        (WorkerFacts { state: Availability::UnsupportedProtocol, ..facts("a") }, MismatchClass::ProtocolVersion),
        (WorkerFacts { refused_for: Some(Millis::from_secs(30)), ..facts("a") }, MismatchClass::RefusedByWorker),
        (WorkerFacts { busy_devices: BTreeSet::from(["gpu-0".parse().unwrap()]), ..facts("a") }, MismatchClass::Gpu),
    ] {
        let (outlook, leading, _) = explained(&["gpu"], &[change]);
        assert_eq!((outlook, leading), (Outlook::Busy, Some(class)));
    }
}

#[test]
fn gpus_in_use_are_counted_among_those_that_fit() {
    let gpu = |id: &str, model: &str| Gpu {
        id: id.parse().unwrap(),
        vendor: "nvidia".into(),
        model: model.into(),
        memory_mib: 16,
    };
    let rig = capable(|c| c.gpus = vec![gpu("0", "T4"), gpu("1", "T4"), gpu("2", "K80")]);
    let busy = |ids: &[&str]| WorkerFacts {
        capabilities: Some(rig.clone()),
        busy_devices: ids.iter().map(|id| id.parse().unwrap()).collect(),
        ..facts("rig")
    };
    let want = ["gpu>=2", "gpu.model=T4"];
    let (outlook, leading, words) = explained(&want, &[busy(&["1", "2"])]);
    assert_eq!((outlook, leading), (Outlook::Busy, Some(MismatchClass::Gpu)));
    assert_eq!(words, "waiting for rig: 1 free of 2 that fit");
    assert_eq!(explained(&want, &[busy(&["2"])]).0, Outlook::Ready, "another model's is none of these");
    assert_eq!(explained(&["gpu>=4"], &[busy(&[])]).0, Outlook::Never);
}

#[test]
fn a_full_limit_holds_the_run_back_whatever_the_workers() {
    let of = |of, name: &str, limit, occupied| LimitFact {
        of,
        name: name.to_owned(),
        places: Places { limit, occupied },
        holders: Vec::new(),
    };
    let explained =
        |limits: &[LimitFact]| explain(&Placement::default(), limits, &[facts("b"), facts("a")], UtcMillis::new(0));
    let (full, free) = (of(LimitOf::Task, "report", 1, 1), of(LimitOf::Project, "lab", 3, 2));
    let explanation = explained(&[full.clone(), free.clone()]);
    assert_eq!((explanation.outlook, explanation.leading), (Outlook::Limited, Some(MismatchClass::Limit)));
    assert_eq!(explanation.classes, BTreeMap::from([(MismatchClass::Limit, 2)]));
    assert_eq!(explanation.nearest, "waiting for the one place of task report");
    assert_eq!(explanation.workers[0].worker, worker("a"));
    assert_eq!(explanation.workers[0].mismatches.len(), 1, "what has a place left keeps nobody back");
    assert_eq!(explained(&[free]).outlook, Outlook::Ready);
    let both = explained(&[full, of(LimitOf::Project, "lab", 3, 3)]).nearest;
    assert_eq!(both, "waiting for the one place of task report; waiting for one of the 3 places of project lab");
}

#[test]
fn a_run_is_left_to_a_better_worker_elsewhere_for_a_moment_only() {
    let (low, high) = (candidate("low", 1, 4), candidate("high", 2, 1));
    let moment = PLACEMENT_PREFERENCE.minus(Millis::new(1));
    assert_eq!(left_to_another(moment, &low, [low.clone(), high.clone()]), Some(high.clone()));
    assert_eq!(left_to_another(PLACEMENT_PREFERENCE, &low, [high.clone()]), None, "then whoever is here has it");
    assert_eq!(left_to_another(moment, &high, [low.clone()]), None);
    assert_eq!(left_to_another(Millis::ZERO, &low, []), None, "nobody waits elsewhere");
}

#[test]
fn replicas_that_know_of_each_other_leave_a_run_to_exactly_one_of_them() {
    let waiting = [candidate("c", 5, 1), candidate("a", 5, 2), candidate("b", 5, 2), candidate("d", 0, 9)];
    let takes = |here: &Candidate| {
        let elsewhere = waiting.iter().filter(|candidate| *candidate != here).cloned();
        left_to_another(Millis::ZERO, here, elsewhere).is_none()
    };
    let takers: Vec<_> = waiting.iter().filter(|here| takes(here)).map(|here| here.worker.clone()).collect();
    assert_eq!(takers, [worker("a")], "by score, then free slots, then worker id");
    assert_eq!(rank(waiting.to_vec())[0].worker, takers[0], "the order that one replica ranks by");
}
