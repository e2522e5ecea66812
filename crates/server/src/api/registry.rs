//! The one registry of operator routes: method, path, what it takes to use it, what it does, handler.
//!
//! There is no other way to mount an operator route, and no [`Route`] without a permission and words: a route that declares
//! none does not compile. (Control design, *Security*.)

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use leasehold_core::role::Role;

use super::describe::{Contract, Described, Schemas};
use super::{Api, access};

/// What it takes to use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: everybody who can connect may ask.
    Nothing,
    /// A caller with this role or one that includes it.
    Role(Role),
    /// The token of the webhook that the path names, and no other.
    Webhook,
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
    /// Its name in the API's description: what a generated client calls it.
    pub id: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
}

/// An operator route.
pub(super) struct Route {
    pub(super) info: RouteInfo,
    /// Says what its handler takes and answers.
    pub(super) describe: fn(&mut Contract, &mut Schemas),
    handler: MethodRouter<Api>,
}

/// A route that nobody has said the use of yet: [`Undescribed::is`] makes it one.
#[must_use = "a route is one once `.is(\"operationId\", \"What it does.\")` says what it is"]
pub(super) struct Undescribed {
    method: Method,
    path: &'static str,
    needs: Needs,
    describe: fn(&mut Contract, &mut Schemas),
    handler: MethodRouter<Api>,
}

impl Undescribed {
    /// The route, with its name and its use for the API's description.
    pub(super) fn is(self, id: &'static str, about: &'static str) -> Route {
        let Self { method, path, needs, describe, handler } = self;
        Route { info: RouteInfo { method, path, needs, id, about }, describe, handler }
    }
}

macro_rules! method {
    ($(#[$doc:meta])* $name:ident, $method:ident) => {
        $(#[$doc])*
        pub(super) fn $name<H, T>(path: &'static str, needs: Needs, handler: H) -> Undescribed
        where
            H: Handler<T, Api> + Described<T>,
            T: 'static,
        {
            let describe = <H as Described<T>>::describe;
            Undescribed { method: Method::$method, path, needs, describe, handler: on(MethodFilter::$method, handler) }
        }
    };
}

impl Route {
    method! {
        /// Answers `GET` (and `HEAD`).
        get, GET
    }
    method! {
        /// Answers `DELETE`.
        delete, DELETE
    }
    method! {
        /// Answers `POST`.
        post, POST
    }
    method! {
        /// Answers `PUT`.
        put, PUT
    }
}

/// The routes with their guards.
pub(super) fn mount(routes: Vec<Route>, api: &Api) -> Router<Api> {
    routes.into_iter().fold(Router::new(), |router, Route { info, handler, .. }| {
        let guard = from_fn_with_state((api.clone(), info.needs), access::guard);
        router.route(info.path, handler.route_layer(guard))
    })
}
