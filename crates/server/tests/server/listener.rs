//! The listeners: whose handshake is accepted, whose expiry is judged when, and that nobody keeps others waiting.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::StatusCode;
use leasehold_core::limits;
use leasehold_core::refusal::RefusalCode;
use leasehold_core::time::{Clock as _, Millis};
use leasehold_server::{BindError, Ports, Server, ServerConfig};
use leasehold_wire::v1::problem::Problem;
use leasehold_wire::{parse, route};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{Answer, Cluster, Identity, PATIENCE, get, handshake, http1_call, new_key};

/// Whether a client with this certificate gets an answer over TLS at all.
async fn is_let_in(cluster: &Cluster, identity: &Identity) -> bool {
    let mut config = cluster.tls(&[&rustls::version::TLS13], Some(identity));
    config.alpn_protocols = vec![b"h2".to_vec()];
    // In TLS 1.3 the client is done before the server has judged its certificate: the refusal comes with the first read.
    let Ok(mut stream) = handshake(config, cluster.bound.ingress).await else { return false };
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut first = [0; 1];
    matches!(tokio::time::timeout(PATIENCE, stream.read(&mut first)).await.expect("no word"), Ok(1))
}

fn issued_by_another_ca(names: Vec<rcgen::SanType>) -> Identity {
    let ca_key = new_key();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::new(params, ca_key);
    let key = new_key();
    let mut params = rcgen::CertificateParams::default();
    params.subject_alt_names = names;
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap();
    Identity { chain: vec![certificate.der().clone()], key }
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_refused_by_the_handshake_whatever_it_says() {
    let cluster = Cluster::start().await;
    let machine = cluster.machine("nas").await;
    assert!(is_let_in(&cluster, &machine.identity).await);
    let uri = cluster.control.keys().trust_domain().worker_uri(&"nas".parse().unwrap());
    let forged = issued_by_another_ca(vec![rcgen::SanType::URI(uri.try_into().unwrap())]);
    assert!(!is_let_in(&cluster, &forged).await);
    drop(machine);
    cluster.stop().await;
}

#[tokio::test]
async fn the_control_planes_own_certificate_is_no_workers() {
    let cluster = Cluster::start().await;
    let own = cluster.control.keys().control_identity(&[], cluster.clock.utc(), &*cluster.entropy).unwrap();
    let key = rcgen::KeyPair::try_from(own.key.as_slice()).unwrap();
    let identity = Identity { chain: own.chain.into_iter().map(Into::into).collect(), key };
    assert!(!is_let_in(&cluster, &identity).await, "it is for servers, not for clients");
    cluster.stop().await;
}

#[tokio::test]
async fn the_expiry_of_a_certificate_is_judged_at_every_request() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    assert!(machine.pull(&[], Millis::ZERO).await.is_ok());
    cluster.clock.advance_utc(limits::CERTIFICATE_TTL.plus(Millis::from_secs(1)));
    let before = cluster.dump();
    let refused = machine.pull(&[], Millis::ZERO).await.unwrap_err();
    assert_eq!(refused.code, RefusalCode::Unauthenticated, "on the connection that was made before");
    let mut fresh = cluster.connect(Some(&machine.identity)).await;
    let answer = fresh.call("POST", &route::pull(machine.session), machine.pull_request(&[], Millis::ZERO)).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "on a new one it is told in words, too");
    assert!(parse::<Problem>(&answer.body).unwrap().detail.contains("expired"));
    assert_eq!(cluster.dump(), before);
    cluster.stop().await;
}

