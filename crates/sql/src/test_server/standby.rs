//! A second server that follows the first, and takes its place.

use std::time::Duration;

use super::{PASSWORD, Result, SUPERUSER, TestServer, TestServerError, run};

impl TestServer {
    /// Whether this machine has what [`TestServer::standby`] needs.
    pub fn can_replicate(&self) -> bool {
        self.programs.has("pg_basebackup")
    }

    /// Starts a standby of this server that streams from it. With `synchronous`, this server acknowledges no commit from now
    /// on that the standby has not on its disk.
    pub fn standby(&self, name: &str, synchronous: bool) -> Result<TestServer> {
        let standby = Self::prepare(self.programs.clone())?;
        let from =
            format!("host=127.0.0.1 port={} user={SUPERUSER} password={PASSWORD} application_name={name}", self.port);
        let mut copy = self.programs.command("pg_basebackup", &standby.directory);
        copy.args(["--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync"]);
        copy.arg("--pgdata").arg(standby.data()).arg("--dbname").arg(&from);
        run(&mut copy)?;
        standby.configure(&[])?;
        standby.start_again()?;
        if synchronous {
            self.query("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))?;
            self.query("postgres", "SELECT pg_reload_conf()")?;
        }
        let wanted = if synchronous { "sync" } else { "async" };
        let state = format!(
            "SELECT count(*) FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming' \
             AND sync_state = '{wanted}'"
        );
        self.wait_until(&state, "1")?;
        Ok(standby)
    }

    /// From now on this server acknowledges commits alone, as it does for whoever no longer knows of a standby.
    pub fn wait_for_no_standby(&self) -> Result<()> {
        self.query("postgres", "ALTER SYSTEM RESET synchronous_standby_names")?;
        self.query("postgres", "SELECT pg_reload_conf()").map(drop)
    }

    /// Makes this standby the primary of a new timeline, and waits until it is.
    pub fn promote(&self) -> Result<()> {
        self.control(&["promote", "--wait", "--timeout=60"], None)
    }

    /// The timeline that the server's last checkpoint was on.
    pub fn timeline(&self) -> Result<u32> {
        let rows = self.query("postgres", "SELECT timeline_id FROM pg_control_checkpoint()")?;
        let text = rows.into_iter().flatten().flatten().next().unwrap_or_default();
        text.parse().map_err(|_| TestServerError(format!("a timeline is a number, not `{text}`")))
    }

    /// Waits until one value that SQL answers is this one.
    #[expect(clippy::disallowed_methods, reason = "the pause between two looks at what the server tells nobody")]
    pub fn wait_until(&self, sql: &str, wanted: &str) -> Result<()> {
        let mut seen = None;
        for _ in 0..1200 {
            seen = self.query("postgres", sql)?.into_iter().flatten().flatten().next();
            if seen.as_deref() == Some(wanted) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(TestServerError(format!("{sql} stays {seen:?}")))
    }
}
