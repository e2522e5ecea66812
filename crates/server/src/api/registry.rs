//! The one registry of operator routes: method, path, what it takes to use it, handler.
//!
//! There is no other way to mount an operator route, and no constructor of a [`Route`] without a permission: a route that
//! declares none does not compile. (Control design, *Security*.)

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use leasehold_core::role::Role;

use super::{Api, access};

/// What it takes to use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: everybody who can connect may ask.
    Nothing,
    /// A caller with this role or one that includes it.
    Role(Role),
}

/// A route as the registry lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteInfo {
    /// The method.
    pub method: Method,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// What it takes to use it.
    pub needs: Needs,
}

/// An operator route.
pub(super) struct Route {
    pub(super) info: RouteInfo,
    handler: MethodRouter<Api>,
}

impl Route {
    /// Answers `GET` (and `HEAD`).
    pub(super) fn get<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Self {
        Self { info: RouteInfo { method: Method::GET, path, needs }, handler: on(MethodFilter::GET, handler) }
    }

    /// Answers `DELETE`.
    pub(super) fn delete<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Self {
        Self { info: RouteInfo { method: Method::DELETE, path, needs }, handler: on(MethodFilter::DELETE, handler) }
    }

    /// Answers `POST`.
    pub(super) fn post<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Self {
        Self { info: RouteInfo { method: Method::POST, path, needs }, handler: on(MethodFilter::POST, handler) }
    }

    /// Answers `PUT`.
    pub(super) fn put<H: Handler<T, Api>, T: 'static>(path: &'static str, needs: Needs, handler: H) -> Self {
        Self { info: RouteInfo { method: Method::PUT, path, needs }, handler: on(MethodFilter::PUT, handler) }
    }
}

/// The routes with their guards.
pub(super) fn mount(routes: Vec<Route>, api: &Api) -> Router<Api> {
    routes.into_iter().fold(Router::new(), |router, Route { info, handler }| {
        let guard = from_fn_with_state((api.clone(), info.needs), access::guard);
        router.route(info.path, handler.route_layer(guard))
    })
}
