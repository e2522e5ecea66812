//! Raw HTTP, as an operator or an attacker would send it: plain requests to the API, and `curl` with a worker's
//! certificate to the worker ingress.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// An answer: its status and its body.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// The stable machine code of a problem.
    pub fn code(&self) -> Option<String> {
        let body: Value = serde_json::from_str(&self.body).ok()?;
        body.get("code").and_then(Value::as_str).map(str::to_owned)
    }
}

/// `GET` over plain HTTP, which the API speaks on loopback.
pub fn get(address: &str, path: &str, token: Option<&str>) -> Result<Answer> {
    let stream = TcpStream::connect(address).with_context(|| format!("nothing listens on {address}"))?;
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    get_on(stream, path, &format!("Host: {address}\r\n{authorization}"))
}

/// `GET` over the admin socket, where the kernel says who asks.
pub fn get_over(socket: &Path, path: &str) -> Result<Answer> {
    let stream = UnixStream::connect(socket).with_context(|| format!("nothing listens on {}", socket.display()))?;
    get_on(stream, path, "Host: localhost\r\n")
}

/// `POST` over plain HTTP with a bearer token and more headers; an empty body says no content type.
pub fn post(address: &str, path: &str, token: &str, headers: &[(&str, &str)], body: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("nothing listens on {address}"))?;
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n")?;
    if !body.is_empty() {
        write!(stream, "Content-Type: application/json\r\n")?;
    }
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    write!(stream, "Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())?;
    answer_of(stream)
}

/// `POST` of a JSON body over the admin socket.
pub fn post_over(socket: &Path, path: &str, body: &Value) -> Result<Answer> {
    let mut stream = UnixStream::connect(socket).with_context(|| format!("nothing listens on {}", socket.display()))?;
    let body = body.to_string();
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    write!(stream, "POST {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n{body}")?;
    answer_of(stream)
}

fn get_on(mut stream: impl Read + Write, path: &str, headers: &str) -> Result<Answer> {
    write!(stream, "GET {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n")?;
    answer_of(stream)
}

fn answer_of(mut stream: impl Read) -> Result<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").with_context(|| format!("no HTTP answer: {text}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no HTTP status")?;
    Ok(Answer { status, body: body.to_owned() })
}

/// Somebody who holds a worker's certificate and key and may send anything.
#[derive(Debug, Clone)]
pub struct Certified {
    ingress: String,
    certificate: PathBuf,
    key: PathBuf,
}

impl Certified {
    /// The holder of these files, talking to the worker ingress at `host:port`.
    pub fn new(ingress: &str, certificate: &Path, key: &Path) -> Self {
        Self { ingress: ingress.to_owned(), certificate: certificate.to_owned(), key: key.to_owned() }
    }

    /// The same holder, talking to another ingress.
    #[must_use]
    pub fn at(&self, ingress: &str) -> Self {
        Self { ingress: ingress.to_owned(), ..self.clone() }
    }

    /// Sends a body and returns the answer.
    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        self.send_with(method, path, &[], body)
    }

    /// Sends a body with more headers and returns the answer.
    pub fn send_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer> {
        let mut command = self.curl(method, path);
        for (name, value) in headers {
            command.arg("--header").arg(format!("{name}: {value}"));
        }
        command.arg("--cert").arg(&self.certificate).arg("--key").arg(&self.key);
        finish(&mut command, body)
    }

    /// Sends a body without any certificate.
    pub fn send_uncertified(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        finish(&mut self.curl(method, path), body)
    }

    fn curl(&self, method: &str, path: &str) -> Command {
        let mut command = Command::new("curl");
        // The control plane is named by a URI, not by a host, which curl cannot check; the tests judge its answers.
        command.args(["--silent", "--show-error", "--insecure", "--tlsv1.3", "--max-time", "30"]);
        command.args(["--request", method, "--header", "Content-Type: application/json", "--data-binary", "@-"]);
        command.args(["--write-out", "\n%{http_code}", &format!("https://{}{path}", self.ingress)]);
        command
    }
}

fn finish(command: &mut Command, body: &[u8]) -> Result<Answer> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start curl: `cargo xtask environment` installs it")?;
    let mut input = child.stdin.take().context("curl has an input")?;
    // A server that refuses a body early closes its end; the answer tells.
    let _ = input.write_all(body);
    drop(input);
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", &text));
    let status: u16 = status.trim().parse().unwrap_or(0);
    if status == 0 {
        bail!("no answer: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(Answer { status, body: body.to_owned() })
}
