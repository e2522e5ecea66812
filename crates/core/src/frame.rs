//! The framed log, version 1: how the output of an attempt lies in a file and travels to the control plane.
//!
//! A log is a row of frames. A frame is a header of twelve bytes and up to [`MAX_PAYLOAD`] bytes of one stream,
//! exactly as the process wrote them: no text is assumed, and a line that is longer than a frame simply goes on
//! in the next frame of its stream. What had to be dropped is said by one *cut* frame that counts it.
//!
//! ```text
//! byte 0      0xb1: a log frame of version 1
//! byte 1      1 stdout · 2 stderr · 3 cut
//! bytes 2-3   length of the payload, big endian
//! bytes 4-11  wall-clock time in UTC milliseconds, big endian
//! ```
//!
//! Frames never refer to each other, so bytes may be appended, shipped and checked by offset. Pure: no file is
//! opened here. (Worker design, *Launcher* and *Logs and artifacts*.)

use crate::time::UtcMillis;

/// Bytes of a frame's header.
pub const HEADER: usize = 12;

/// Most bytes of output in one frame.
pub const MAX_PAYLOAD: usize = 16 * 1024;

const MAGIC: u8 = 0xb1;
const CUT_PAYLOAD: usize = 17;

/// Which of a process's streams bytes were written to. With `merge_streams` everything is [`Stream::Stdout`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Its name on the wire and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

names! {
    /// Why output is missing at the place of a cut.
    pub enum CutReason as "reason of a cut" {
        /// The log reached its quota; what follows the cut is the end of the output.
        Quota = "quota",
        /// The worker's disk was full.
        DiskFull = "disk_full",
        /// The worker's disk refused the write for another reason.
        WriteFailed = "write_failed",
    }
}

/// What a cut frame says: how much of each stream was dropped at this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Why.
    pub reason: CutReason,
    /// Dropped bytes of standard output.
    pub stdout: u64,
    /// Dropped bytes of standard error.
    pub stderr: u64,
}

impl Cut {
    /// What two cuts of one log say together; the worse reason stands for both.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self {
            reason: self.reason.max(more.reason),
            stdout: self.stdout.saturating_add(more.stdout),
            stderr: self.stderr.saturating_add(more.stderr),
        }
    }
}

/// What a frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Output, exactly as written; never empty.
    Output {
        /// Where it was written to.
        stream: Stream,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Output is missing here.
    Cut(Cut),
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// When the launcher read or dropped it.
    pub at: UtcMillis,
    /// What it carries.
    pub body: Body,
}

/// Bytes are not a framed log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A header does not begin as one of version 1 does.
    #[error("not a log frame of version 1: first byte {0:#04x}")]
    Magic(u8),
    /// A header names no known kind of frame.
    #[error("unknown kind of log frame: {0}")]
    Kind(u8),
    /// A length that this kind of frame cannot have.
    #[error("a log frame of kind {kind} cannot carry {length} bytes")]
    Length {
        /// The kind in the header.
        kind: u8,
        /// The length in the header.
        length: usize,
    },
    /// A cut frame names no known reason.
    #[error("unknown reason for a cut: {0}")]
    Reason(u8),
    /// The log ends inside a frame.
    #[error("the log ends inside a frame")]
    Truncated,
}

struct Header {
    kind: u8,
    length: usize,
    at: UtcMillis,
}

