//! What a route takes and answers, read off its handler's signature: so the API's description cannot drift from the routes.
//!
//! Every extractor says what it reads of a request ([`Takes`]), every answer what it sends ([`Answers`]). A handler of other
//! parts, of raw headers or of raw bytes, does not compile as a route. Nothing here looks at a request.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::Api;
use super::problem::ApiError;

/// Where the document keeps schemas that have a name.
const DEFINITIONS: &str = "/components/schemas";

/// The schemas of a document: requests as they are read, answers as they are sent.
pub(super) struct Schemas {
    pub(super) requests: SchemaGenerator,
    pub(super) answers: SchemaGenerator,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = DEFINITIONS.into();
                settings.meta_schema = None;
            })
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    /// The schema of a JSON answer of this type.
    pub(super) fn of_answer<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    /// Every schema with a name.
    pub(super) fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.requests.take_definitions(true);
        all.extend(self.answers.take_definitions(true));
        all
    }
}

/// What is known of a route from its handler.
#[derive(Default)]
pub(super) struct Contract {
    /// Parts of the path, names of the query, headers.
    pub(super) parameters: Vec<Value>,
    /// The body, where one is read.
    pub(super) body: Option<Value>,
    /// The answers that are no problems, by status.
    pub(super) answers: Map<String, Value>,
    /// The statuses of problems that its parts can answer.
    pub(super) problems: BTreeSet<u16>,
}

impl Contract {
    /// A part of the path, which may name what is not there.
    pub(super) fn path(&mut self, name: &str, about: &str, schema: &Value) {
        self.parameter("path", name, about, true, schema);
        self.problem(StatusCode::NOT_FOUND);
    }

    /// A part of the path that only who knows it already is told anything about.
    pub(super) fn path_known_to_its_caller(&mut self, name: &str, about: &str, schema: &Value) {
        self.parameter("path", name, about, true, schema);
    }

    /// A header that may be sent.
    pub(super) fn header(&mut self, name: &str, about: &str, schema: &Value) {
        self.parameter("header", name, about, false, schema);
        self.problem(StatusCode::BAD_REQUEST);
    }

    /// A name of the query.
    pub(super) fn query(&mut self, name: &str, about: &str, schema: &Value) {
        self.parameter("query", name, about, false, schema);
        self.problem(StatusCode::BAD_REQUEST);
    }

    fn parameter(&mut self, place: &str, name: &str, about: &str, required: bool, schema: &Value) {
        self.parameters
            .push(json!({ "in": place, "name": name, "description": about, "required": required, "schema": schema }));
    }

    /// A problem that a request can get.
    pub(super) fn problem(&mut self, status: StatusCode) {
        self.problems.insert(status.as_u16());
    }

    /// An answer of this status, in one of these forms.
    pub(super) fn answer(&mut self, status: StatusCode, about: &str, forms: &[(&str, Value)]) {
        let content: Map<String, Value> =
            forms.iter().map(|(kind, schema)| ((*kind).to_owned(), json!({ "schema": schema }))).collect();
        let entry = json!({ "description": about, "content": content });
        self.answers.insert(status.as_u16().to_string(), entry);
    }

    /// A header that every answer carries which is no problem.
    pub(super) fn answers_with(&mut self, header: &str, about: &str) {
        for (_, answer) in &mut self.answers {
            answer["headers"][header] = json!({ "description": about, "schema": { "type": "string" } });
        }
    }
}

/// A part of a request that a handler takes.
#[diagnostic::on_unimplemented(
    message = "the API's description does not know what `{Self}` reads of a request",
    note = "take `Query<Known>`, `JsonBody<Request>`, `IdempotencyKey`, `LastEventId`, … or implement `Takes` beside the extractor"
)]
pub(super) trait Takes {
    /// Adds what it reads.
    fn takes(contract: &mut Contract, schemas: &mut Schemas);
}

/// What a handler answers.
#[diagnostic::on_unimplemented(
    message = "the API's description does not know what `{Self}` sends",
    note = "answer `Answered<T>`, `Result<Made<T>, ApiError>`, … or implement `Answers` beside the answer"
)]
pub(super) trait Answers {
    /// Adds what it sends.
    fn answers(contract: &mut Contract, schemas: &mut Schemas);
}

impl<T: Answers> Answers for Result<T, ApiError> {
    fn answers(contract: &mut Contract, schemas: &mut Schemas) {
        T::answers(contract, schemas);
    }
}

impl Takes for State<Api> {
    fn takes(_: &mut Contract, _: &mut Schemas) {}
}

/// A handler whose every part is known.
pub(super) trait Described<T> {
    /// Adds what it takes and answers.
    fn describe(contract: &mut Contract, schemas: &mut Schemas);
}

impl<F, Fut, Answer> Described<((),)> for F
where
    F: FnOnce() -> Fut,
    Fut: Future<Output = Answer>,
    Answer: Answers,
{
    fn describe(contract: &mut Contract, schemas: &mut Schemas) {
        Answer::answers(contract, schemas);
    }
}

macro_rules! described {
    ($($part:ident),+) => {
        impl<F, Fut, Answer, M, $($part),+> Described<(M, $($part,)+)> for F
        where
            F: FnOnce($($part),+) -> Fut,
            Fut: Future<Output = Answer>,
            Answer: Answers,
            $($part: Takes),+
        {
            fn describe(contract: &mut Contract, schemas: &mut Schemas) {
                $($part::takes(contract, schemas);)+
                Answer::answers(contract, schemas);
            }
        }
    };
}
described!(A);
described!(A, B);
described!(A, B, C);
described!(A, B, C, D);
described!(A, B, C, D, E);
described!(A, B, C, D, E, G);
described!(A, B, C, D, E, G, H);
