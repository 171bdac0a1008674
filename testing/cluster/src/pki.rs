//! The keys and certificates of a cluster: two certificate authorities, and a certificate for each part.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::layout::Layout;
use crate::network::{Family, Node};

/// A certificate with its key, both as PEM.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// A certificate authority of one cluster.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// Certificates are valid for both families, whichever the cluster uses.
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const CLUSTER_CA: &str = "cluster-ca";

/// Writes all keys and certificates with which the parts of a cluster authenticate each other.
pub(crate) fn write(layout: &Layout, workers: u8) -> Result<Authority> {
    let folder = layout.pki("");
    fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;

    let authority = Authority::create(CLUSTER_CA)?;
    authority.save(&folder, "ca")?;
    authority.serving("kube-apiserver", &api_server_names())?.save(&folder, "apiserver")?;
    for node in Node::all(workers) {
        authority.serving(&node.to_string(), &node_names(node))?.save(&folder, &format!("kubelet-{node}"))?;
    }
    authority
        .client("kube-apiserver-kubelet-client", &["system:masters"])?
        .save(&folder, "apiserver-kubelet-client")?;

    let front_proxy = Authority::create("front-proxy-ca")?;
    front_proxy.save(&folder, "front-proxy-ca")?;
    front_proxy.client("front-proxy-client", &[])?.save(&folder, "front-proxy-client")?;

    let service_accounts = KeyPair::generate()?;
    write_private(&folder.join("sa.key"), &service_accounts.serialize_pem())?;
    fs::write(folder.join("sa.pub"), service_accounts.public_key_pem())?;
    Ok(authority)
}

impl Authority {
    fn create(name: &str) -> Result<Self> {
        let key = KeyPair::generate()?;
        let params = authority_params(name)?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Loads the authority of an existing cluster.
    pub(crate) fn load(layout: &Layout) -> Result<Self> {
        let read = |name: &str| {
            let file = layout.pki(name);
            fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))
        };
        let key = KeyPair::from_pem(&read("ca.key")?)?;
        Ok(Self { certificate: read("ca.crt")?, issuer: Issuer::new(authority_params(CLUSTER_CA)?, key) })
    }

    /// A certificate for a user with these groups, at most two.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Pair> {
        let mut params = leaf_params(user)?;
        // rcgen keeps only one value for each type of name, so a second organization uses the type's numeric form.
        let organizations = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        if groups.len() > organizations.len() {
            bail!("a user of a cluster can have two groups, not {}: bind roles to the user instead", groups.len());
        }
        for (organization, group) in organizations.into_iter().zip(groups) {
            params.distinguished_name.push(organization, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    /// A certificate for a server with these names.
    pub(crate) fn serving(&self, name: &str, names: &[SanType]) -> Result<Pair> {
        let mut params = leaf_params(name)?;
        params.subject_alt_names = names.to_vec();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Result<Pair> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }

    fn save(&self, folder: &Path, name: &str) -> Result<()> {
        let pair = Pair { certificate: self.certificate.clone(), key: self.issuer.key().serialize_pem() };
        pair.save(folder, name)
    }
}

impl Pair {
    pub(crate) fn save(&self, folder: &Path, name: &str) -> Result<()> {
        fs::write(folder.join(format!("{name}.crt")), &self.certificate)?;
        write_private(&folder.join(format!("{name}.key")), &self.key)
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<()> {
    let options = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(file);
    let mut open = options.with_context(|| format!("could not create {}", file.display()))?;
    std::io::Write::write_all(&mut open, text.as_bytes()).with_context(|| format!("could not write {}", file.display()))
}

fn authority_params(name: &str) -> Result<CertificateParams> {
    let mut params = leaf_params(name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params(name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa; // rustls refuses an authority as a server
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    // A wide range, so that a wrong clock does not matter. These keys are worthless outside of their cluster.
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    Ok(params)
}

fn api_server_names() -> Vec<SanType> {
    let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let mut names: Vec<_> = names.into_iter().chain(["localhost"]).filter_map(dns).collect();
    names.push(ip(Ipv4Addr::LOCALHOST.into()));
    names.extend(FAMILIES.iter().flat_map(|it| [it.api_service(), it.address(Node::FIRST)]).map(ip));
    names
}

fn node_names(node: Node) -> Vec<SanType> {
    let addresses = FAMILIES.iter().map(|it| it.address(node)).chain([Ipv4Addr::LOCALHOST.into()]);
    dns(&node.to_string()).into_iter().chain(addresses.map(ip)).collect()
}

fn dns(name: &str) -> Option<SanType> {
    Some(SanType::DnsName(name.try_into().ok()?))
}

fn ip(address: IpAddr) -> SanType {
    SanType::IpAddress(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_authority_equals_written_one() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        let written = write(&layout, 2).unwrap();
        let loaded = Authority::load(&layout).unwrap();
        assert_eq!(loaded.certificate, written.certificate);
        assert_eq!(loaded.issuer.key().serialize_pem(), written.issuer.key().serialize_pem());
        assert!(fs::read_to_string(layout.pki("sa.pub")).unwrap().contains("BEGIN PUBLIC KEY"));
    }

    #[test]
    fn key_files_have_mode_0600() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::at(folder.path());
        write(&layout, 2).unwrap();
        for entry in fs::read_dir(layout.pki("")).unwrap().map(Result::unwrap) {
            if entry.path().extension().is_some_and(|extension| extension == "key") {
                assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", entry.path().display());
            }
        }
    }
}
