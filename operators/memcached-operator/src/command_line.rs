//! The command line of memcached: its arguments, the memory that it needs, and which further arguments a user may set. Nothing
//! here depends on Kubernetes.

use std::fmt;

use crate::api::v1::{CacheConfig, ClientAuth, MemcachedSpec};

/// The folder in which memcached finds its certificate.
pub const TLS_FOLDER: &str = "/etc/memcached/tls";

/// The folder in which memcached finds the passwords of its clients.
pub const PASSWORDS_FOLDER: &str = "/etc/memcached/passwords";

/// Returns the arguments of memcached, in a fixed order.
pub fn args(spec: &MemcachedSpec) -> Vec<String> {
    let config = spec.config();
    let valued = [
        ("-m", config.memory_mb.to_string()),
        ("-c", config.max_connections.to_string()),
        ("-t", config.threads.to_string()),
        ("-I", format!("{}k", config.max_item_size_kib)),
        ("-p", spec.port().to_string()),
    ];
    let mut args: Vec<String> = valued.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
    if !config.evictions {
        args.push("-M".to_owned());
    }
    if config.verbosity > 0 {
        args.push(format!("-{}", "v".repeat(config.verbosity.unsigned_abs() as usize)));
    }
    if let Some(auth) = &spec.auth {
        args.extend(["-Y".to_owned(), format!("{PASSWORDS_FOLDER}/{}", auth.key)]);
    }
    if let Some(tls) = spec.tls.as_ref().filter(|_| spec.has_tls()) {
        args.extend(["-Z".to_owned(), "-o".to_owned(), tls_options(tls.client_auth)]);
    }
    args.extend(config.extra_args);
    args
}

fn tls_options(client_auth: ClientAuth) -> String {
    let options = format!("ssl_chain_cert={TLS_FOLDER}/tls.crt,ssl_key={TLS_FOLDER}/tls.key");
    let verify_mode = match client_auth {
        ClientAuth::None => return options,
        ClientAuth::Request => 1,
        ClientAuth::Require => 2,
    };
    format!("{options},ssl_ca_cert={TLS_FOLDER}/ca.crt,ssl_verify_mode={verify_mode}")
}

/// Returns the memory that memcached needs, in MiB: the items, the process itself, a tenth of the items for their index and for
/// slabs that are not full, and 4 KiB per connection.
pub fn memory_mib(config: &CacheConfig) -> i64 {
    let items = i64::from(config.memory_mb);
    let connections = i64::from(config.max_connections);
    items + PROCESS_MIB + div_ceil(items, 10) + div_ceil(connections, 256)
}

/// The memory that memcached needs beside its items, in MiB.
pub const PROCESS_MIB: i64 = 32;

/// Why the operator refuses an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A field of the spec sets this flag.
    SetByField {
        /// The flag as the user wrote it, without a value.
        flag: String,
        /// The path of the field.
        field: &'static str,
    },
    /// The operator does not allow this flag at all.
    NotAllowed {
        /// The flag as the user wrote it, without a value.
        flag: String,
        /// The reason.
        because: &'static str,
    },
    /// A value without a flag before it.
    NoFlag,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetByField { flag, field } => {
                write!(f, "\"{flag}\" is set by the operator; use {field}")
            }
            Self::NotAllowed { flag, because } => write!(f, "\"{flag}\" is not allowed: {because}; remove it"),
            Self::NoFlag => f.write_str("must begin with \"-\" or follow an argument that does"),
        }
    }
}

/// Fails with the index of the first argument that the operator refuses. With `tls`, it refuses the options of TLS too.
pub fn check_extra_args(extra_args: &[String], tls: bool) -> Result<(), (usize, Refusal)> {
    let mut after_flag = false;
    let mut before = None;
    for (index, arg) in extra_args.iter().enumerate() {
        let is_flag = arg.starts_with('-');
        if !is_flag && !after_flag {
            return Err((index, Refusal::NoFlag));
        }
        if let Some(refusal) = arg.strip_prefix("--").map_or_else(|| check_short(arg), check_long) {
            return Err((index, refusal));
        }
        let options = match before.and_then(options_in) {
            Some("") => Some(arg.as_str()),
            _ => options_in(arg),
        };
        if let Some(option) = options.filter(|_| tls).and_then(tls_option) {
            return Err((index, Refusal::SetByField { flag: option.to_owned(), field: "spec.tls" }));
        }
        after_flag = is_flag;
        before = Some(arg.as_str());
    }
    Ok(())
}

