//! Reads the metric of a running service: by a command, from a page of Prometheus metrics, per second or CPU second.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use experiment::running::metric::{Kind, Metric, Per, Series, Source, printed};
use experiment::running::{Meter, MeterError};
use units::Pid;

use crate::signals::{Interruption, how_it_ended};

/// Further readings of a counter that printed nothing, and the pause before each.
const EMPTY_READS: u32 = 5;
const EMPTY_PAUSE: Duration = Duration::from_millis(10);
/// Longest time of a command.
const COMMAND_WITHIN: Duration = Duration::from_secs(300);
/// Most bytes of a command's output, or of a page, that are read.
const MOST_BYTES: u64 = 16 << 20;
/// Longest time of a connection, and of each read.
const URL_WITHIN: Duration = Duration::from_secs(5);
/// The variable that tells a command the length of a block in seconds.
const SECONDS: &str = "SUPERPAGE_BLOCK_SECONDS";

/// Reads a metric.
#[derive(Debug)]
pub struct Reader {
    metric: Metric,
    place: Option<Place>,
    processes: Vec<Pid>,
    block_seconds: f64,
    interruption: Interruption,
    began: Option<Reading>,
}

/// A counter, or a gauge, at a moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    value: f64,
    is_counter: bool,
    at: Instant,
    cpu: Duration,
}

/// A page of metrics on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    host: String,
    port: u16,
    path: String,
    series: Series,
}

impl Place {
    /// Parses `http://127.0.0.1:PORT/PATH` and the name of a series.
    ///
    /// # Errors
    /// One line with what is expected.
    pub fn parse(url: &str, series: &str) -> Result<Self, String> {
        let wrong = || format!("invalid URL `{url}`: expected e.g. http://127.0.0.1:9100/metrics");
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong())?)
            }
            _ => (authority, 80),
        };
        let is_plain = |text: &str| text.chars().all(|one| one.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !is_plain(rest) {
            return Err(wrong());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        Ok(Self { host, port, path: path.to_string(), series: Series::parse(series)? })
    }

    /// Addresses of the host, all on this machine.
    fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let found: Vec<SocketAddr> =
            found.map_err(|error| format!("{}: {error}", self.host))?.collect();
        match found.iter().all(|address| address.ip().is_loopback()) {
            true => Ok(found),
            false => Err(format!("{} is not this machine; give a loopback address", self.host)),
        }
    }

    fn read(&self) -> Result<(Kind, f64), String> {
        let mut last = format!("{} has no address", self.host);
        for address in self.addresses()? {
            match page(address, &self.host, &self.path) {
                Ok(text) => return self.series.find(&text),
                Err(why) => last = format!("http://{address}{}: {why}", self.path),
            }
        }
        Err(last)
    }
}

impl Reader {
    /// Creates a reader, and checks what can be checked without reading.
    ///
    /// # Errors
    /// One line: a part of the metric is invalid.
    pub fn new(
        metric: &Metric,
        processes: &[Pid],
        block_seconds: f64,
        interruption: Interruption,
    ) -> Result<Self, String> {
        let place = match &metric.source {
            Source::Command { .. } => None,
            Source::Url { url, series } => {
                let place = Place::parse(url, series)?;
                place.addresses()?;
                Some(place)
            }
        };
        let (metric, processes) = (metric.clone(), processes.to_vec());
        Ok(Self { metric, place, processes, block_seconds, interruption, began: None })
    }

    /// Reads the source once, so that a metric that cannot be read is known before any memory is switched. Returns
    /// whether it is a counter; `None` if it is read at the end of a block only.
    ///
    /// # Errors
    /// One line: the metric cannot be read.
    pub fn try_out(&mut self) -> Result<Option<bool>, String> {
        if self.place.is_none() && self.metric.per.is_none() {
            return Ok(None);
        }
        Ok(Some(self.read()?.is_counter))
    }

    /// Sets what a counter's increase is divided by.
    pub fn set_per(&mut self, per: Option<Per>) {
        self.metric.per = per;
    }

