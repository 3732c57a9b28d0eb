//! What is run on a host: plain `sh`, given over stdin, so that neither the user's login shell nor the arguments of a process
//! matter. And what comes back.

use std::collections::BTreeMap;

use mutirao_core::quantity::{Bytes, Cpus};
use mutirao_elastic::packing::Amounts;

use super::needs::{self, Needs};
use super::spec::HostSpec;

/// Room that a host must have left beside the program.
const SPARE_BYTES: u64 = 256 << 20;
/// A socket's path may only be short.
const SOCKET_PATH_MAX: usize = 100;

/// A text as one word of `sh`.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Where things are there. Every script begins with it.
fn places(spec: &HostSpec, owner: &str) -> String {
    format!(
        "umask 077\ndir={dir}\ncase $dir in /*) ;; *) dir=$HOME/$dir ;; esac\nnode=$dir/nodes/{name}\nown={owner}\n\
         alive() {{ pid=$(cat \"$node/lock\" 2>/dev/null); [ -n \"$pid\" ] && tr '\\0' ' ' <\"/proc/$pid/cmdline\" 2>/dev/null \
         | grep -q ' role node '; }}\n\
         ours() {{ ! alive || [ \"$(cat \"$node/owner\" 2>/dev/null)\" = \"$own\" ]; }}\n",
        dir = quoted(&spec.dir),
        name = spec.name,
    )
}

/// Holds the connection for as long as there is an agent there, and for a minute before. A connection that was cut without a
/// word may still hold the way to the manager: whoever comes next ends it.
pub fn hold(spec: &HostSpec, owner: &str) -> String {
    let places = places(spec, owner);
    format!(
        r#"{places}
is_sshd() {{ case $(cat "/proc/$1/comm" 2>/dev/null) in sshd*) ;; *) false ;; esac; }}
began() {{ cut -d' ' -f22 "/proc/$1/stat" 2>/dev/null; }}
up=$PPID
is_sshd "$up" || up=$(cut -d' ' -f4 "/proc/$up/stat" 2>/dev/null)
mkdir -p "$node" 2>/dev/null
if ours; then
  me="$up $(began "$up")"
  old=$(cat "$node/line" 2>/dev/null)
  if [ -n "$old" ] && [ "$old" != "$me" ]; then
    set -- $old
    is_sshd "$1" && [ "$(began "$1")" = "$2" ] && kill "$1" 2>/dev/null
  fi
  {{ echo "$me" >"$node/line"; }} 2>/dev/null
fi
echo up
n=0
while [ $n -lt 12 ] || alive; do sleep 5; n=$((n + 1)); done
"#
    )
}

/// What the host is like, and what is on it.
pub fn look(spec: &HostSpec, owner: &str, digest: &str) -> String {
    let places = places(spec, owner);
    format!(
        r#"{places}
say() {{ printf '%s=%s\n' "$1" "$2"; }}
say dir "$dir"
say os "$(uname -s)"
say arch "$(uname -m)"
say glibc "$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2)"
say cpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc)"
say memory_kib "$(awk '/^MemTotal:/ {{ print $2 }}' /proc/meminfo)"
if mkdir -p "$node" "$dir/bin" 2>/dev/null && {{ echo >"$node/.try"; }} 2>/dev/null; then
  rm -f "$node/.try"; say write yes
fi
say disk_kib "$(df -Pk "$dir" 2>/dev/null | awk 'NR == 2 {{ print $4 }}')"
say port "$(cat "$node/port" 2>/dev/null)"
alive && say alive yes
ours && say ours yes
[ -x "$dir/bin/{digest}" ] && say program yes
exit 0
"#
    )
}

/// Takes the program from stdin. All of it or nothing.
pub fn take_program(spec: &HostSpec, owner: &str, digest: &str) -> String {
    let places = places(spec, owner);
    format!(
        r#"{places}
cd "$dir/bin" || exit 1
find . -name '*.part' -mmin +60 -exec rm -f {{}} + 2>/dev/null
t={digest}.$$.part
trap 'rm -f "$t"' EXIT
cat >"$t" || exit 1
[ "$(sha256sum "$t" | cut -d' ' -f1)" = {digest} ] || {{ echo "the program did not arrive whole" >&2; exit 1; }}
chmod 700 "$t" && mv -f "$t" {digest} && ./{digest} --version"#
    )
}