/// A flag that the operator refuses.
struct Reserved {
    short: char,
    long: &'static str,
    instead: Instead,
}

/// What a user does instead of setting a flag.
enum Instead {
    /// Sets this field.
    Field(&'static str),
    /// Does without the flag, for this reason.
    Nothing(&'static str),
}

const RESERVED: &[Reserved] = &[
    owned('m', "memory-limit", "spec.config.memoryMB"),
    owned('c', "conn-limit", "spec.config.maxConnections"),
    owned('t', "threads", "spec.config.threads"),
    owned('I', "max-item-size", "spec.config.maxItemSizeKiB"),
    owned('p', "port", "spec.port"),
    owned('M', "disable-evictions", "spec.config.evictions"),
    owned('v', "verbose", "spec.config.verbosity"),
    owned('Y', "auth-file", "spec.auth"),
    owned('Z', "enable-ssl", "spec.tls"),
    // They open another way in than the port, or close the port.
    forbidden('U', "udp-port", BY_TCP),
    forbidden('l', "listen", "clients connect by TCP to spec.port; spec.networkPolicy limits who may"),
    forbidden('s', "unix-socket", BY_TCP),
    // The pod spec controls these.
    forbidden('d', "daemon", "the pod would end at once"),
    forbidden('u', "user", "the pod has a fixed user"),
    forbidden('P', "pidfile", "the pod needs no such file"),
    forbidden('k', "lock-memory", "a pod may not lock memory"),
    // They end memcached: at the command of a client, or at once.
    forbidden('A', "enable-shutdown", "any client could end memcached"),
    forbidden('h', "help", PRINTS),
    forbidden('i', "license", PRINTS),
    forbidden('V', "version", PRINTS),
];

const BY_TCP: &str = "clients connect by TCP to spec.port";
const PRINTS: &str = "memcached would print a text and end";

/// The flags that are not reserved and take a value. The rest of such an argument is the value: `-f1.25` has only one flag.
const VALUED: &str = "abBDefnNoR";

const fn owned(short: char, long: &'static str, field: &'static str) -> Reserved {
    Reserved { short, long, instead: Instead::Field(field) }
}

const fn forbidden(short: char, long: &'static str, because: &'static str) -> Reserved {
    Reserved { short, long, instead: Instead::Nothing(because) }
}

/// Returns the value of `-o` or `--extended` in an argument; empty if the value is the next argument.
fn options_in(arg: &str) -> Option<&str> {
    if let Some(long) = arg.strip_prefix("--") {
        let (name, value) = long.split_once('=').unwrap_or((long, ""));
        return (!name.is_empty() && "extended".starts_with(name)).then_some(value);
    }
    let flags = arg.strip_prefix('-')?;
    flags[flags.find(|flag| VALUED.contains(flag))?..].strip_prefix('o')
}

/// Returns the first TLS option among options such as `modern,ssl_key=…`.
fn tls_option(options: &str) -> Option<&str> {
    let names = options.split(',').filter_map(|option| option.split('=').next());
    names.map(str::trim).find(|name| name.starts_with("ssl_"))
}

/// Checks an argument with short flags. It may hold several flags (`-CF`), the last of them with its value (`-Cm64`).
fn check_short(arg: &str) -> Option<Refusal> {
    let flags = arg.strip_prefix('-')?;
    let without_value = flags.find(|flag| VALUED.contains(flag)).map_or(flags, |valued| &flags[..valued]);
    let (flag, reserved) =
        without_value.chars().find_map(|flag| Some((flag, RESERVED.iter().find(|it| it.short == flag)?)))?;
    Some(reserved.refuse(format!("-{flag}")))
}

/// Checks a long flag. memcached accepts any unambiguous prefix of a long flag.
fn check_long(arg: &str) -> Option<Refusal> {
    let name = arg.split('=').next().unwrap_or(arg);
    if name.is_empty() {
        return Some(Refusal::NotAllowed { flag: "--".to_owned(), because: "it is no option" });
    }
    let reserved = RESERVED.iter().find(|it| it.long.starts_with(name))?;
    Some(reserved.refuse(format!("--{name}")))
}

impl Reserved {
    fn refuse(&self, flag: String) -> Refusal {
        match self.instead {
            Instead::Field(field) => Refusal::SetByField { flag, field },
            Instead::Nothing(because) => Refusal::NotAllowed { flag, because },
        }
    }
}

fn div_ceil(dividend: i64, divisor: i64) -> i64 {
    (dividend + divisor - 1) / divisor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(config: CacheConfig, port: i32) -> MemcachedSpec {
        let mut spec = crate::samples::seed().spec;
        (spec.config, spec.port) = (Some(config), Some(port));
        spec
    }

    fn config(change: impl FnOnce(&mut CacheConfig)) -> CacheConfig {
        let mut config = CacheConfig::default();
        change(&mut config);
        config
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn config_becomes_memcached_arguments() {
        let extra = |text: &str| config(|it| it.extra_args = words(text));
        for (config, port, expected) in [
            (config(|_| {}), 11211, "-m 64 -c 1024 -t 4 -I 1024k -p 11211"),
            (config(|_| {}), 22122, "-m 64 -c 1024 -t 4 -I 1024k -p 22122"),
            (config(|it| it.memory_mb = 65536), 11211, "-m 65536 -c 1024 -t 4 -I 1024k -p 11211"),
            (config(|it| it.max_connections = 1), 11211, "-m 64 -c 1 -t 4 -I 1024k -p 11211"),
            (config(|it| it.threads = 128), 11211, "-m 64 -c 1024 -t 128 -I 1024k -p 11211"),
            (config(|it| it.max_item_size_kib = 512), 11211, "-m 64 -c 1024 -t 4 -I 512k -p 11211"),
            (config(|it| it.evictions = false), 11211, "-m 64 -c 1024 -t 4 -I 1024k -p 11211 -M"),
            (config(|it| it.verbosity = 1), 11211, "-m 64 -c 1024 -t 4 -I 1024k -p 11211 -v"),
            (config(|it| it.verbosity = 2), 11211, "-m 64 -c 1024 -t 4 -I 1024k -p 11211 -vv"),
            (extra("-o modern"), 11211, "-m 64 -c 1024 -t 4 -I 1024k -p 11211 -o modern"),
            (
                extra("--max-reqs-per-event=40 -C"),
                11211,
                "-m 64 -c 1024 -t 4 -I 1024k -p 11211 --max-reqs-per-event=40 -C",
            ),
            (
                CacheConfig {
                    memory_mb: 2048,
                    max_connections: 4096,
                    threads: 8,
                    max_item_size_kib: 8192,
                    evictions: false,
                    verbosity: 2,
                    extra_args: words("-o no_modern -f 1.1"),
                },
                1024,
                "-m 2048 -c 4096 -t 8 -I 8192k -p 1024 -M -vv -o no_modern -f 1.1",
            ),
        ] {
            assert_eq!(args(&spec(config, port)), words(expected));
        }
    }

    #[test]
    fn memory_covers_items_process_index_and_connections() {
        assert_eq!(memory_mib(&CacheConfig::default()), 64 + 32 + 7 + 4);
        let large = config(|it| (it.memory_mb, it.max_connections) = (1000, 257));
        assert_eq!(memory_mib(&large), 1000 + 32 + 100 + 2);
    }

    #[test]
    fn allowed_extra_args_are_accepted() {
        for given in [
            "",
            "-o modern",
            "-o modern,no_hashexpand",
            "--max-reqs-per-event=40",
            "-R 40",
            "-R40",
            "-C -F",
            "-CF",
            "-f 1.25 -n 72",
            "-f1.25",
            // The letters of a value are not flags.
            "-omodern",
            "--listen-backlog=64",
            "--slab-growth-factor 1.1",
        ] {
            assert_eq!(check_extra_args(&words(given), true), Ok(()), "{given}");
        }
    }

    #[test]
    fn reserved_extra_args_are_rejected() {
        for (given, expected_index, expected) in [
            ("-m 1", 0, r#""-m" is set by the operator; use spec.config.memoryMB"#),
            ("-m64", 0, r#""-m" is set by the operator; use spec.config.memoryMB"#),
            ("--memory-limit=1", 0, r#""--memory-limit" is set by the operator; use spec.config.memoryMB"#),
            ("--memory-limit 1", 0, r#""--memory-limit" is set by the operator; use spec.config.memoryMB"#),
            ("--memory-l=1", 0, r#""--memory-l" is set by the operator; use spec.config.memoryMB"#),
            ("-c 1", 0, r#""-c" is set by the operator; use spec.config.maxConnections"#),
            ("-t 1", 0, r#""-t" is set by the operator; use spec.config.threads"#),
            ("-I 1m", 0, r#""-I" is set by the operator; use spec.config.maxItemSizeKiB"#),
            ("-p 1", 0, r#""-p" is set by the operator; use spec.port"#),
            ("-M", 0, r#""-M" is set by the operator; use spec.config.evictions"#),
            ("-v", 0, r#""-v" is set by the operator; use spec.config.verbosity"#),
            ("-vvv", 0, r#""-v" is set by the operator; use spec.config.verbosity"#),
            ("-U 11211", 0, r#""-U" is not allowed: clients connect by TCP to spec.port; remove it"#),
            (
                "-o modern -l 0.0.0.0",
                2,
                r#""-l" is not allowed: clients connect by TCP to spec.port; spec.networkPolicy limits who may; remove it"#,
            ),
            ("-CFu root", 0, r#""-u" is not allowed: the pod has a fixed user; remove it"#),
            ("--enable-ssl", 0, r#""--enable-ssl" is set by the operator; use spec.tls"#),
            ("-Y a", 0, r#""-Y" is set by the operator; use spec.auth"#),
            ("-d", 0, r#""-d" is not allowed: the pod would end at once; remove it"#),
            ("-P /tmp/a", 0, r#""-P" is not allowed: the pod needs no such file; remove it"#),
            ("-k", 0, r#""-k" is not allowed: a pod may not lock memory; remove it"#),
            ("-V", 0, r#""-V" is not allowed: memcached would print a text and end; remove it"#),
            (
                "--enable-shutdown",
                0,
                r#""--enable-shutdown" is not allowed: any client could end memcached; remove it"#,
            ),
            ("--", 0, r#""--" is not allowed: it is no option; remove it"#),
            ("modern", 0, r#"must begin with "-" or follow an argument that does"#),
            ("-o modern again", 2, r#"must begin with "-" or follow an argument that does"#),
        ] {
            let (index, refusal) = check_extra_args(&words(given), false).expect_err(given);
            assert_eq!((index, &*refusal.to_string()), (expected_index, expected), "{given}");
        }
        for flag in "mctIpMvUlsduPYZhViAk".chars() {
            assert!(check_extra_args(&[format!("-{flag}")], false).is_err(), "-{flag}");
        }
    }

    #[test]
    fn tls_options_are_rejected_while_tls_is_on() {
        for (given, index, option) in [
            ("-o ssl_key=/tmp/key", 1, "ssl_key"),
            ("-o modern,ssl_verify_mode=0", 1, "ssl_verify_mode"),
            ("-Cossl_session_cache", 0, "ssl_session_cache"),
            ("-F -Co ssl_key=a", 2, "ssl_key"),
            ("--extended=ssl_key=a", 0, "ssl_key"),
            ("--ext ssl_key=a", 1, "ssl_key"),
        ] {
            let (at, refusal) = check_extra_args(&words(given), true).expect_err(given);
            let expected = format!("\"{option}\" is set by the operator; use spec.tls");
            assert_eq!((at, refusal.to_string()), (index, expected), "{given}");
            assert_eq!(check_extra_args(&words(given), false), Ok(()), "{given}");
        }
    }

    #[test]
    fn secret_files_come_before_extra_args() {
        let secured =
            |client_auth: &str| {
                args(&crate::samples::with_spec(&serde_json::json!({
                "config": {"extraArgs": ["-C"], "verbosity": 1},
                "auth": {"secretName": "a", "key": "users"}, "tls": {"secretName": "b", "clientAuth": client_auth},
            })).spec)[10..].join(" ")
            };
        let files = "-v -Y /etc/memcached/passwords/users \
                     -Z -o ssl_chain_cert=/etc/memcached/tls/tls.crt,ssl_key=/etc/memcached/tls/tls.key";
        assert_eq!(secured("None"), format!("{files} -C"));
        let authority = "ssl_ca_cert=/etc/memcached/tls/ca.crt";
        assert_eq!(secured("Request"), format!("{files},{authority},ssl_verify_mode=1 -C"));
        assert_eq!(secured("Require"), format!("{files},{authority},ssl_verify_mode=2 -C"));
        let off = crate::samples::with_spec(&serde_json::json!({"tls": {}}));
        assert!(!args(&off.spec).contains(&"-Z".to_owned()));
    }
}
