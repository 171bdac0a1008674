//! The images of the control plane, of kube-proxy, of DNS and of the pause program, made of programs that this repository builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use images::{ImageSpec, Layer, Reference, Store, closure};

use super::says;
use crate::tools::Tools;

/// What the images are made of.
pub(super) struct Parts<'a> {
    pub(super) tools: &'a Tools,
    /// The version of Kubernetes.
    pub(super) version: &'a str,
    /// A root file system with `nft`.
    pub(super) root: &'a Path,
    /// The name of the image for the pause program.
    pub(super) pause: &'a str,
}

/// Writes archives with all images into the folder `work`.
pub(super) fn archives(parts: &Parts<'_>, work: &Path) -> Result<Vec<PathBuf>> {
    let store = Store::open(work.join("images"))?;
    let mut kubeadm = Command::new(parts.tools.binary("kubeadm")?);
    let wanted = says(kubeadm.args(["config", "images", "list", "--kubernetes-version", parts.version]))?;
    let kubernetes = kubernetes_layer(parts)?;
    for name in wanted.lines().map(str::trim).filter(|name| !name.is_empty()) {
        let (files, program) = match program(name)? {
            None => continue,
            Some("etcd") => (one(parts.tools, "etcd", "/usr/local/bin/etcd")?, "/usr/local/bin/etcd".to_owned()),
            Some("coredns") => (one(parts.tools, "coredns", "/coredns")?, "/coredns".to_owned()),
            Some(component) => (kubernetes.clone(), format!("/usr/local/bin/{component}")),
        };
        store.put(&spec(name, files, program)?.build()?)?;
    }
    let ours = work.join("system-images.tar");
    let mut tar = Command::new(crate::missing::require("tar", "tar")?);
    says(tar.arg("-cf").arg(&ours).arg("-C").arg(store.root()).args(["oci-layout", "index.json", "blobs"]))?;
    fs::remove_dir_all(store.root())?;

    let pause = work.join("pause.tar");
    let fixtures = Store::open(images::default_store()?)?;
    fixtures.export_as(&Reference::parse("localhost/pause:1")?, &Reference::parse(parts.pause)?, &pause)?;
    Ok(vec![ours, pause])
}

/// The program in the image with this name, which kubeadm requests. `None` for the pause program, whose image kind chooses.
fn program(image: &str) -> Result<Option<&str>> {
    let name = image.rsplit('/').next().unwrap_or_default().split(':').next().unwrap_or_default();
    Ok(match name {
        "pause" => None,
        "etcd" | "coredns" | "kube-apiserver" | "kube-controller-manager" | "kube-scheduler" | "kube-proxy" => {
            Some(name)
        }
        _ => bail!("kubeadm needs an image {image}, which this repository cannot build"),
    })
}

fn spec(name: &str, files: Layer, program: String) -> Result<ImageSpec> {
    Ok(ImageSpec {
        references: vec![Reference::parse(name)?],
        files,
        entrypoint: vec![program],
        env: vec!["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
        ..ImageSpec::default()
    })
}

fn one(tools: &Tools, program: &str, path: &str) -> Result<Layer> {
    let mut layer = Layer::new();
    layer.directory("/tmp", 0o1777).copy(path, tools.binary(program)?, 0o755)?;
    Ok(layer)
}

/// One layer for all components of Kubernetes, so that a node stores it once. kube-proxy needs `nft`.
fn kubernetes_layer(parts: &Parts<'_>) -> Result<Layer> {
    let mut layer = one(parts.tools, "kube-apiserver", "/usr/local/bin/kubernetes")?;
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        layer.symlink(&format!("/usr/local/bin/{component}"), "kubernetes");
    }
    let nft = parts.root.join("usr/sbin/nft");
    layer.copy("/usr/sbin/nft", &nft, 0o755)?;
    closure::add(&mut layer, &nft, &[parts.root.to_path_buf()]).context("could not find the libraries of nft")?;
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_image_of_kubeadm_has_a_program() {
        assert_eq!(program("registry.k8s.io/kube-proxy:v1.36.3").unwrap(), Some("kube-proxy"));
        assert_eq!(program("registry.k8s.io/coredns/coredns:v1.14.2").unwrap(), Some("coredns"));
        assert_eq!(program("registry.k8s.io/etcd:3.6.8-0").unwrap(), Some("etcd"));
        assert_eq!(program("registry.k8s.io/pause:3.10").unwrap(), None);
        assert!(program("registry.k8s.io/kube-cloud:v1").unwrap_err().to_string().contains("kube-cloud"));
    }
}