/// Takes a small file from stdin into the node's folder.
pub fn take_file(spec: &HostSpec, owner: &str, name: &str) -> String {
    let places = places(spec, owner);
    format!("{places}mkdir -p \"$node\" && cat >\"$node/{name}.new\" && mv -f \"$node/{name}.new\" \"$node/{name}\"")
}

/// Starts the agent, which outlives the connection, and waits until it listens.
pub fn start(spec: &HostSpec, owner: &str, digest: &str, capacity: &Capacity) -> String {
    let places = places(spec, owner);
    let labels: String =
        spec.labels.iter().map(|(key, value)| format!(" --label {}", quoted(&format!("{key}={value}")))).collect();
    let layer = format!("{:?}", spec.layer).to_lowercase();
    let Capacity { cpus, memory } = capacity;
    format!(
        r#"{places}
alive && exit 0
mkdir -p "$node" && cd "$node" || exit 1
echo "$own" >owner
touch "$dir/bin/{digest}"
find "$dir/bin" -type f -mtime +30 ! -name {digest} -exec rm -f {{}} + 2>/dev/null
rm -f agent.sock
[ -e log ] && mv -f log log.1
apart=$(command -v setsid || command -v nohup)
$apart "$dir/bin/{digest}" role node --name {name} --dir "$node" --cpus {cpus} --memory {memory} --layer {layer}{labels} </dev/null >log 2>&1 &
n=0
while [ ! -S agent.sock ]; do
  n=$((n + 1))
  if [ $n -gt 100 ] || ! kill -0 $! 2>/dev/null; then tail -n 1 log >&2; exit 1; fi
  sleep 0.2
done
"#,
        name = spec.name,
    )
}

/// Keeps the port at which workers find the manager.
pub fn keep_port(spec: &HostSpec, owner: &str, port: u16) -> String {
    format!("{}mkdir -p \"$node\" && echo {port} >\"$node/port\"", places(spec, owner))
}

/// What a host gives to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    pub cpus: Cpus,
    pub memory: Bytes,
}

impl Capacity {
    pub fn amounts(self) -> Amounts {
        Amounts::of(self.cpus, self.memory)
    }
}

/// What a host said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub capacity: Capacity,
    /// The node's folder there.
    pub folder: String,
    /// Where workers found the manager before.
    pub port: Option<u16>,
    /// Whether an agent of ours is there.
    pub alive: bool,
    /// Whether the program is there.
    pub program: bool,
}

