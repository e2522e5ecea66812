//! A body of many tasks is read task by task: what is wrong with it is told as if it were read whole.
#![cfg(feature = "api")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use leasehold_core::limits::APPLY_TASKS;
use leasehold_wire::api::task::ApplyTasks;

fn told(body: &str) -> Vec<String> {
    ApplyTasks::parse(body.as_bytes()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn too_many_tasks_are_one_mistake_whatever_each_says() {
    let body = format!("{{\"tasks\":[{}1]}}", "1,".repeat(APPLY_TASKS));
    assert_eq!(told(&body), ["`tasks`: got 10001 members, expected at most 10000"]);
}

#[test]
fn what_is_no_list_of_tasks_is_refused_at_its_place() {
    for (body, mistake) in [
        ("{}", "`tasks`: missing: a list of tasks, each in the shape of a task file"),
        (r#"{"tasks":{}}"#, "`tasks`: got a table, expected a list"),
        (r#"{"tasks":[[]]}"#, "`tasks[0]`: got a list, expected a table"),
        (r#"[{"tasks":[]}]"#, "got a list, expected a table"),
    ] {
        assert_eq!(told(body), [mistake], "{body}");
    }
    // A body that breaks off says that, whatever its tasks said.
    let broken = told(r#"{"tasks":[1,2"#);
    assert!(broken.len() == 1 && broken[0].contains("byte 13"), "{broken:?}");
    assert_eq!(ApplyTasks::parse(br#"{"tasks":[]}"#).unwrap(), ApplyTasks::default());
}

#[test]
fn mistakes_come_in_their_order_and_not_without_end() {
    let bad = told(r#"{"tasks":[{"comand":1}],"prune":1,"purge":true}"#);
    let begins: Vec<&str> = bad.iter().map(|told| told.split(':').next().unwrap()).collect();
    assert_eq!(begins[..3], ["`purge`", "`prune`", "`tasks[0].comand`"], "{bad:?}");
    assert_eq!(told(&format!("{{\"tasks\":[{}1]}}", "1,".repeat(999))).len(), 64);
}
