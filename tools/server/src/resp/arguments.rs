//! The arguments of one command, as places in the input, and how far its parse has come.

/// A place in the input, or in a text beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The bit of both ends of a place in the text.
const IN_TEXT: usize = 1 << (usize::BITS - 1);

impl Span {
    /// A place in the text.
    pub(super) fn in_text(start: usize, end: usize) -> Self {
        Self {
            start: start | IN_TEXT,
            end: end | IN_TEXT,
        }
    }

    fn is_in_text(self) -> bool {
        self.start & IN_TEXT != 0
    }

    fn bytes(self) -> usize {
        self.end - self.start
    }

    /// The bytes at a place in the text.
    pub(super) fn of_text(self, text: &[u8]) -> Option<&[u8]> {
        text.get(self.start & !IN_TEXT..self.end & !IN_TEXT)
    }
}

/// The arguments of one command.
///
/// Each connection has its own, because it also holds how far an incomplete command is parsed. The
/// arguments are those of a command only when [`parse`](super::parse) has returned
/// [`Complete`](super::Progress::Complete) or [`Large`](super::Progress::Large).
#[derive(Default, Debug)]
pub struct Arguments {
    pub(super) spans: Vec<Span>,
    /// The arguments of an inline command, without quotes and escapes; and those that replace some
    /// of the input.
    pub(super) text: Vec<u8>,
    /// Bytes of all, if some were replaced; else 0.
    replaced_bytes: usize,
    /// Of an incomplete command: where its next bulk string begins.
    pub(super) at: usize,
    /// Of an incomplete command: bulk strings that are not parsed yet.
    pub(super) missing: usize,
    /// Of an incomplete line: bytes that hold no end of it.
    pub(super) searched: usize,
}

impl Arguments {
    /// No arguments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many there are, the command's name included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are none, as after an empty line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index` of the command that was parsed from `input`; empty if there is none.
    #[must_use]
    #[inline]
    pub fn get<'a>(&'a self, index: usize, input: &'a [u8]) -> &'a [u8] {
        debug_assert!(index < self.len(), "no argument {index}");
        self.spans
            .get(index)
            .map_or(&[], |&span| self.bytes(span, input))
    }

    /// All arguments of the command that was parsed from `input`.
    pub fn iter<'a>(
        &'a self,
        input: &'a [u8],
    ) -> impl ExactSizeIterator<Item = &'a [u8]> + DoubleEndedIterator + Clone {
        self.spans.iter().map(move |&span| self.bytes(span, input))
    }

    /// Bytes of the arguments, at most.
    #[must_use]
    pub fn span_bytes(&self) -> usize {
        if self.replaced_bytes > 0 {
            return self.replaced_bytes;
        }
        match (self.spans.first(), self.spans.last()) {
            (Some(first), Some(last)) => last.end.saturating_sub(first.start),
            _ => 0,
        }
    }

    /// Bytes of memory that they take, without the input.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.spans.capacity() * size_of::<Span>() + self.text.capacity()
    }

    /// Goes on to become a copy of others up to their argument `end`, with some of them replaced:
    /// `write` is given each of these and appends what replaces it. What lies in the input is not
    /// copied.
    pub(crate) fn replace(
        &mut self,
        (others, input): (&Self, &[u8]),
        end: usize,
        is_replaced: impl Fn(usize) -> bool,
        mut write: impl FnMut(&[u8], &mut Vec<u8>),
    ) {
        if self.spans.is_empty() {
            self.text.extend_from_slice(&others.text);
            self.replaced_bytes = others.span_bytes();
        }
        let begun = self.spans.len();
        for (place, &span) in others.spans.iter().enumerate().take(end).skip(begun) {
            if !is_replaced(place) {
                self.spans.push(span);
                continue;
            }
            let start = self.text.len();
            write(others.bytes(span, input), &mut self.text);
            let replaced = Span::in_text(start, self.text.len());
            self.replaced_bytes += replaced.bytes().saturating_sub(span.bytes());
            self.spans.push(replaced);
        }
    }

    /// Of an incomplete array: where its next bulk string begins, and how many are not parsed.
    #[must_use]
    pub(crate) fn rest(&self) -> (usize, usize) {
        (self.at, self.missing)
    }

    /// Drops the arguments and the state of an incomplete command: the next parse begins anew.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.text.clear();
        self.replaced_bytes = 0;
        self.finish();
    }

    /// Drops the arguments, and gives back memory beyond that of as many as given, which a long
    /// command has left. Does nothing while an array is incomplete.
    pub fn shrink(&mut self, arguments: usize) {
        if self.at == 0 {
            self.clear();
            self.spans.shrink_to(arguments);
            self.text.shrink_to(arguments);
        }
    }

    #[inline]
    fn bytes<'a>(&'a self, span: Span, input: &'a [u8]) -> &'a [u8] {
        let bytes = if span.is_in_text() {
            span.of_text(&self.text)
        } else {
            input.get(span.start..span.end)
        };
        debug_assert!(bytes.is_some(), "not the input that was parsed");
        bytes.unwrap_or_default()
    }

    /// Whether the next parse goes on where the last one stopped, which lies within the input.
    #[inline]
    pub(super) fn is_resumed(&self, input: &[u8]) -> bool {
        let parsed = self.at + self.searched;
        parsed > 0 && parsed <= input.len()
    }

    /// Ends the parse of a command.
    #[inline]
    pub(super) fn finish(&mut self) {
        self.at = 0;
        self.missing = 0;
        self.searched = 0;
    }
}
