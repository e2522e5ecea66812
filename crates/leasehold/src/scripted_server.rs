//! For tests: a server on a Unix socket that answers each connection with the next text of a script, and then closes it.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::target::Target;

/// A client of a scripted server, and the requests that it got once the script is done.
pub(crate) fn serve(directory: &Path, script: Vec<String>) -> (Client, JoinHandle<Vec<String>>) {
    let socket = directory.join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in script {
            let (mut stream, _) = listener.accept().await.unwrap();
            requests.push(read_request(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        requests
    });
    (Client::new(Target::Socket(socket)).unwrap(), served)
}

/// The head and body of one request.
async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text.into_owned();
            }
        }
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).await.unwrap();
        assert!(count > 0, "the request ended early: {request:?}");
        request.extend_from_slice(&piece[..count]);
    }
}

/// An answer that ends where the connection does.
pub(crate) fn answer(status: &str, content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n{body}")
}
