//! The fixtures: images for samples, demos and tests, under the names that these use.
//!
//! memcached, busybox and nginx are the real programs, from Debian's packages. nginx starts as root, gives folders to its own user,
//! and serves as this user: tests of security profiles need an image that really does so. The other public images are **stand-ins**
//! around the program `testbox`. The unprivileged nginx has the name, the port and the user of the real image, and answers every
//! HTTP request with a greeting. This is enough for tests of operators, which observe pods and not the programs in them. The
//! exporter of memcached accepts the flags of the real one, and serves three of its metrics.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::debian::{Debian, Package};
use crate::go::{GoProgram, PAUSE, TESTBOX};
use crate::{Digest, ImageSpec, Layer, Reference, Store, closure};

/// The version of the recipes. Raise it when a change of the code below changes the content of an image. Changes of Go sources
/// are detected without it.
const RECIPE: u32 = 1;

/// An image, and how to build it.
struct Fixture {
    /// The main name. The other names follow from `tags`.
    name: &'static str,
    /// Further tags of the same image.
    tags: &'static [&'static str],
    content: Content,
}

/// The content of an image.
enum Content {
    /// A static Go program of this repository, with its arguments, user and port.
    Program {
        program: &'static GoProgram,
        args: &'static [&'static str],
        user: &'static str,
        port: Option<u16>,
    },
    /// A subcommand of `testbox`. It is a part of the image's entry point, so that a pod's arguments are its flags.
    Command(&'static str),
    Memcached,
    Busybox,
    Nginx,
}

const FIXTURES: &[Fixture] = &[
    Fixture {
        name: "localhost/pause:1",
        tags: &[],
        content: Content::Program { program: &PAUSE, args: &[], user: "65535:65535", port: None },
    },
    Fixture {
        name: "localhost/testbox:1",
        tags: &[],
        content: Content::Program { program: &TESTBOX, args: &[], user: "65532:65532", port: None },
    },
    Fixture { name: "docker.io/library/memcached:1.6", tags: &["latest", "1"], content: Content::Memcached },
    // Debian 12 has busybox 1.35 and the samples name 1.36, but what they use of it is the same.
    Fixture { name: "docker.io/library/busybox:1.36", tags: &["latest", "1", "stable"], content: Content::Busybox },
    // A stand-in, see above. Like the real image, it has a numeric user that is not root.
    Fixture {
        name: "docker.io/nginxinc/nginx-unprivileged:stable",
        tags: &["latest", "mainline", "1"],
        content: Content::Program {
            program: &TESTBOX,
            args: &["serve", "--port", "8080"],
            user: "101",
            port: Some(8080),
        },
    },
    Fixture { name: "docker.io/library/nginx:latest", tags: &["stable", "mainline", "1"], content: Content::Nginx },
    // A stand-in, see above.
    Fixture {
        name: "docker.io/prom/memcached-exporter:v0.15.4",
        tags: &["latest"],
        content: Content::Command("exporter"),
    },
];

/// Builds the fixture images that are missing in `store`, and reports each to `progress`. If none is missing, it only reads the
/// index. It does not check for Debian's updates: delete the store to get them.
pub fn ensure_fixtures(store: &Path, progress: &mut dyn FnMut(&str)) -> Result<()> {
    ensure_those(store, &|_| true, progress)
}

/// The same for the fixture with this main name alone.
pub fn ensure_fixture(store: &Path, name: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
    ensure!(FIXTURES.iter().any(|fixture| fixture.name == name), "{name} is no fixture");
    ensure_those(store, &|fixture| fixture.name == name, progress)
}

fn ensure_those(store: &Path, wanted: &dyn Fn(&Fixture) -> bool, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let store = Store::open(store)?;
    if missing(&store, wanted)?.is_empty() {
        return Ok(());
    }
    // Of two processes, the second waits here, and then finds all images.
    let _lock = store.lock("fixtures.lock")?;
    for fixture in missing(&store, wanted)? {
        progress(&format!("building image {}", fixture.name));
        let image = fixture.spec().with_context(|| format!("could not build {}", fixture.name))?.build()?;
        store.put(&image)?;
    }
    Ok(())
}