fn header(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    // The first bytes are judged as soon as they are there: garbage is refused before a whole header arrived.
    if let Some(&magic) = bytes.first()
        && magic != MAGIC
    {
        return Err(FrameError::Magic(magic));
    }
    let Some((bytes, _)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [_, kind, high, low, time @ ..] = *bytes;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let allowed = match kind {
        1 | 2 => (1..=MAX_PAYLOAD).contains(&length),
        3 => length == CUT_PAYLOAD,
        _ => return Err(FrameError::Kind(kind)),
    };
    if !allowed {
        return Err(FrameError::Length { kind, length });
    }
    Ok(Some(Header { kind, length, at: UtcMillis::new(i64::from_be_bytes(time)) }))
}

fn put_header(out: &mut Vec<u8>, kind: u8, length: u16, at: UtcMillis) {
    out.extend_from_slice(&[MAGIC, kind]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&at.get().to_be_bytes());
}

/// Appends `bytes` of `stream` to `out`, in as many frames as they need; none for no bytes.
pub fn encode_output(out: &mut Vec<u8>, at: UtcMillis, stream: Stream, bytes: &[u8]) {
    let kind = match stream {
        Stream::Stdout => 1,
        Stream::Stderr => 2,
    };
    for part in bytes.chunks(MAX_PAYLOAD) {
        put_header(out, kind, u16::try_from(part.len()).unwrap_or(u16::MAX), at);
        out.extend_from_slice(part);
    }
}

/// Appends a cut frame to `out`.
pub fn encode_cut(out: &mut Vec<u8>, at: UtcMillis, cut: Cut) {
    put_header(out, 3, 17, at);
    out.push(match cut.reason {
        CutReason::Quota => 1,
        CutReason::WriteFailed => 2,
        CutReason::DiskFull => 3,
    });
    out.extend_from_slice(&cut.stdout.to_be_bytes());
    out.extend_from_slice(&cut.stderr.to_be_bytes());
}

/// How many bytes `output` bytes take as frames.
pub fn encoded_len(output: usize) -> usize {
    output + output.div_ceil(MAX_PAYLOAD) * HEADER
}

/// How many of `bytes`, which begin at a frame, are whole frames. What follows is a frame still being written.
pub fn whole_frames(bytes: &[u8]) -> Result<usize, FrameError> {
    let mut whole = 0;
    while let Some(header) = header(&bytes[whole..])? {
        match whole + HEADER + header.length {
            end if end <= bytes.len() => whole = end,
            _ => break,
        }
    }
    Ok(whole)
}

/// How many of `bytes`, which begin at a frame, are whole frames before the first that makes no sense: as far as a log
/// can be believed.
pub fn sound_frames(bytes: &[u8]) -> usize {
    let mut whole = 0;
    while let Ok(Some(header)) = header(&bytes[whole..]) {
        match whole + HEADER + header.length {
            end if end <= bytes.len() => whole = end,
            _ => break,
        }
    }
    whole
}

/// Reads frames from pieces cut anywhere. Holds at most one unfinished frame beside what was pushed and not yet
/// taken; after an error it gives nothing more.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    taken: usize,
    refused: Option<FrameError>,
}

impl Decoder {
    /// A decoder at the beginning of a log or of any frame.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the log.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more is pushed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let frame = self.read();
        if let Err(error) = frame {
            self.refused = Some(error);
        }
        frame
    }

    /// The log ends here: refuses one that ends inside a frame.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.refused {
            Some(error) => Err(error),
            None if self.taken < self.buffer.len() => Err(FrameError::Truncated),
            None => Ok(()),
        }
    }

    fn read(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.taken..];
        let Some(Header { kind, length, at }) = header(rest)? else { return Ok(None) };
        let Some(payload) = rest.get(HEADER..HEADER + length) else { return Ok(None) };
        let body = match kind {
            1 => Body::Output { stream: Stream::Stdout, bytes: payload.to_vec() },
            2 => Body::Output { stream: Stream::Stderr, bytes: payload.to_vec() },
            kind => {
                let payload: [u8; CUT_PAYLOAD] = payload.try_into().map_err(|_| FrameError::Length { kind, length })?;
                Body::Cut(cut(&payload)?)
            }
        };
        self.taken += HEADER + length;
        Ok(Some(Frame { at, body }))
    }
}

