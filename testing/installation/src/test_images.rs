//! Images that only tests run, and how nodes get them.

use std::path::Path;

use anyhow::{Context as _, Result};
use cluster::{Cluster, Tool, Tools, Unsupported, progress};
use images::{ImageSpec, Layer, Reference, Store};

use crate::{
    Backend,
    install::{load, once},
};

/// The image with the programs that tests run in pods. No registry has it.
pub const TESTBOX: &str = "localhost/testbox:1";

/// The image of kube-rbac-proxy that the chart names, without the tag.
const KUBE_RBAC_PROXY: &str = "quay.io/brancz/kube-rbac-proxy";

/// Makes sure that the nodes of the shared cluster have [`TESTBOX`].
///
/// # Errors
///
/// If they cannot get it.
pub fn provide_testbox(cluster: &Cluster) -> Result<()> {
    if !is_loaded(Backend::chosen()?)? {
        return Ok(());
    }
    let store = Store::open(images::default_store()?)?;
    images::ensure_fixture(store.root(), TESTBOX, &mut |line| eprintln!("{line}"))?;
    let reference = Reference::parse(TESTBOX)?;
    let stored = store.find(&reference)?.with_context(|| format!("{TESTBOX} is not in the store"))?;
    once(cluster, "testbox", &stored.digest.to_string(), || load(cluster, &store, &reference, &reference))
}

/// Whether nodes get [`TESTBOX`] by loading. Those of the local cluster pull from the store of this machine.
fn is_loaded(backend: Backend) -> Result<bool> {
    match backend {
        Backend::Local => Ok(false),
        Backend::Kind => Ok(true),
        Backend::Existing => {
            let why = format!("this test runs programs of the image {TESTBOX}, which an existing cluster cannot pull");
            Err(Unsupported(why).into())
        }
    }
}

/// Makes sure that nodes find an image of kube-rbac-proxy. Those that pull from the store of this machine get an image with the version
/// of the program that `hack/tools` pins, which this builds. All others pull the published one that the chart names.
///
/// Returns the tag of the image that this has built.
///
/// # Errors
///
/// If the program or the image does not build.
pub fn provide_kube_rbac_proxy() -> Result<Option<String>> {
    let pulls_published = match Backend::chosen()? {
        Backend::Local => false,
        Backend::Existing => true,
        Backend::Kind => cluster::kind_engine_is_of_user()?,
    };
    if pulls_published {
        return Ok(None);
    }
    let tools = Tools::locate_or_build(&[Tool::KubeRbacProxy], &progress::to_stderr)?;
    let image = kube_rbac_proxy(tools.binary("kube-rbac-proxy")?)?.build()?;
    Store::open(images::default_store()?)?.put(&image)?;
    Ok(Some(cluster::tools::version_of(Tool::KubeRbacProxy)?))
}

/// The image with this program. Its user and the place of the program are those of the published image.
fn kube_rbac_proxy(program: &Path) -> Result<ImageSpec> {
    let version = cluster::tools::version_of(Tool::KubeRbacProxy)?;
    let path = "/usr/local/bin/kube-rbac-proxy";
    let mut files = Layer::new();
    files.copy(path, program, 0o755)?;
    Ok(ImageSpec {
        references: vec![Reference::parse(&format!("{KUBE_RBAC_PROXY}:{version}"))?],
        files,
        entrypoint: vec![path.to_owned()],
        user: "65532:65532".to_owned(),
        ..ImageSpec::default()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::install::workspace;

    #[test]
    fn image_that_no_registry_has_is_loaded_into_kind_and_not_expected_elsewhere() {
        assert_eq!([Backend::Local, Backend::Kind].map(|backend| is_loaded(backend).unwrap()), [false, true]);
        let error = is_loaded(Backend::Existing).unwrap_err();
        assert!(error.is::<Unsupported>(), "{error}");
    }

    /// On a cluster that pulls from public registries, such a pod would never start.
    #[test]
    fn tests_name_no_image_that_nodes_may_lack() {
        let no_pods = ["localhost/no-such-image:1", "--image=localhost/pause:1 --replicas=0"];
        let mut folders = vec![workspace().unwrap().join("e2e/tests")];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text =
                    no_pods.iter().fold(fs::read_to_string(&path).unwrap(), |text, known| text.replace(known, ""));
                let local = text.lines().find(|line| line.contains("\"localhost/") || line.contains("=localhost/"));
                assert_eq!(local, None, "{}: use TESTBOX", path.display());
                files += 1;
            }
        }
        assert!(files > 10, "{files}");
    }

    #[test]
    fn built_image_of_the_proxy_has_the_repository_that_the_chart_names() {
        let named = fs::read_to_string(chart::folder().join("files/images.yaml")).unwrap();
        assert!(named.contains(&format!("\nmetrics.proxy.image: {KUBE_RBAC_PROXY}\n")), "{named}");
        let spec = kube_rbac_proxy(Path::new("/bin/sh")).unwrap();
        assert_eq!(spec.references[0].tag, cluster::tools::version_of(Tool::KubeRbacProxy).unwrap());
        assert_eq!((spec.user.as_str(), spec.entrypoint.len()), ("65532:65532", 1));
    }
}