    fn read(&self) -> Result<Reading, String> {
        let (value, is_counter) = match (&self.metric.source, &self.place) {
            (_, Some(place)) => {
                let (kind, value) = place.read()?;
                (value, kind == Kind::Counter)
            }
            (Source::Command { command, regex }, None) => {
                let is_counter = self.metric.per.is_some();
                let mut text = self.run(command)?;
                // A service that writes its counter to a file may have emptied it just now.
                for _ in 0..if is_counter { EMPTY_READS } else { 0 } {
                    if !text.trim().is_empty() {
                        break;
                    }
                    std::thread::sleep(EMPTY_PAUSE);
                    text = self.run(command)?;
                }
                if text.trim().is_empty() {
                    return Err(format!("`{command}` printed nothing"));
                }
                (printed(&text, regex.as_deref())?, is_counter)
            }
            (Source::Url { url, .. }, None) => return Err(format!("{url} was not parsed")),
        };
        let at = Instant::now();
        let mut cpu = Duration::ZERO;
        if self.metric.per == Some(Per::CpuSecond) {
            for pid in &self.processes {
                let own = sys::param::process_cpu_time(*pid);
                cpu += own.map_err(|error| format!("CPU time of pid {pid}: {error}"))?;
            }
        }
        Ok(Reading { value, is_counter, at, cpu })
    }

    /// Runs a command, and returns what it prints.
    fn run(&self, command: &str) -> Result<String, String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).env(SECONDS, self.block_seconds.to_string());
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // ^C ends the comparison, which then ends the command.
        shell.process_group(0);
        let child = shell.spawn().map_err(|error| format!("`{command}`: {error}"))?;
        let mut child = Running(child);
        let printed =
            child.output(&self.interruption).map_err(|why| format!("`{command}`: {why}"))?;
        let status = child.0.wait().map_err(|error| format!("`{command}`: {error}"))?;
        match status.success() {
            true => Ok(printed),
            false => Err(format!("`{command}` failed: {}", how_it_ended(status))),
        }
    }
}

impl Meter for Reader {
    fn begin(&mut self) -> Result<(), MeterError> {
        self.began = match self.metric.per {
            Some(_) => Some(self.read().map_err(MeterError)?),
            None => None,
        };
        Ok(())
    }

    fn end(&mut self) -> Result<f64, MeterError> {
        let now = self.read().map_err(MeterError)?;
        let figure = match (self.metric.per, self.began) {
            (None, _) => now.value,
            (Some(_), None) => return Err(MeterError("the block has no beginning".to_string())),
            (Some(per), Some(began)) => rate(per, &began, &now).map_err(MeterError)?,
        };
        match figure > 0.0 {
            true => Ok(figure),
            false => Err(MeterError("its figure is 0".to_string())),
        }
    }
}

/// Divides a counter's increase.
fn rate(per: Per, began: &Reading, now: &Reading) -> Result<f64, String> {
    let more = now.value - began.value;
    if more < 0.0 {
        return Err(format!(
            "the counter fell from {} to {}: the service reset it, or it is no counter (--metric-command compares a value)",
            began.value, now.value
        ));
    }
    if more == 0.0 {
        return Err(format!("the counter stayed at {}: the service did no work", now.value));
    }
    let time = match per {
        Per::Second => now.at - began.at,
        Per::CpuSecond => now.cpu.saturating_sub(began.cpu),
    };
    match time.is_zero() {
        true => Err("the processes used no CPU time".to_string()),
        false => Ok(more / time.as_secs_f64()),
    }
}

/// A command in a process group of its own, which is killed with this value.
struct Running(Child);

