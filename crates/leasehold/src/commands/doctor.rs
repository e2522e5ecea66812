//! `leasehold doctor`: is this control plane well, and what is to be done. Changes nothing.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use leasehold_core::database::History;
use leasehold_core::time::{Clock as _, Millis};

use super::serve::{API, INGRESS};
use crate::client::Client;
use crate::compose::{self, Contents, Holder, StoreArgs};
use crate::data_directory::{DataDirectory, DataError};
use crate::database::DatabaseUrl;
use crate::doctor::{self, Finding, Installed, Report, Status};
use crate::exit::Exit;
use crate::failure;
use crate::output::OutputArgs;
use crate::system::SystemClock;
use crate::target::{DATA_DIRECTORY, Target};

const AFTER_HELP: &str = "\
Examples:
  leasehold doctor      the data in ./leasehold-data, and who runs on it
  leasehold doctor --data /var/lib/leasehold -o json
  leasehold doctor --listen 10.0.0.5:7440 --worker-listen 10.0.0.5:7443
  LEASEHOLD_DATABASE_FILE=/etc/leasehold/database \\
    leasehold doctor --data /var/lib/leasehold

Run it as the control plane's user, beside a control plane that runs or without
one. It changes nothing.

Exit codes:
  0 no problem (there may be warnings) · 1 at least one problem";

/// Looks after a control plane.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Doctor {
    /// The data directory
    #[arg(long, env = "LEASEHOLD_DATA", value_name = "DIR", default_value = DATA_DIRECTORY)]
    data: PathBuf,

    #[command(flatten)]
    store: StoreArgs,

    /// Where the operator API should be reached
    #[arg(long, env = "LEASEHOLD_LISTEN", value_name = "ADDR", default_value_t = API)]
    listen: SocketAddr,

    /// Where workers should come in
    #[arg(long, env = "LEASEHOLD_WORKER_LISTEN", value_name = "ADDR", default_value_t = INGRESS)]
    worker_listen: SocketAddr,

    #[command(flatten)]
    output: OutputArgs,
}

impl Doctor {
    pub(crate) async fn execute(self) -> anyhow::Result<Exit> {
        let report = Report::new(self.look().await?);
        self.output.one(&report, report.status.as_str(), |out| page(&report, out))?;
        Ok(if report.status == Status::Problem { Exit::Error } else { Exit::Done })
    }

    async fn look(&self) -> anyhow::Result<Vec<Finding>> {
        let url = self.store.database.url()?;
        let data = match (DataDirectory::existing(&self.data), &url) {
            (Err(error), Some(url)) if error.is_not_there() => return Ok(self.of_no_replica(url).await),
            (data, _) => data?,
        };
        if let Some(finding) = doctor::odd(&data, url.is_some()) {
            return Ok(vec![finding]);
        }
        let holder = compose::holder(&data.database())?;
        let runs = holder != Holder::Nobody;
        let socket = data.admin_socket();
        let client = socket.exists().then(|| Client::new(Target::Socket(socket))).transpose()?;
        let mut process = doctor::control_plane(holder, client.as_ref()).await;
        process.push(doctor::listener("api_listener", reached(self.listen), "--listen", runs).await);
        let ingress = doctor::listener("worker_listener", reached(self.worker_listen), "--worker-listen", runs).await;
        process.push(ingress);
        // After the control plane was asked whether it can commit: it has stored its clock with that.
        let (database, installed) = match url {
            Some(url) => of_postgres(&url, data.seen()).await,
            None => of_sqlite(&data, holder).await?,
        };
        let mut findings = vec![
            doctor::directory(&data),
            doctor::master_key(&data, &self.store.master_key, &installed),
            doctor::ca_file(&data, &installed),
        ];
        findings.extend(doctor::room(data.path(), compose::network_file_system(data.path())));
        findings.extend(process);
        findings.extend(database);
        Ok(findings)
    }

    /// A database of which no replica was started here yet.
    async fn of_no_replica(&self, url: &DatabaseUrl) -> Vec<Finding> {
        let path = self.data.display();
        let there = format!("{path} is not there: the first start of `leasehold serve --data {path}` makes it");
        let mut findings = vec![Finding::skipped("data_directory", there)];
        findings.extend(of_postgres(url, Ok(None)).await.0);
        findings
    }
}

async fn of_sqlite(data: &DataDirectory, holder: Holder) -> anyhow::Result<(Vec<Finding>, Installed)> {
    let path = data.database();
    let found = match tokio::task::spawn_blocking(move || compose::inspect(&path)).await? {
        Ok(found) => found,
        Err(error) => return Ok((vec![doctor::unread(&error)], Installed::Unknown("there is no database to ask"))),
    };
    let mut findings = doctor::database(&found);
    let installed = match found.contents {
        _ if found.moved.is_some() => {
            findings.push(Finding::skipped("contents", "they live elsewhere, or will"));
            Installed::Unknown("the installation lives elsewhere, or will")
        }
        Some(contents) => {
            let boot = Millis::new(u64::try_from(SystemClock.boot().get()).unwrap_or(0));
            let up = match holder {
                Holder::ControlPlane(Some(pid)) => doctor::uptime(pid, boot),
                _ => None,
            };
            findings.extend(of_contents(&contents, doctor::lease_clock(&contents, up)));
            installation_in(contents)
        }
        None => unread(&mut findings),
    };
    Ok((findings, installed))
}

async fn of_postgres(url: &DatabaseUrl, seen: Result<Option<History>, DataError>) -> (Vec<Finding>, Installed) {
    let found = match compose::inspect_postgres(url).await {
        Ok(found) => found,
        Err(error) => {
            let detail = format!("{}: {}", url.without_password(), failure::text(&error.into()));
            let finding = Finding::problem("database", detail, "the control plane cannot work without it");
            return (vec![finding], Installed::Unknown("the database does not answer"));
        }
    };
    let mut findings = doctor::postgres(&found, seen);
    let installed = match found.contents {
        Some(contents) => {
            findings.extend(of_contents(&contents, doctor::database_clock(&contents)));
            installation_in(contents)
        }
        None => unread(&mut findings),
    };
    (findings, installed)
}

fn of_contents(contents: &Contents, lease_clock: Finding) -> Vec<Finding> {
    let now = SystemClock.utc();
    let mut findings = match &contents.installation {
        Some(installation) => doctor::certificates(&installation.ca_certificate, &contents.certificates, now),
        None => vec![Finding::skipped("ca_certificate", "the first start of the control plane makes it")],
    };
    findings.push(lease_clock);
    findings.push(doctor::wall_clock(contents, now));
    findings.push(doctor::workers(contents));
    findings.push(doctor::runs(contents));
    findings
}

fn installation_in(contents: Contents) -> Installed {
    contents.installation.map_or(Installed::NotYet, |installation| Installed::Yes(Box::new(installation)))
}

fn unread(findings: &mut Vec<Finding>) -> Installed {
    const WHY: &str = "the database cannot be read by this program";
    findings.push(Finding::skipped("contents", WHY));
    Installed::Unknown(WHY)
}

/// Where a listener on every address of this machine is reached from here.
fn reached(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        std::net::IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        std::net::IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn page(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    for Finding { check, status, detail, advice } in &report.checks {
        writeln!(out, "{:<8} {:<20} {detail}", status.as_str(), check.replace('_', " "))?;
        if let Some(advice) = advice {
            writeln!(out, "{:<8} {:<20} → {advice}", "", "")?;
        }
    }
    Ok(())
}
