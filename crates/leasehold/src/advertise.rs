//! What others call this control plane: the names in its certificate, and the address in the line that enrolls a worker.

use std::net::{IpAddr, SocketAddr};

/// The names that the API's certificate is made for.
pub(crate) fn names(api: SocketAddr, advertised: Option<&str>) -> Vec<String> {
    let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let mut add = |name: String| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    if !api.ip().is_unspecified() {
        add(api.ip().to_string());
    }
    // What listens on every address is called by the machine's own name.
    if api.ip().is_unspecified() {
        names_of_this_machine().into_iter().for_each(&mut add);
    }
    if let Some(advertised) = advertised {
        add(split(advertised).0.to_owned());
    }
    names
}

/// The host of `HOST[:PORT]`, and the port; an IPv6 address with a port stands in brackets.
fn split(advertised: &str) -> (&str, Option<u16>) {
    if let Some((host, rest)) = advertised.strip_prefix('[').and_then(|text| text.split_once(']')) {
        return (host, rest.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match advertised.split_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse().ok()),
        _ => (advertised, None),
    }
}

/// Where workers find the ingress, if that is not what it is bound to.
pub(crate) fn ingress_url(ingress: SocketAddr, advertised: Option<&str>) -> Option<String> {
    let (host, port) = match advertised {
        Some(advertised) => {
            let (host, port) = split(advertised);
            (host.to_owned(), port)
        }
        None if ingress.ip().is_unspecified() => (names_of_this_machine().into_iter().next()?, None),
        None => return None,
    };
    let host = match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => format!("[{host}]"),
        _ => host,
    };
    Some(format!("https://{host}:{}", port.unwrap_or(ingress.port())))
}

fn names_of_this_machine() -> Vec<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_host_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if is_host_name { vec![name] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advertised_host_is_in_the_certificate_and_in_the_line() {
        let api: SocketAddr = "0.0.0.0:7440".parse().unwrap();
        let ingress: SocketAddr = "0.0.0.0:7443".parse().unwrap();
        assert!(names(api, Some("control.example")).contains(&"control.example".to_owned()));
        assert_eq!(ingress_url(ingress, Some("control.example")).as_deref(), Some("https://control.example:7443"));
        assert_eq!(ingress_url(ingress, Some("fd00::1")).as_deref(), Some("https://[fd00::1]:7443"));
        // A load balancer listens on a port of its own.
        assert!(names(api, Some("control.example:443")).contains(&"control.example".to_owned()));
        assert_eq!(ingress_url(ingress, Some("control.example:443")).as_deref(), Some("https://control.example:443"));
        assert_eq!(ingress_url(ingress, Some("[fd00::1]:443")).as_deref(), Some("https://[fd00::1]:443"));
        assert!(names(api, Some("[fd00::1]:443")).contains(&"fd00::1".to_owned()));
    }

    #[test]
    fn a_named_address_speaks_for_itself() {
        let address: SocketAddr = "192.0.2.1:7443".parse().unwrap();
        assert!(names(address, None).contains(&"192.0.2.1".to_owned()));
        assert_eq!(ingress_url(address, None), None);
    }
}
