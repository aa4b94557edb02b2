//! A hand-written writer of `perf.data`, by tools/perf/Documentation/perf.data-file-format.txt and perf_event_open(2):
//! the counterpart of the reader under test.

/// The format of the file, and optional fields of the samples.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Whether samples have PERF_SAMPLE_IDENTIFIER instead of PERF_SAMPLE_ID.
    pub identifier: bool,
    /// Whether samples have PERF_SAMPLE_CPU.
    pub cpu: bool,
    /// Whether the file has the feature with the events' names.
    pub names: bool,
    /// Whether the byte order is big-endian.
    pub big_endian: bool,
    /// Whether the file has the form that perf writes to a pipe: descriptions and features are records.
    pub piped: bool,
    /// Type of the records that contain other records compressed; `None`: no compression.
    pub packed: Option<u32>,
}

/// A file under construction.
pub struct File {
    layout: Layout,
    names: Vec<&'static str>,
    records: Vec<u8>,
}

const ATTR: usize = 128;

impl Layout {
    fn half(self, word: u16) -> Vec<u8> {
        if self.big_endian { word.to_be_bytes().into() } else { word.to_le_bytes().into() }
    }

    fn int(self, word: u32) -> Vec<u8> {
        if self.big_endian { word.to_be_bytes().into() } else { word.to_le_bytes().into() }
    }

    fn word(self, word: u64) -> Vec<u8> {
        if self.big_endian { word.to_be_bytes().into() } else { word.to_le_bytes().into() }
    }

    fn pair(self, a: u32, b: u32) -> Vec<u8> {
        [self.int(a), self.int(b)].concat()
    }

    fn words(self, words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| self.word(*word)).collect()
    }

    /// `perf_header_string`: the length, then the text padded with zeros.
    fn string(self, text: &str) -> Vec<u8> {
        let length = text.len() / 64 * 64 + 64;
        let padded = text.bytes().chain(std::iter::repeat(0)).take(length);
        self.int(length as u32).into_iter().chain(padded).collect()
    }

    fn record(self, kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(8 + body.len()).unwrap();
        [self.int(kind), self.half(misc), self.half(size), body.to_vec()].concat()
    }

    /// The records as perf packs them: one stream of zstd, cut without regard to records.
    fn pack(self, kind: u32, records: &[u8]) -> Vec<u8> {
        let packed = zstd::encode_all(records, 1).unwrap();
        let one = |chunk: &[u8]| match kind {
            81 => self.record(81, 0, chunk),
            _ => self.record(
                83,
                0,
                &[self.word(chunk.len() as u64), chunk.to_vec(), vec![0; 7]].concat(),
            ),
        };
        packed.chunks(60).flat_map(one).collect()
    }
}

