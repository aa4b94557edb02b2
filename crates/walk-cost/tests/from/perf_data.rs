//! A `perf.data` written by hand, after tools/perf/Documentation/perf.data-file-format.txt and
//! perf_event_open(2): the twin of the reader under test.

/// Which optional fields the samples have.
#[derive(Clone, Copy)]
pub struct Layout {
    /// PERF_SAMPLE_IDENTIFIER, else PERF_SAMPLE_ID.
    pub identifier: bool,
    /// PERF_SAMPLE_CPU.
    pub cpu: bool,
    /// The feature that names the events.
    pub names: bool,
}

/// A file in the making.
pub struct File {
    layout: Layout,
    names: Vec<&'static str>,
    records: Vec<u8>,
}

const ATTR: usize = 128;

impl File {
    pub fn new(layout: Layout, names: &[&'static str]) -> Self {
        Self { layout, names: names.to_vec(), records: Vec::new() }
    }

    pub fn record(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = u16::try_from(8 + body.len()).unwrap();
        self.records.extend(kind.to_ne_bytes());
        self.records.extend(misc.to_ne_bytes());
        self.records.extend(size.to_ne_bytes());
        self.records.extend(body);
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
        let mut body = Vec::new();
        if self.layout.identifier {
            body.extend(Self::id(event).to_ne_bytes());
        }
        body.extend(ip.to_ne_bytes());
        body.extend(pair(pid, pid));
        body.extend(time.to_ne_bytes());
        body.extend(address.to_ne_bytes());
        if !self.layout.identifier {
            body.extend(Self::id(event).to_ne_bytes());
        }
        if self.layout.cpu {
            body.extend(pair(3, 0));
        }
        body.extend(period.to_ne_bytes());
        self.record(9, 2, &body);
    }

    pub fn map(&mut self, pid: u32, time: u64, start: u64, length: u64, name: &str) {
        let mut body = pair(pid, pid);
        body.extend([start, length, 0].iter().flat_map(|word| word.to_ne_bytes()));
        body.extend([0; 32]);
        let padded = name.len() / 8 * 8 + 8;
        body.extend(name.bytes().chain(std::iter::repeat(0)).take(padded));
        self.trailer(&mut body, pid, time);
        self.record(10, 2, &body);
    }

    pub fn fork(&mut self, child: u32, parent: u32, time: u64) {
        let mut body = pair(child, parent);
        body.extend(pair(child, parent));
        body.extend(time.to_ne_bytes());
        self.trailer(&mut body, child, time);
        self.record(7, 0, &body);
    }

    pub fn lost(&mut self, count: u64) {
        let mut body = 1u64.to_ne_bytes().to_vec();
        body.extend(count.to_ne_bytes());
        self.record(2, 0, &body);
    }

    pub fn round(&mut self) {
        self.record(68, 0, &[]);
    }

    /// `sample_id_all`: TID, TIME, ID, CPU, IDENTIFIER.
    fn trailer(&self, body: &mut Vec<u8>, pid: u32, time: u64) {
        body.extend(pair(pid, pid));
        body.extend(time.to_ne_bytes());
        if !self.layout.identifier {
            body.extend(Self::id(0).to_ne_bytes());
        }
        if self.layout.cpu {
            body.extend(pair(3, 0));
        }
        if self.layout.identifier {
            body.extend(Self::id(0).to_ne_bytes());
        }
    }

    fn id(event: usize) -> u64 {
        1000 + event as u64
    }

    fn attribute(&self) -> Vec<u8> {
        let id = if self.layout.identifier { 1u64 << 16 } else { 1 << 6 };
        let cpu = if self.layout.cpu { 1u64 << 7 } else { 0 };
        let fields = 1u64 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 8 | id | cpu;
        let mut bytes = vec![0; ATTR];
        bytes[4..8].copy_from_slice(&(ATTR as u32).to_ne_bytes());
        bytes[24..32].copy_from_slice(&fields.to_ne_bytes());
        bytes[40..48].copy_from_slice(&(1u64 << 18 | 1 << 10).to_ne_bytes());
        bytes
    }

    /// The file: header, ids, descriptions, records, features.
    pub fn bytes(&self) -> Vec<u8> {
        let count = self.names.len();
        let (ids_at, attr_size) = (104u64, ATTR as u64 + 16);
        let attrs_at = ids_at + 8 * count as u64;
        let data_at = attrs_at + attr_size * count as u64;
        let mut features = vec![(9, string("GenuineIntel,6,85,7"))];
        if self.layout.names {
            let mut names = pair(count as u32, ATTR as u32);
            for (event, name) in self.names.iter().enumerate() {
                names.extend(self.attribute());
                names.extend(1u32.to_ne_bytes());
                names.extend(string(name));
                names.extend(Self::id(event).to_ne_bytes());
            }
            features.push((12, names));
        }
        let bits = features.iter().fold(0u64, |bits, (bit, _)| bits | 1 << bit);
        let mut out = b"PERFILE2".to_vec();
        let header = [
            104,
            attr_size,
            attrs_at,
            attr_size * count as u64,
            data_at,
            self.records.len() as u64,
            0,
            0,
            bits,
            0,
            0,
            0,
        ];
        out.extend(header.iter().flat_map(|word: &u64| word.to_ne_bytes()));
        out.extend((0..count).flat_map(|event| Self::id(event).to_ne_bytes()));
        for event in 0..count as u64 {
            out.extend(self.attribute());
            out.extend((ids_at + 8 * event).to_ne_bytes());
            out.extend(8u64.to_ne_bytes());
        }
        out.extend(&self.records);
        let mut at = out.len() as u64 + 16 * features.len() as u64;
        for (_, section) in &features {
            out.extend(at.to_ne_bytes());
            out.extend((section.len() as u64).to_ne_bytes());
            at += section.len() as u64;
        }
        out.extend(features.into_iter().flat_map(|(_, section)| section));
        out
    }
}

fn pair(a: u32, b: u32) -> Vec<u8> {
    [a.to_ne_bytes(), b.to_ne_bytes()].concat()
}

/// `perf_header_string`: the length, then the text padded with zeros.
fn string(text: &str) -> Vec<u8> {
    let length = text.len() / 64 * 64 + 64;
    let mut bytes = (length as u32).to_ne_bytes().to_vec();
    bytes.extend(text.bytes().chain(std::iter::repeat(0)).take(length));
    bytes
}
