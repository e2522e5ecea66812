//! Users of this machine that jobs may run as: looked up in the machine's own files.

use crate::launcher::request::RunAs;

/// A user as a job needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// Its ids and groups.
    pub(super) run_as: RunAs,
    /// Its home directory.
    pub(super) home: String,
}

/// The user `name`, with the groups it belongs to; `None` where the machine has no such user.
pub(super) fn find(name: &str) -> std::io::Result<Option<User>> {
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let group = std::fs::read_to_string("/etc/group")?;
    Ok(parse(name, &passwd, &group))
}

/// Whether the machine has this user.
pub(crate) fn exists(name: &str) -> std::io::Result<bool> {
    find(name).map(|found| found.is_some())
}

/// The name of the user with this id; `None` where the machine's file has none.
pub(crate) fn name_of(uid: u32) -> Option<String> {
    name_in(uid, &std::fs::read_to_string("/etc/passwd").ok()?)
}

fn name_in(uid: u32, passwd: &str) -> Option<String> {
    let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = users.find(|fields| fields.get(2).and_then(|text| text.parse().ok()) == Some(uid))?;
    Some(found[0].to_owned())
}

fn parse(name: &str, passwd: &str, group: &str) -> Option<User> {
    let fields: Vec<&str> = passwd.lines().map(|line| line.split(':').collect()).find(|f: &Vec<_>| f[0] == name)?;
    let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
    let member = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let belongs = fields.get(3)?.split(',').any(|member| member == name);
        belongs.then(|| fields[2].parse().ok())?
    };
    let groups = group.lines().filter_map(member).filter(|other: &u32| *other != gid).collect();
    let home = fields.get(5).filter(|home| home.starts_with('/')).map_or("/", |home| home).to_owned();
    Some(User { run_as: RunAs { uid, gid, groups }, home })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_with_all_its_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\njobs:x:990:980::/nonexistent:/usr/sbin/nologin\n";
        let group = "root:x:0:\njobs:x:980:\ngpu:x:44:other,jobs\ntape:x:26:jobsx\n";
        let found = parse("jobs", passwd, group).unwrap();
        assert_eq!(found.run_as, RunAs { uid: 990, gid: 980, groups: vec![44] });
        assert_eq!(found.home, "/nonexistent");
        assert_eq!(parse("root", "root:x:0:0:root", group).unwrap().home, "/", "a torn line has no home to give");
        assert_eq!(parse("job", passwd, group), None);
    }

    #[test]
    fn a_user_is_named_by_its_id_and_an_unknown_one_is_not() {
        let passwd = "torn\nroot:x:0:0:root:/root:/bin/sh\njobs:x:990:980::/nonexistent:/usr/sbin/nologin\n";
        assert_eq!(name_in(0, passwd).as_deref(), Some("root"));
        assert_eq!(name_in(990, passwd).as_deref(), Some("jobs"));
        assert_eq!(name_in(980, passwd), None, "a group's id is no user's");
    }
}
