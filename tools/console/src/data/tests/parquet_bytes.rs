//! Parquet files made by hand, so that they can lie.

/// A value of Thrift's compact protocol.
#[derive(Clone, Debug)]
pub(super) enum Thrift {
    Int(i64),
    Bytes(Vec<u8>),
    List(Vec<Thrift>),
    /// A list that claims a length of its own.
    Lying(u64, Vec<Thrift>),
    Struct(Vec<(u8, Thrift)>),
}

use self::Thrift::{Bytes, Int, List, Lying, Struct};

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap());
}

impl Thrift {
    fn kind(&self) -> u8 {
        match self {
            Int(_) => 6,
            Bytes(_) => 8,
            List(_) | Lying(..) => 9,
            Struct(_) => 12,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Int(value) => varint(((value << 1) ^ (value >> 63)).cast_unsigned(), out),
            Bytes(bytes) => {
                varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            List(items) => Lying(items.len() as u64, items.clone()).write(out),
            Lying(length, items) => {
                out.push(0xf0 | items.first().map_or(12, Self::kind));
                varint(*length, out);
                items.iter().for_each(|item| item.write(out));
            }
            Struct(fields) => {
                for (id, value) in fields {
                    out.push(value.kind());
                    varint(u64::from(*id) << 1, out);
                    value.write(out);
                }
                out.push(0);
            }
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

/// The header and bytes of a data page of the first version.
#[derive(Clone, Debug)]
pub(super) struct PageBytes {
    pub(super) kind: i64,
    pub(super) unpacked: i64,
    pub(super) values: i64,
    pub(super) encoding: i64,
    pub(super) content: Vec<u8>,
}

impl PageBytes {
    /// A plain page that is not packed.
    pub(super) fn plain(content: Vec<u8>, values: i64) -> Self {
        Self {
            kind: 0,
            unpacked: content.len().try_into().unwrap(),
            values,
            encoding: 0,
            content,
        }
    }

    /// The page with packed bytes in place of its own.
    pub(super) fn packed(self, content: Vec<u8>) -> Self {
        Self { content, ..self }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let inner = vec![
            (1, Int(self.values)),
            (2, Int(self.encoding)),
            (3, Int(3)),
            (4, Int(3)),
        ];
        let field = if self.kind == 2 { 7 } else { 5 };
        let header = Struct(vec![
            (1, Int(self.kind)),
            (2, Int(self.unpacked)),
            (3, Int(self.content.len().try_into().unwrap())),
            (field, Struct(inner)),
        ]);
        let mut bytes = header.bytes();
        bytes.extend_from_slice(&self.content);
        bytes
    }
}

/// A file of one column and one row group.
#[derive(Clone, Debug)]
pub(super) struct FileBytes {
    pub(super) physical: i64,
    pub(super) codec: i64,
    pub(super) rows: i64,
    pub(super) repetition: i64,
    pub(super) pages: Vec<u8>,
    /// Beyond where the pages are.
    pub(super) shift: i64,
    pub(super) extra_length: i64,
    pub(super) children: i64,
    pub(super) more_schema: Vec<Thrift>,
}

impl FileBytes {
    /// A required column of INT64, whose pages have `rows`.
    pub(super) fn integers(pages: Vec<u8>, rows: i64) -> Self {
        Self {
            physical: 2,
            codec: 0,
            rows,
            repetition: 0,
            pages,
            shift: 0,
            extra_length: 0,
            children: 1,
            more_schema: Vec::new(),
        }
    }

    pub(super) fn schema(&self) -> Thrift {
        let mut schema = vec![
            Struct(vec![(4, Bytes(b"root".to_vec())), (5, Int(self.children))]),
            Struct(vec![
                (1, Int(self.physical)),
                (3, Int(self.repetition)),
                (4, Bytes(b"n".to_vec())),
            ]),
        ];
        schema.extend(self.more_schema.iter().cloned());
        List(schema)
    }

    pub(super) fn group(&self) -> Thrift {
        let length = i64::try_from(self.pages.len()).unwrap() + self.extra_length;
        let chunk = Struct(vec![
            (1, Int(self.physical)),
            (2, List(vec![Int(0)])),
            (3, List(vec![Bytes(b"n".to_vec())])),
            (4, Int(self.codec)),
            (5, Int(self.rows)),
            (6, Int(length)),
            (7, Int(length)),
            (9, Int(4 + self.shift)),
        ]);
        let column = Struct(vec![(2, Int(4)), (3, chunk)]);
        Struct(vec![
            (1, List(vec![column])),
            (2, Int(length)),
            (3, Int(self.rows)),
        ])
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let metadata = Struct(vec![
            (1, Int(1)),
            (2, self.schema()),
            (3, Int(self.rows)),
            (4, List(vec![self.group()])),
        ]);
        whole(&self.pages, &metadata)
    }
}

/// Pages and metadata as a file.
pub(super) fn whole(pages: &[u8], metadata: &Thrift) -> Vec<u8> {
    let metadata = metadata.bytes();
    let mut file = b"PAR1".to_vec();
    file.extend_from_slice(pages);
    file.extend_from_slice(&metadata);
    file.extend_from_slice(&u32::try_from(metadata.len()).unwrap().to_le_bytes());
    file.extend_from_slice(b"PAR1");
    file
}

/// INT64 values as plain bytes.
pub(super) fn plain(values: impl IntoIterator<Item = i64>) -> Vec<u8> {
    values.into_iter().flat_map(i64::to_le_bytes).collect()
}