fn missing(store: &Store, wanted: &dyn Fn(&Fixture) -> bool) -> Result<Vec<&'static Fixture>> {
    let stored = store.list()?;
    let mut missing = Vec::new();
    for fixture in FIXTURES.iter().filter(|fixture| wanted(fixture)) {
        let name = Reference::parse(fixture.name)?;
        let inputs = Some(fixture.inputs());
        if !stored.iter().any(|stored| stored.reference == name && stored.inputs == inputs) {
            missing.push(fixture);
        }
    }
    Ok(missing)
}

impl Fixture {
    /// A digest of all inputs. When it changes, the image has to be built again.
    fn inputs(&self) -> Digest {
        let content = match &self.content {
            Content::Program { program, args, user, port } => {
                format!("{:?} {args:?} {user} {port:?}", program.sources)
            }
            Content::Command(command) => format!("{:?} {command}", TESTBOX.sources),
            Content::Memcached => "memcached".to_owned(),
            Content::Busybox => "busybox".to_owned(),
            Content::Nginx => format!("nginx {NGINX_CONFIGURATION}"),
        };
        Digest::of(format!("{RECIPE} {} {:?} {content}", self.name, self.tags).as_bytes())
    }

    fn spec(&self) -> Result<ImageSpec> {
        let name = Reference::parse(self.name)?;
        let mut references: Vec<_> = self.tags.iter().map(|tag| name.with_tag(tag)).collect();
        let (spec, version) = match &self.content {
            Content::Program { program, args, user, port } => (static_program(program, args, user, *port)?, None),
            Content::Command(command) => {
                let mut spec = static_program(&TESTBOX, &[], "65534", None)?;
                spec.entrypoint.push((*command).to_owned());
                (spec, None)
            }
            Content::Memcached => memcached()?,
            Content::Busybox => busybox()?,
            Content::Nginx => nginx()?,
        };
        references.extend(version.map(|version| name.with_tag(&version)));
        references.push(name);
        references.sort();
        references.dedup(); // the version may equal one of the tags
        Ok(ImageSpec { references, inputs: Some(self.inputs()), ..spec })
    }
}

fn static_program(program: &GoProgram, args: &[&str], user: &str, port: Option<u16>) -> Result<ImageSpec> {
    let path = format!("/{}", program.name);
    let mut files = Layer::new();
    files.file(&path, program.build()?, 0o755).directory("/tmp", 0o1777);
    Ok(ImageSpec {
        files,
        entrypoint: vec![path],
        cmd: args.iter().map(ToString::to_string).collect(),
        env: vec![PATH.to_owned()],
        user: user.to_owned(),
        ports: port.into_iter().collect(),
        ..ImageSpec::default()
    })
}

const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The image of the real memcached, and its version, which becomes a tag.
fn memcached() -> Result<(ImageSpec, Option<String>)> {
    let debian = Debian::shared()?;
    let package = debian.unpack("memcached")?;
    let roots = with_libraries(&debian, &package)?;
    let program = package.root.join("usr/bin/memcached");
    let mut files = Layer::new();
    files
        .copy("/usr/local/bin/memcached", &program, 0o755)?
        // memcached looks up its own user.
        .file("/etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nmemcache:x:11211:11211::/:/sbin/nologin\n", 0o644)
        .file("/etc/group", "root:x:0:\nmemcache:x:11211:\n", 0o644)
        .directory("/tmp", 0o1777);
    closure::add(&mut files, &program, &roots)?;
    let spec = ImageSpec {
        files,
        entrypoint: vec!["memcached".to_owned()],
        env: vec![PATH.to_owned()],
        user: "11211:11211".to_owned(),
        ports: vec![11211],
        ..ImageSpec::default()
    };
    Ok((spec, Some(package.version)))
}