impl File {
    pub fn new(layout: Layout, names: &[&'static str]) -> Self {
        Self { layout, names: names.to_vec(), records: Vec::new() }
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let record = self.layout.record(kind, misc, body);
        self.records.extend(record);
    }

    pub fn sample(
        &mut self,
        event: usize,
        pid: u32,
        time: u64,
        ip: u64,
        address: u64,
        period: u64,
    ) {
        let of = self.layout;
        let mut body = Vec::new();
        if of.identifier {
            body.extend(of.word(Self::id(event)));
        }
        body.extend(of.word(ip));
        body.extend(of.pair(pid, pid));
        body.extend(of.words(&[time, address]));
        if !of.identifier {
            body.extend(of.word(Self::id(event)));
        }
        if of.cpu {
            body.extend(of.pair(3, 0));
        }
        body.extend(of.word(period));
        self.record(9, 2, &body);
    }

    pub fn map(&mut self, pid: u32, time: u64, start: u64, length: u64, name: &str) {
        let mut body = self.layout.pair(pid, pid);
        body.extend(self.layout.words(&[start, length, 0]));
        body.extend([0; 32]);
        let padded = name.len() / 8 * 8 + 8;
        body.extend(name.bytes().chain(std::iter::repeat(0)).take(padded));
        self.trailer(&mut body, pid, time);
        self.record(10, 2, &body);
    }

    pub fn fork(&mut self, child: u32, parent: u32, time: u64) {
        let mut body = self.layout.pair(child, parent);
        body.extend(self.layout.pair(child, parent));
        body.extend(self.layout.word(time));
        self.trailer(&mut body, child, time);
        self.record(7, 0, &body);
    }

    pub fn lost(&mut self, count: u64) {
        let body = self.layout.words(&[1, count]);
        self.record(2, 0, &body);
    }

    pub fn round(&mut self) {
        self.record(68, 0, &[]);
    }

    /// `sample_id_all`: TID, TIME, ID, CPU, IDENTIFIER.
    fn trailer(&self, body: &mut Vec<u8>, pid: u32, time: u64) {
        let of = self.layout;
        body.extend(of.pair(pid, pid));
        body.extend(of.word(time));
        if !of.identifier {
            body.extend(of.word(Self::id(0)));
        }
        if of.cpu {
            body.extend(of.pair(3, 0));
        }
        if of.identifier {
            body.extend(of.word(Self::id(0)));
        }
    }

    fn id(event: usize) -> u64 {
        1000 + event as u64
    }

    fn attribute(&self) -> Vec<u8> {
        let of = self.layout;
        let id = if of.identifier { 1u64 << 16 } else { 1 << 6 };
        let cpu = if of.cpu { 1u64 << 7 } else { 0 };
        let fields = 1u64 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8 | id | cpu;
        let mut bytes = vec![0; ATTR];
        bytes[4..8].copy_from_slice(&of.int(ATTR as u32));
        bytes[24..32].copy_from_slice(&of.word(fields));
        // Bit fields `freq` and `sample_id_all`, the 11th and the 19th.
        bytes[41] = if of.big_endian { 0x80 >> 2 } else { 1 << 2 };
        bytes[42] = if of.big_endian { 0x80 >> 2 } else { 1 << 2 };
        bytes
    }

    fn features(&self) -> Vec<(u64, Vec<u8>)> {
        let of = self.layout;
        let mut features = vec![(9, of.string("GenuineIntel,6,85,7"))];
        if of.names {
            let mut names = of.pair(self.names.len() as u32, ATTR as u32);
            for (event, name) in self.names.iter().enumerate() {
                names.extend(self.attribute());
                names.extend(of.int(1));
                names.extend(of.string(name));
                names.extend(of.word(Self::id(event)));
            }
            features.push((12, names));
        }
        features
    }

    pub fn bytes(&self) -> Vec<u8> {
        let of = self.layout;
        let records = match of.packed {
            Some(kind) => of.pack(kind, &self.records),
            None => self.records.clone(),
        };
        let magic = if of.big_endian { b"2ELIFREP" } else { b"PERFILE2" };
        let form = if of.piped { self.stream(records) } else { self.file(records) };
        [magic.to_vec(), form].concat()
    }

    /// The content of a piped file after the magic number.
    fn stream(&self, records: Vec<u8>) -> Vec<u8> {
        let of = self.layout;
        let mut out = of.word(16);
        for event in 0..self.names.len() {
            let body = [self.attribute(), of.word(Self::id(event))].concat();
            out.extend(of.record(64, 0, &body));
        }
        for (bit, section) in self.features() {
            out.extend(of.record(80, 0, &[of.word(bit), section].concat()));
        }
        out.extend(records);
        out
    }

    /// The content of a file after the magic number: header, ids, descriptions, records, features.
    fn file(&self, records: Vec<u8>) -> Vec<u8> {
        let of = self.layout;
        let count = self.names.len() as u64;
        let (ids_at, attr_size) = (104, ATTR as u64 + 16);
        let attrs_at = ids_at + 8 * count;
        let (attrs, data_at) = (attr_size * count, attrs_at + attr_size * count);
        let length = records.len() as u64;
        let features = self.features();
        let bits = features.iter().fold(0u64, |bits, (bit, _)| bits | 1 << bit);
        let mut out =
            of.words(&[104, attr_size, attrs_at, attrs, data_at, length, 0, 0, bits, 0, 0, 0]);
        out.extend((0..self.names.len()).flat_map(|event| of.word(Self::id(event))));
        for event in 0..count {
            out.extend(self.attribute());
            out.extend(of.words(&[ids_at + 8 * event, 8]));
        }
        out.extend(records);
        let mut at = 8 + out.len() as u64 + 16 * features.len() as u64;
        for (_, section) in &features {
            out.extend(of.words(&[at, section.len() as u64]));
            at += section.len() as u64;
        }
        out.extend(features.into_iter().flat_map(|(_, section)| section));
        out
    }
}