impl Running {
    /// Reads the output until the command closes it.
    fn output(&mut self, interruption: &Interruption) -> Result<String, String> {
        const STEP: Duration = Duration::from_millis(50);
        let stdout = self.0.stdout.take().ok_or("it has no output")?;
        let (sender, receiver) = channel();
        let read = move || {
            let mut bytes = Vec::new();
            let done = stdout.take(MOST_BYTES).read_to_end(&mut bytes);
            let _ = sender.send(done.map(|_| bytes));
        };
        std::thread::Builder::new().spawn(read).map_err(|error| error.to_string())?;
        let began = Instant::now();
        loop {
            match receiver.recv_timeout(STEP) {
                Ok(Ok(bytes)) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                Ok(Err(error)) => return Err(error.to_string()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("its output was lost".to_string());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if interruption.load(Ordering::SeqCst) != 0 {
                return Err("interrupted".to_string());
            }
            if began.elapsed() > COMMAND_WITHIN {
                return Err(format!("it took over {} s", COMMAND_WITHIN.as_secs()));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = sys::signal::send_to_group(Pid(self.0.id() as i32), libc::SIGKILL);
            let _ = self.0.wait();
        }
    }
}

/// Reads a page by HTTP/1.0, which has no chunks and no connections that stay open.
fn page(address: SocketAddr, host: &str, path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address, URL_WITHIN).map_err(failed)?;
    stream.set_read_timeout(Some(URL_WITHIN)).map_err(failed)?;
    stream.set_write_timeout(Some(URL_WITHIN)).map_err(failed)?;
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    let (began, mut part) = (Instant::now(), [0; 16 << 10]);
    loop {
        match stream.read(&mut part).map_err(failed)? {
            0 => break,
            count => answer.extend_from_slice(&part[..count]),
        }
        if answer.len() as u64 > MOST_BYTES || began.elapsed() > URL_WITHIN {
            return Err("the page is too large or too slow".to_string());
        }
    }
    body(&answer)
}

/// Returns the page of an answer.
fn body(answer: &[u8]) -> Result<String, String> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let end = match response.parse(answer).map_err(|error| format!("no HTTP answer: {error}"))? {
        httparse::Status::Complete(end) => end,
        httparse::Status::Partial => return Err("the answer is cut off".to_string()),
    };
    match response.code {
        Some(200) => {}
        code => return Err(format!("the answer is {}", code.unwrap_or_default())),
    }
    let named = |name: &str| {
        let header = response.headers.iter().find(|one| one.name.eq_ignore_ascii_case(name));
        header.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    if named("transfer-encoding").is_some() {
        return Err("the page is in chunks, which HTTP/1.0 does not have".to_string());
    }
    let rest = &answer[end..];
    match named("content-length").and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) if length > rest.len() => Err("the page is cut off".to_string()),
        _ => Ok(String::from_utf8_lossy(rest).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use experiment::stats::Better;

    use super::*;

    fn metric(command: &str, per: Option<Per>) -> Metric {
        let source = Source::Command { command: command.to_string(), regex: None };
        Metric { name: "x".to_string(), better: Better::Higher, per, source }
    }

    fn reader(metric: &Metric) -> Reader {
        Reader::new(metric, &[sys::param::own_pid()], 0.5, Interruption::default()).unwrap()
    }

    #[test]
    fn a_command_gives_a_figure_and_knows_the_length_of_a_block() {
        let mut reader = reader(&metric("echo $SUPERPAGE_BLOCK_SECONDS", None));
        assert_eq!(reader.try_out(), Ok(None));
        reader.begin().unwrap();
        assert_eq!(reader.end().unwrap(), 0.5);
    }

    #[test]
    fn a_counter_gives_its_rate() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |text: &str| std::fs::write(file.path(), text).unwrap();
        let command = format!("cat {}", file.path().display());
        for per in [Per::Second, Per::CpuSecond] {
            let mut reader = reader(&metric(&command, Some(per)));
            set("0");
            assert_eq!(reader.try_out(), Ok(Some(true)));
            reader.begin().unwrap();
            let began = Instant::now();
            set("1000");
            // Some CPU time.
            while began.elapsed() < Duration::from_millis(20) {
                std::hint::spin_loop();
            }
            let most = 1000.0 / 0.02;
            let rate = reader.end().unwrap();
            let longest = match per {
                Per::Second => rate <= most,
                // The clock of CPU time is the process's, which other tests use too.
                Per::CpuSecond => true,
            };
            assert!(rate > 0.0 && longest, "{rate}");
            reader.begin().unwrap();
            assert!(reader.end().unwrap_err().0.contains("stayed at 1000"));
            set("1");
            assert!(reader.end().unwrap_err().0.contains("fell from 1000 to 1"));
        }
    }

    #[test]
    fn a_counter_that_is_being_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        // Prints nothing at first.
        let command = format!("[ -e {0} ] && echo 7; touch {0}", seen.display());
        assert_eq!(reader(&metric(&command, Some(Per::Second))).read().unwrap().value, 7.0);
        for per in [None, Some(Per::Second)] {
            let why = reader(&metric("true", per)).read().err().unwrap();
            assert!(why.contains("printed nothing"), "{why}");
        }
    }

