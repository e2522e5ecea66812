//! Users of this machine that jobs may run as: looked up in the machine's own files.

use crate::launcher::request::RunAs;

/// The user `name`, with the groups it belongs to; `None` where the machine has no such user.
pub(super) fn find(name: &str) -> std::io::Result<Option<RunAs>> {
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let group = std::fs::read_to_string("/etc/group")?;
    Ok(parse(name, &passwd, &group))
}

fn parse(name: &str, passwd: &str, group: &str) -> Option<RunAs> {
    let fields: Vec<&str> = passwd.lines().map(|line| line.split(':').collect()).find(|f: &Vec<_>| f[0] == name)?;
    let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
    let member = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let belongs = fields.get(3)?.split(',').any(|member| member == name);
        belongs.then(|| fields[2].parse().ok())?
    };
    let groups = group.lines().filter_map(member).filter(|other: &u32| *other != gid).collect();
    Some(RunAs { uid, gid, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_with_all_its_groups() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\njobs:x:990:980::/nonexistent:/usr/sbin/nologin\n";
        let group = "root:x:0:\njobs:x:980:\ngpu:x:44:other,jobs\ntape:x:26:jobsx\n";
        let found = parse("jobs", passwd, group).unwrap();
        assert_eq!(found, RunAs { uid: 990, gid: 980, groups: vec![44] });
        assert_eq!(parse("job", passwd, group), None);
    }
}