/// What comes back from [`look`], or why this host cannot be used, in one line.
pub fn judge(said: &str, spec: &HostSpec, needs: &Needs) -> Result<Facts, String> {
    let said: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once('=')).collect();
    let of = |what: &str| said.get(what).copied().unwrap_or_default().trim();
    if of("dir").is_empty() {
        return Err("it did not say what it is; is there a plain sh?".into());
    }
    if of("os") != "Linux" {
        return Err(format!("it runs {}; the program needs Linux", of("os")));
    }
    if of("arch") != needs.arch {
        return Err(format!("its processor is {}; the program is for {}", of("arch"), needs.arch));
    }
    if let Some((major, minor)) = needs.glibc {
        match needs::version(of("glibc")) {
            None => return Err(format!("it has no glibc; the program needs {major}.{minor}")),
            Some(there) if there < (major, minor) => {
                return Err(format!("its glibc is {}; the program needs {major}.{minor}", of("glibc")));
            }
            Some(_) => {}
        }
    }
    if of("write") != "yes" {
        return Err(format!("no write access to {}; give it another dir", of("dir")));
    }
    if of("ours") != "yes" {
        let dir = &spec.dir;
        return Err(format!(
            "another resource manager has a node in {dir}; give it another dir, or wait until it goes"
        ));
    }
    let number = |what: &str| of(what).parse::<u64>().ok();
    let missing = |what: &str| format!("it did not say how much {what} it has");
    let cpus = number("cpus").filter(|cpus| *cpus > 0).ok_or_else(|| missing("cpu"))?;
    let memory = number("memory_kib").map(|kib| kib.saturating_mul(1024)).ok_or_else(|| missing("memory"))?;
    let there = Cpus { milli: u32::try_from(cpus.saturating_mul(1_000)).unwrap_or(u32::MAX) };
    let cpus = spec.cpus.unwrap_or(there);
    if cpus.milli > there.milli {
        return Err(format!("it is to give {cpus} cpus and has {there}"));
    }
    let (memory, there) = (spec.memory.unwrap_or(Bytes(memory)), Bytes(memory));
    if memory > there {
        return Err(format!("it is to give {memory} of memory and has {there}"));
    }
    let program = of("program") == "yes";
    let room = SPARE_BYTES + if program { 0 } else { needs.bytes };
    let free = number("disk_kib").map(|kib| kib.saturating_mul(1024)).ok_or_else(|| missing("disk"))?;
    let alive = of("alive") == "yes";
    // A node that is there is not left for want of room.
    if free < room && !alive {
        return Err(format!("{} has {} of disk left; it needs {}", of("dir"), Bytes(free), Bytes(room)));
    }
    let folder = format!("{}/nodes/{}", of("dir"), spec.name);
    if folder.len() + "/agent.sock".len() > SOCKET_PATH_MAX {
        return Err(format!("{folder} is too long for a socket; give it a shorter dir"));
    }
    let port = of("port").parse().ok().filter(|port| *port > 0);
    Ok(Facts { capacity: Capacity { cpus, memory }, folder, port, alive, program })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ssh::spec;

    fn judged(changed: &[(&str, &str)], host: serde_json::Value) -> Result<Facts, String> {
        let mut said = BTreeMap::from([
            ("dir", "/home/me/.mutirao"),
            ("os", "Linux"),
            ("arch", "x86_64"),
            ("glibc", "2.36"),
            ("cpus", "4"),
            ("memory_kib", "8388608"),
            ("write", "yes"),
            ("ours", "yes"),
            ("disk_kib", "10485760"),
        ]);
        said.extend(changed.iter().copied());
        let said: String = said.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let mut spec = json!([{ "name": "one", "address": "a" }]);
        spec[0].as_object_mut().unwrap().extend(host.as_object().unwrap().clone());
        let needs = Needs { arch: "x86_64".into(), glibc: Some((2, 34)), bytes: 1 << 30, digest: "d".into() };
        judge(&said, &spec::read(spec).unwrap()[0], &needs)
    }

    #[test]
    fn a_host_that_fits_says_what_it_has() {
        let facts = judged(&[], json!({})).unwrap();
        assert_eq!(facts.capacity, Capacity { cpus: Cpus { milli: 4_000 }, memory: Bytes(8 << 30) });
        assert_eq!((facts.folder.as_str(), facts.alive, facts.port), ("/home/me/.mutirao/nodes/one", false, None));
        let facts = judged(&[("port", "4000"), ("alive", "yes")], json!({ "cpus": "2", "memory": "1GiB" })).unwrap();
        assert_eq!(facts.capacity, Capacity { cpus: Cpus { milli: 2_000 }, memory: Bytes(1 << 30) });
        assert_eq!((facts.alive, facts.port), (true, Some(4000)));
    }

    #[test]
    fn a_host_that_does_not_fit_is_refused_with_the_line_that_says_so() {
        let long = "/x".repeat(50);
        for (changed, host, words) in [
            (("os", "Darwin"), json!({}), "needs Linux"),
            (("arch", "aarch64"), json!({}), "its processor is aarch64; the program is for x86_64"),
            (("glibc", "2.28"), json!({}), "its glibc is 2.28; the program needs 2.34"),
            (("glibc", ""), json!({}), "no glibc"),
            (("write", ""), json!({}), "no write access to /home/me/.mutirao"),
            (("ours", ""), json!({}), "another resource manager"),
            (("disk_kib", "900000"), json!({}), "of disk left; it needs 1280MiB"),
            (("cpus", "4"), json!({ "cpus": "8" }), "to give 8 cpus and has 4"),
            (("cpus", "4"), json!({ "memory": "9GiB" }), "to give 9GiB of memory and has 8GiB"),
            (("dir", long.as_str()), json!({}), "too long for a socket"),
            (("dir", ""), json!({}), "is there a plain sh"),
        ] {
            let why = judged(&[changed], host).unwrap_err();
            assert!(why.contains(words) && !why.contains('\n'), "{changed:?}: {why}");
        }
        assert!(judged(&[("disk_kib", "900000"), ("program", "yes")], json!({})).is_ok(), "it is there already");
    }

    #[test]
    fn nothing_that_is_written_in_a_file_gets_out_of_its_quotes() {
        assert_eq!(quoted("it's; $(x)"), r"'it'\''s; $(x)'");
    }
}
