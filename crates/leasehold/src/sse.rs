//! Server-sent events, read as they come: bytes in, whole events out.
//!
//! Only what the operator API sends is understood: `id`, `event` and `data` lines. Comments keep a connection alive and
//! say nothing. (WHATWG HTML, *Server-sent events*.)

/// The largest event that is read; the API's are far smaller.
const EVENT_LIMIT: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Event {
    /// What to resume after.
    pub id: Option<String>,
    /// Its kind; `message` when none is named.
    pub kind: String,
    /// Its data, lines joined by line feeds.
    pub data: String,
}

/// Bytes are no stream of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// A line is not UTF-8.
    #[error("a line of the event stream is not UTF-8")]
    NotText,
    /// An event has no end.
    #[error("an event of the stream is larger than {EVENT_LIMIT} bytes")]
    TooLarge,
}

/// Reads events from pieces cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    after_return: bool,
    event: Partial,
}

#[derive(Debug, Default)]
struct Partial {
    id: Option<String>,
    kind: String,
    data: Option<String>,
    bytes: usize,
}

impl Reader {
    /// Takes the next bytes; answers the events that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, SseError> {
        let mut events = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.event.line(&line)?);
                }
                _ => {
                    self.after_return = false;
                    self.line.push(byte);
                    if self.line.len() + self.event.bytes > EVENT_LIMIT {
                        return Err(SseError::TooLarge);
                    }
                }
            }
        }
        Ok(events)
    }
}

impl Partial {
    fn line(&mut self, line: &[u8]) -> Result<Option<Event>, SseError> {
        let line = std::str::from_utf8(line).map_err(|_| SseError::NotText)?;
        if line.is_empty() {
            let Self { id, kind, data, .. } = std::mem::take(self);
            let kind = if kind.is_empty() { "message".to_owned() } else { kind };
            // An event without data is not delivered, whatever else it says.
            return Ok(data.map(|data| Event { id, kind, data }));
        }
        self.bytes += line.len();
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.kind),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: Option<&str>, kind: &str, data: &str) -> Event {
        Event { id: id.map(str::to_owned), kind: kind.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn events_are_whole_however_the_bytes_are_cut() {
        let text =
            ": hello\n\nid: 7\nevent: log\ndata: {\"a\":1}\n\ndata: one\r\ndata: two\r\n\r\nevent: end\ndata\n\n";
        let expected =
            [event(Some("7"), "log", "{\"a\":1}"), event(None, "message", "one\ntwo"), event(None, "end", "")];
        for size in 1..text.len() {
            let mut reader = Reader::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                events.extend(reader.push(piece).unwrap());
            }
            assert_eq!(events, expected, "pieces of {size} bytes");
        }
    }

    #[test]
    fn an_unfinished_event_is_not_delivered() {
        let mut reader = Reader::default();
        assert_eq!(reader.push(b"data: half").unwrap(), []);
        assert_eq!(reader.push(b"\n").unwrap(), []);
        assert_eq!(reader.push(b"\n").unwrap(), [event(None, "message", "half")]);
    }

    #[test]
    fn what_is_no_text_and_what_has_no_end_is_refused() {
        assert_eq!(Reader::default().push(b"data: \xff\n"), Err(SseError::NotText));
        let mut reader = Reader::default();
        let line = vec![b'x'; EVENT_LIMIT];
        assert_eq!(reader.push(&line), Ok(Vec::new()));
        assert_eq!(reader.push(b"x"), Err(SseError::TooLarge));
    }
}