    #[test]
    fn commands_that_fail_are_told() {
        for (command, part) in
            [("exit 3", "exit code 3"), ("echo x", "\"x\""), ("kill -9 $$", "SIGKILL")]
        {
            let why = reader(&metric(command, None)).end().unwrap_err().0;
            assert!(why.contains(part), "{why}");
        }
        assert!(reader(&metric("echo 0", None)).end().is_err());
        let interruption = Interruption::default();
        interruption.store(2, Ordering::SeqCst);
        let one = metric("sleep 1000", None);
        let mut reader = Reader::new(&one, &[], 1.0, interruption).unwrap();
        assert!(reader.end().unwrap_err().0.contains("interrupted"));
    }

    #[test]
    fn only_pages_of_this_machine_are_read() {
        for wrong in [
            "",
            "https://127.0.0.1/",
            "http://",
            "http://a@127.0.0.1/",
            "http://127.0.0.1:x/",
            "http://127.0.0.1/a b",
        ] {
            assert!(Place::parse(wrong, "x").is_err(), "{wrong}");
        }
        for there in ["http://192.0.2.1/metrics", "http://[2001:db8::1]:80/"] {
            let why = Place::parse(there, "x").unwrap().addresses().unwrap_err();
            assert!(why.contains("not this machine"), "{why}");
        }
        let place = Place::parse("http://[::1]:9100", "x").unwrap();
        assert_eq!((place.host.as_str(), place.port, place.path.as_str()), ("::1", 9100, "/"));
    }

    /// Answers one request.
    fn serve(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap();
            assert!(request[..count].starts_with(b"GET /metrics HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        });
        port
    }

    #[test]
    fn a_page_of_metrics_is_read() {
        let read = |answer| {
            let port = serve(answer);
            Place::parse(&format!("http://127.0.0.1:{port}/metrics"), "hits").unwrap().read()
        };
        let counter = "HTTP/1.1 200 OK\r\nContent-Length: 28\r\n\r\n# TYPE hits counter\nhits 12\n";
        assert_eq!(read(counter), Ok((Kind::Counter, 12.0)));
        assert_eq!(read("HTTP/1.0 200 OK\r\n\r\nhits 7\n"), Ok((Kind::Gauge, 7.0)));
        for (answer, part) in [
            ("HTTP/1.1 404 Not Found\r\n\r\n", "404"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhits 1\n", "cut off"),
            ("HTTP/1.1 200 OK\r\n", "cut off"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nhits 1\n\r\n0\r\n\r\n",
                "chunks",
            ),
            ("hello\r\n\r\n", "no HTTP answer"),
            ("HTTP/1.1 200 OK\r\n\r\nmisses 1\n", "no series hits"),
        ] {
            let why = read(answer).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_answer_is_read_or_refused_in_one_line(
            head in "(HTTP/1.[01] (200|404)[ -~]{0,9}\r\n)?([A-Za-z-]{0,16}:[ -~]{0,9}\r\n){0,3}(\r\n)?",
            rest: Vec<u8>,
        ) {
            if let Err(why) = body(&[head.as_bytes(), &rest].concat()) {
                assert_eq!(why.lines().count(), 1, "{why}");
            }
        }
    }
}
