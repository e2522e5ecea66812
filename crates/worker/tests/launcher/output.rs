//! Every byte a job writes, and nothing else.

use leasehold_core::frame::CutReason;
use leasehold_core::time::Millis;
use leasehold_worker::launcher::request::SecretValue;

use crate::launch::{argv, sh};

#[test]
fn each_stream_is_exact() {
    let ended = sh("printf 'a\\0b\\377\\n'; printf 'err' >&2; printf 'no newline at the end'").end();
    assert_eq!(ended.log.stdout, b"a\0b\xff\nno newline at the end");
    assert_eq!(ended.log.stderr, b"err");
}

#[test]
fn merged_streams_keep_their_order() {
    let mut fixture = sh("i=0; while [ $i -lt 500 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done");
    fixture.request.merge_streams = true;
    let ended = fixture.end();
    let expected = (0..500).map(|i| format!("o{i}\ne{i}\n")).collect::<Vec<_>>().concat();
    assert_eq!(ended.stdout(), expected);
    assert!(ended.log.stderr.is_empty());
}

#[test]
fn a_line_of_ten_mebibytes_arrives_whole() {
    let ended = sh("head -c 10485760 /dev/zero | tr '\\0' x; echo").end();
    assert_eq!(ended.log.stdout.len(), 10_485_761);
    assert!(ended.log.stdout[..10_485_760].iter().all(|&byte| byte == b'x'));
}

#[test]
fn many_lines_arrive_in_order() {
    let ended = argv(&["seq", "100000"]).end();
    let expected = (1..=100_000).map(|i| format!("{i}\n")).collect::<Vec<_>>().concat();
    assert_eq!(ended.stdout(), expected);
}

#[test]
fn beyond_the_quota_the_end_of_the_output_is_kept() {
    let mut fixture = sh("seq 1000000; echo the end");
    fixture.request.log_quota = 100_000;
    let ended = fixture.end();
    let total: usize = (1..=1_000_000).map(|i: u32| i.to_string().len() + 1).sum::<usize>() + "the end\n".len();
    let [cut] = ended.log.cuts[..] else { panic!("{:?}", ended.log.cuts) };
    assert_eq!(cut.reason, CutReason::Quota);
    assert_eq!(usize::try_from(cut.stdout).unwrap() + ended.log.stdout.len(), total);
    assert!(ended.log.stdout.starts_with(b"1\n2\n3\n"));
    assert!(ended.log.stdout.ends_with(b"999999\n1000000\nthe end\n"));
    assert_eq!(ended.ending.log.cut, Some(cut));
}

#[test]
fn a_secret_never_reaches_the_disk() {
    let mut fixture = sh("printf 'a%sb' \"$PASSWORD\"; printf hunt; printf er2; printf 'hunter' >&2");
    fixture.request.secrets.insert("PASSWORD".to_owned(), SecretValue::new("hunter2".to_owned()));
    let ended = fixture.end();
    assert_eq!(ended.stdout(), "a***b***");
    assert_eq!(ended.log.stderr, b"hunter");
    for entry in std::fs::read_dir(ended.dir.dir().path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "{}", path.display());
        }
    }
}

#[test]
fn a_background_process_that_keeps_stdout_does_not_hold_up_the_end() {
    let mut fixture = sh("sleep 600 & echo $!");
    fixture.request.keep_descendants = true;
    let ended = fixture.end();
    let pid = ended.stdout().trim().to_owned();
    assert!(crate::launch::is_alive(&pid), "it was to be kept");
    assert!(ended.ending.log.length > 0);
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_log_is_there_while_the_job_runs() {
    let started = sh("echo early; sleep 600").start();
    assert_eq!(started.first_line(), "early");
    started.control().stop(leasehold_core::attempt::StopReason::Cancel, Some(Millis::ZERO)).unwrap();
    started.end();
}