#[tokio::test]
async fn tls_1_2_is_refused_by_both_listeners() {
    let cluster = Cluster::start().await;
    for address in [cluster.bound.ingress, cluster.bound.api] {
        let old = handshake(cluster.tls(&[&rustls::version::TLS12], None), address).await;
        assert!(old.unwrap_err().to_string().contains("ProtocolVersion"));
        assert!(handshake(cluster.tls(&[&rustls::version::TLS13], None), address).await.is_ok());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn clients_that_say_nothing_or_half_a_thing_keep_nobody_waiting() {
    let cluster = Cluster::start().await;
    let mut machine = cluster.agent("nas").await;
    let mut slow = Vec::new();
    for _ in 0..16 {
        slow.push(TcpStream::connect(cluster.bound.ingress).await.unwrap());
        let mut half = TcpStream::connect(cluster.bound.ingress).await.unwrap();
        half.write_all(&[0x16, 3, 1]).await.unwrap();
        slow.push(half);
        slow.push(TcpStream::connect(cluster.bound.api).await.unwrap());
        let mut half = TcpStream::connect(cluster.bound.api).await.unwrap();
        half.write_all(b"GET /healthz HTT").await.unwrap();
        slow.push(half);
    }
    // A body that never ends, on a stream of the very connection that the next call uses.
    let mut connection = machine.connection.clone();
    let endless = format!("{{\"schema\":{}", " ".repeat(100));
    let request = hyper::Request::post(format!("https://localhost{}", route::pull(machine.session)))
        .header("content-length", "1000")
        .body(Bytes::from(endless))
        .unwrap();
    let stuck = tokio::spawn(async move { connection.send(request).await.map(|answer| answer.status) });
    assert!(machine.pull(&[], Millis::ZERO).await.is_ok());
    assert_eq!(cluster.api(None, get("/healthz")).await.status, StatusCode::OK);
    stuck.abort();
    drop(slow);
    cluster.stop().await;
}

#[tokio::test]
async fn strangers_of_one_address_are_counted_and_workers_are_not() {
    let cluster = Cluster::start().await;
    let limit = usize::try_from(ServerConfig::default().strangers_per_address).unwrap();
    let mut machine = cluster.agent("nas").await;
    let strangers: FuturesUnordered<_> = (0..limit + 8)
        .map(|_| async {
            let mut stranger = TcpStream::connect(cluster.bound.ingress).await.unwrap();
            // Nothing is ever sent to who says nothing: a read ends when the server closes.
            let _ = stranger.read(&mut [0; 1]).await;
        })
        .collect();
    // The oldest beyond the limit are closed at once, long before a handshake that does not come is given up.
    let mut closed = strangers.take(8);
    let refused = async { while closed.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(8), refused).await.expect("they are not closed");
    assert!(machine.pull(&[], Millis::ZERO).await.is_ok());
    drop(closed);
    cluster.stop().await;
}

#[tokio::test]
async fn strangers_do_not_keep_a_worker_or_an_operator_of_their_address_out() {
    let cluster = Cluster::start().await;
    let config = ServerConfig::default();
    let machine = cluster.agent("nas").await;
    let mut strangers = Vec::new();
    for _ in 0..config.strangers_per_address + 8 {
        strangers.push(TcpStream::connect(cluster.bound.ingress).await.unwrap());
    }
    let mut restarted = cluster.connect(Some(&machine.identity)).await;
    let pull = machine.pull_request(&[], Millis::ZERO);
    let answer = restarted.call("POST", &route::pull(machine.session), pull).await;
    assert_eq!(answer.status, StatusCode::OK);

    for _ in 0..config.operators_per_address + 8 {
        let mut slow = TcpStream::connect(cluster.bound.api).await.unwrap();
        slow.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
        strangers.push(slow);
    }
    assert_eq!(cluster.api(None, get("/healthz")).await.status, StatusCode::OK);
    drop((strangers, machine));
    cluster.stop().await;
}

#[tokio::test]
async fn the_api_speaks_tls_and_plain_http_on_the_same_port_of_loopback() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.api(None, get("/healthz")).await.status, StatusCode::OK);
    let stream = handshake(cluster.tls(&[&rustls::version::TLS13], None), cluster.bound.api).await.unwrap();
    let answer = Answer::read(http1_call(stream, None, get("/readyz")).await).await;
    assert_eq!((answer.status, answer.text().as_str()), (StatusCode::OK, "ready\n"));
    cluster.stop().await;
}

async fn bind(cluster: &Cluster, config: ServerConfig) -> Result<Server, BindError> {
    let ports = Ports::take(anywhere(), anywhere())?;
    Server::bind(ports, cluster.control.clone(), cluster.clock.clone(), &*cluster.entropy, &config).await
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let api = Ports::take(address, anywhere()).unwrap_err();
    assert!(matches!(api, BindError::InUse { address: at, .. } if at == address));
    assert_eq!(
        api.to_string(),
        format!(
            "the operator API cannot listen on {address}: another program does already; stop it, or choose another port"
        )
    );
    let ingress = Ports::take(anywhere(), address).unwrap_err();
    assert!(ingress.to_string().starts_with(&format!("the worker ingress cannot listen on {address}: ")));
    let foreign = Ports::take("192.0.2.1:0".parse().unwrap(), anywhere()).unwrap_err();
    assert!(matches!(foreign, BindError::NoSuchAddress { .. }), "{foreign}");
}

#[tokio::test]
async fn the_admin_socket_of_a_living_server_is_kept_and_of_a_dead_one_replaced() {
    let cluster = Cluster::start().await;
    let path = cluster.bound.admin_socket.clone().unwrap();
    let config = ServerConfig { admin_socket: Some(path.clone()), ..ServerConfig::default() };
    let refused = bind(&cluster, config.clone()).await.unwrap_err();
    assert!(matches!(&refused, BindError::AdminSocketInUse { path: at } if *at == path));
    assert_eq!(cluster.admin(get("/api/v1/runs")).await.status, StatusCode::OK, "it still answers");

    // What a killed process leaves behind: a file that nobody listens at.
    let dead = cluster.data.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    assert!(dead.exists());
    let config = ServerConfig { admin_socket: Some(dead.clone()), ..ServerConfig::default() };
    let server = bind(&cluster, config).await.unwrap();
    drop(server);
    assert!(!dead.exists(), "the file goes with its server");

    let deep = cluster.data.path().join("x".repeat(120));
    std::fs::create_dir(&deep).unwrap();
    let config = ServerConfig { admin_socket: Some(deep.join("admin.sock")), ..ServerConfig::default() };
    let server = bind(&cluster, config.clone()).await.unwrap();
    let refused = bind(&cluster, config).await.unwrap_err();
    assert!(
        matches!(&refused, BindError::AdminSocketInUse { .. }),
        "found by a path that no socket may have: {refused}"
    );
    drop(server);
    assert!(!deep.join("admin.sock").exists());

    cluster.stop().await;
    assert!(!path.exists(), "an orderly end leaves no socket behind");
}
