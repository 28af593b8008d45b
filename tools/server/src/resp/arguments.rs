//! The arguments of one command, as places in the input, and how far its parse has come.

/// A place in the input, or in the text of an inline command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The arguments of one command.
///
/// Each connection has its own, because it also holds how far an incomplete command is parsed. The
/// arguments are those of a command only when [`parse`](super::parse) has returned
/// [`Complete`](super::Progress::Complete) or [`Large`](super::Progress::Large).
#[derive(Default, Debug)]
pub struct Arguments {
    pub(super) spans: Vec<Span>,
    /// The arguments of an inline command, without quotes and escapes.
    pub(super) text: Vec<u8>,
    pub(super) is_inline: bool,
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

    /// Of an incomplete array: where its next bulk string begins, and how many are not parsed.
    #[must_use]
    pub(crate) fn rest(&self) -> (usize, usize) {
        (self.at, self.missing)
    }

    /// Drops the arguments and the state of an incomplete command: the next parse begins anew.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.text.clear();
        self.is_inline = false;
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
        let source = if self.is_inline { &self.text } else { input };
        let bytes = source.get(span.start..span.end);
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
