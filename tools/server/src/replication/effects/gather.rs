//! Elements on their way into commands of bounded length.

use std::borrow::Cow;

/// Elements of a command, at most.
const ELEMENTS_MAX: usize = 512;
/// Bytes of a command's elements, at most, unless one alone has more.
const BYTES_MAX: usize = 64 << 10;

/// A word of a command.
pub(super) type Word<'a> = Cow<'a, [u8]>;

/// What a command has beside its key and its elements.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Frame<'a> {
    pub(super) name: &'static str,
    /// Behind the key.
    pub(super) before: Vec<Word<'a>>,
    /// Behind the elements.
    pub(super) after: Vec<Word<'a>>,
}

impl Frame<'_> {
    /// A command that has its elements right behind its key.
    pub(super) fn of(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

/// The commands of a key. Neighbours of one frame become one command.
pub(super) struct Gather<'a, 'o> {
    key: &'a [u8],
    out: &'o mut dyn FnMut(&[&[u8]]),
    frame: Frame<'a>,
    elements: Vec<Word<'a>>,
    count: usize,
    bytes: usize,
}

impl<'a, 'o> Gather<'a, 'o> {
    pub(super) fn new(key: &'a [u8], out: &'o mut dyn FnMut(&[&[u8]])) -> Self {
        Self {
            key,
            out,
            frame: Frame::default(),
            elements: Vec::new(),
            count: 0,
            bytes: 0,
        }
    }

    pub(super) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// Has the elements that follow go into commands of a frame.
    pub(super) fn begin(&mut self, frame: Frame<'a>) {
        if self.frame != frame {
            self.flush();
            self.frame = frame;
        }
    }

    /// Adds the words of an element.
    pub(super) fn push<const N: usize>(&mut self, words: [Word<'a>; N]) {
        let bytes = words.iter().map(|word| word.len()).sum::<usize>();
        let is_full = self.count >= ELEMENTS_MAX || self.bytes.saturating_add(bytes) > BYTES_MAX;
        if self.count > 0 && is_full {
            self.flush();
        }
        self.elements.extend(words);
        self.count += 1;
        self.bytes += bytes;
    }

    /// Adds an element to a command of this name, which has nothing else.
    pub(super) fn add<const N: usize>(&mut self, name: &'static str, words: [&'a [u8]; N]) {
        self.begin(Frame::of(name));
        self.push(words.map(Cow::Borrowed));
    }

    /// Makes a command of the elements that wait.
    pub(super) fn flush(&mut self) {
        if self.count == 0 {
            return;
        }
        let Frame {
            name,
            before,
            after,
        } = &self.frame;
        let rest = before.iter().chain(&self.elements).chain(after);
        let words = [name.as_bytes(), self.key].into_iter();
        let words: Vec<_> = words.chain(rest.map(|word| &word[..])).collect();
        (self.out)(&words);
        self.elements.clear();
        (self.count, self.bytes) = (0, 0);
    }

    /// Makes a command of these words, behind those of the elements that wait.
    pub(super) fn send(&mut self, words: &[&[u8]]) {
        self.flush();
        (self.out)(words);
    }
}

/// A number as a word.
pub(super) fn decimal(number: u64) -> Word<'static> {
    Cow::Owned(number.to_string().into_bytes())
}