/// The image of the real busybox with all its applets, and its version. Like the public image, it runs as root and starts a
/// shell.
fn busybox() -> Result<(ImageSpec, Option<String>)> {
    let package = Debian::shared()?.unpack("busybox-static")?;
    // Debian moved the file from /bin to /usr/bin after release 12.
    let program =
        ["usr/bin/busybox", "bin/busybox"].map(|path| package.root.join(path)).into_iter().find(|p| p.exists());
    let program = program.context("the package busybox-static has no busybox")?;
    let applets = std::process::Command::new(&program).arg("--list").output()?;
    let mut files = Layer::new();
    files
        .copy("/bin/busybox", &program, 0o755)?
        .file("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n", 0o644)
        .file("/etc/group", "root:x:0:\nnobody:x:65534:\n", 0o644)
        .directory("/root", 0o700)
        .directory("/home", 0o755)
        .directory("/tmp", 0o1777);
    for applet in String::from_utf8_lossy(&applets.stdout).lines().filter(|applet| *applet != "busybox") {
        files.symlink(&format!("/bin/{applet}"), "busybox");
    }
    let spec = ImageSpec { files, cmd: vec!["sh".to_owned()], env: vec![PATH.to_owned()], ..ImageSpec::default() };
    Ok((spec, Some(package.version)))
}

/// The configuration of nginx. It binds port 80 as root, and answers as its own user, which may not read `/etc/root-only`. One socket
/// takes requests of both families of addresses.
const NGINX_CONFIGURATION: &str = r#"user nginx;
worker_processes 1;
daemon off;
error_log stderr notice;
events {}
http {
    access_log off;
    server {
        listen [::]:80 ipv6only=off;
        location / { return 200 "hello from $hostname\n"; }
        location = /root-only { alias /etc/root-only; }
    }
}
"#;

/// The image of the real nginx, and its version. Like the public image, it starts as root, and its processes that answer requests
/// have the user 101.
fn nginx() -> Result<(ImageSpec, Option<String>)> {
    let debian = Debian::shared()?;
    let mut package = debian.unpack("nginx")?;
    if !package.root.join("usr/sbin/nginx").exists() {
        package = debian.unpack("nginx-core")?; // in some releases, `nginx` has no files, and depends on this package
    }
    let mut roots = with_libraries(&debian, &package)?;
    roots.push(debian.unpack("zlib1g")?.root);
    let program = package.root.join("usr/sbin/nginx");
    let mut files = Layer::new();
    files
        .copy("/usr/sbin/nginx", &program, 0o755)?
        .file("/etc/nginx/nginx.conf", NGINX_CONFIGURATION, 0o644)
        .file("/etc/root-only", "only root reads this\n", 0o600)
        .file("/etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnginx:x:101:101::/:/sbin/nologin\n", 0o644)
        .file("/etc/group", "root:x:0:\nnginx:x:101:\n", 0o644)
        .directory("/run", 0o755)
        .directory("/tmp", 0o1777)
        .directory("/var/lib/nginx", 0o755)
        .directory("/var/log/nginx", 0o755);
    closure::add(&mut files, &program, &roots)?;
    let spec = ImageSpec {
        files,
        entrypoint: vec!["nginx".to_owned()],
        env: vec![PATH.to_owned()],
        ports: vec![80],
        ..ImageSpec::default()
    };
    Ok((spec, Some(package.version)))
}

/// The folders with the files of the package and of the libraries on which it depends.
fn with_libraries(debian: &Debian, package: &Package) -> Result<Vec<PathBuf>> {
    let mut roots = vec![package.root.clone()];
    for library in &package.libraries {
        roots.push(debian.unpack(library)?.root);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_the_named_fixture_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let names = |wanted: &dyn Fn(&Fixture) -> bool| -> Vec<_> {
            missing(&store, wanted).unwrap().iter().map(|fixture| fixture.name).collect()
        };
        assert_eq!(names(&|fixture| fixture.name == "localhost/testbox:1"), ["localhost/testbox:1"]);
        assert_eq!(names(&|_| true).len(), FIXTURES.len());
        let error = ensure_fixture(folder.path(), "localhost/testbox:2", &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "localhost/testbox:2 is no fixture");
    }

    #[test]
    fn fixture_names_are_complete_and_unique() {
        let mut seen = BTreeSet::new();
        for fixture in FIXTURES {
            let name = Reference::parse(fixture.name).unwrap();
            assert_eq!(name.to_string(), fixture.name);
            assert!(seen.insert(name.clone()), "{name} twice");
            for tag in fixture.tags {
                assert!(seen.insert(Reference::parse(&name.with_tag(tag).to_string()).unwrap()), "{name} {tag} twice");
            }
        }
    }
}
