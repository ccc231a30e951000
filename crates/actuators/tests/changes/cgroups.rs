//! A cgroup on this machine's kernel, if it allows creating one of version 2.

use std::fs;
use std::path::Path;
use std::process::Command;

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{Change, Changes};

#[test]
fn processes_of_a_removed_cgroup_continue() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Changes::begin(&folder.path().join("1.jsonl"), Roots::default()).unwrap();
    let name = format!("test-{}", std::process::id());
    if let Err(error) = made.make(&Change::Cgroup { name, limits: Vec::new() }) {
        println!("skipped: {error}");
        return;
    }
    let cgroup = made.cgroup().expect("the one that was made").to_owned();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).unwrap();
    let of_child = || fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
    assert!(of_child().contains("pilotlight-test"), "{}", of_child());
    drop(made);
    assert!(!cgroup.exists() && Path::new("/sys/fs/cgroup").exists());
    assert!(!of_child().contains("pilotlight-test"), "{}", of_child());
    child.kill().unwrap();
    child.wait().unwrap();
}