fn cut(payload: &[u8; CUT_PAYLOAD]) -> Result<Cut, FrameError> {
    let reason = match payload[0] {
        1 => CutReason::Quota,
        2 => CutReason::WriteFailed,
        3 => CutReason::DiskFull,
        other => return Err(FrameError::Reason(other)),
    };
    let number = |at: usize| payload[at..at + 8].iter().fold(0, |sum, &byte| (sum << 8) | u64::from(byte));
    Ok(Cut { reason, stdout: number(1), stderr: number(9) })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(millis: i64) -> UtcMillis {
        UtcMillis::new(millis)
    }

    fn decode(pieces: &[&[u8]]) -> Result<Vec<Frame>, FrameError> {
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        for piece in pieces {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                frames.push(frame);
            }
        }
        decoder.finish().map(|()| frames)
    }

    #[test]
    fn the_bytes_of_a_frame_are_fixed() {
        let mut log = Vec::new();
        encode_output(&mut log, at(0x0102), Stream::Stderr, b"\0hi");
        assert_eq!(log, [0xb1, 2, 0, 3, 0, 0, 0, 0, 0, 0, 1, 2, 0, b'h', b'i']);
        log.clear();
        encode_cut(&mut log, at(-1), Cut { reason: CutReason::Quota, stdout: 258, stderr: 3 });
        let mut expected = vec![0xb1, 3, 0, 17];
        expected.extend([0xff; 8]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(log, expected);
    }

    #[test]
    fn a_long_line_is_split_and_rejoined() {
        let line = vec![b'x'; 3 * MAX_PAYLOAD + 1];
        let mut log = Vec::new();
        encode_output(&mut log, at(1), Stream::Stdout, &line);
        assert_eq!(log.len(), encoded_len(line.len()));
        let frames = decode(&[&log]).unwrap();
        assert_eq!(frames.len(), 4);
        assert_eq!(output(&frames, Stream::Stdout), line);
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        let frame = |kind: u8, length: u16| {
            let mut bytes = Vec::new();
            put_header(&mut bytes, kind, length, at(0));
            bytes.resize(HEADER + usize::from(length), 0);
            bytes
        };
        for (bytes, error) in [
            (b"plain text".to_vec(), FrameError::Magic(b'p')),
            (frame(0, 1), FrameError::Kind(0)),
            (frame(4, 1), FrameError::Kind(4)),
            (frame(1, 0), FrameError::Length { kind: 1, length: 0 }),
            (frame(2, 16_385), FrameError::Length { kind: 2, length: 16_385 }),
            (frame(3, 16), FrameError::Length { kind: 3, length: 16 }),
            (frame(3, 17), FrameError::Reason(0)),
        ] {
            assert_eq!(decode(&[&bytes]), Err(error));
        }
    }

    #[test]
    fn a_refused_log_stays_refused() {
        let mut decoder = Decoder::new();
        decoder.push(b"?");
        assert!(decoder.next_frame().is_err());
        let mut log = Vec::new();
        encode_output(&mut log, at(0), Stream::Stdout, b"later");
        decoder.push(&log);
        assert_eq!(decoder.next_frame(), Err(FrameError::Magic(b'?')));
    }

    fn output(frames: &[Frame], wanted: Stream) -> Vec<u8> {
        frames
            .iter()
            .filter_map(|frame| match &frame.body {
                Body::Output { stream, bytes } if *stream == wanted => Some(bytes.as_slice()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .concat()
    }

    proptest! {
        #[test]
        fn every_stream_survives_any_split_exactly(
            writes in vec((any::<bool>(), vec(any::<u8>(), 0..40_000), any::<i64>()), 0..8),
            splits in vec(1usize..5_000, 1..40),
        ) {
            let (mut log, mut stdout, mut stderr) = (Vec::new(), Vec::new(), Vec::new());
            for (error, bytes, time) in &writes {
                let stream = if *error { Stream::Stderr } else { Stream::Stdout };
                encode_output(&mut log, at(*time), stream, bytes);
                if *error { &mut stderr } else { &mut stdout }.extend_from_slice(bytes);
            }
            let (mut pieces, mut rest, mut sizes) = (Vec::new(), log.as_slice(), splits.iter().cycle());
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                pieces.push(piece);
                rest = more;
            }
            let frames = decode(&pieces).unwrap();
            prop_assert_eq!(output(&frames, Stream::Stdout), stdout);
            prop_assert_eq!(output(&frames, Stream::Stderr), stderr);
        }

        #[test]
        fn whole_frames_end_where_the_decoder_stops(bytes in vec(any::<u8>(), 1..40_000), lost in 0usize..40_000) {
            let mut log = Vec::new();
            encode_output(&mut log, at(0), Stream::Stdout, &bytes);
            log.truncate(log.len().saturating_sub(lost));
            let whole = whole_frames(&log).unwrap();
            prop_assert!(decode(&[&log[..whole]]).is_ok());
            prop_assert_eq!(decode(&[&log]).is_ok(), whole == log.len());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
            let _ = decode(&[&bytes]);
            let mut tagged = vec![MAGIC];
            tagged.extend_from_slice(&bytes);
            let _ = decode(&[&tagged]);
            let _ = whole_frames(&tagged);
        }

        #[test]
        fn a_cut_survives(stdout in any::<u64>(), stderr in any::<u64>(), reason in 0..CutReason::ALL.len()) {
            let reason = CutReason::ALL[reason];
            let mut log = Vec::new();
            encode_cut(&mut log, at(5), Cut { reason, stdout, stderr });
            let frames = decode(&[&log]).unwrap();
            prop_assert_eq!(frames, vec![Frame { at: at(5), body: Body::Cut(Cut { reason, stdout, stderr }) }]);
        }
    }
}
