//! The user's credentials, from the configuration file of Docker.
//!
//! `docker login`, `podman login --compat-auth-file`, `oras login` and the login actions of CI systems write this file. It has
//! passwords (`auths`), or names a program that returns them (`credHelpers`, `credsStore`), as the cloud providers need it.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};
use oci_client::secrets::RegistryAuth;

/// The key under which Docker stores the credentials of its public registry.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";

/// Where to look for credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// In `$DOCKER_CONFIG/config.json`, otherwise in `~/.docker/config.json`. Without that file, anonymous.
    #[default]
    User,
    /// In this file, which must exist.
    File(PathBuf),
    /// Nowhere.
    Anonymous,
}

impl Credentials {
    /// The credentials for a registry such as `ghcr.io`. Anonymous if the file has none for it.
    pub(crate) fn of(&self, registry: &str) -> Result<RegistryAuth> {
        let (path, required) = match self {
            Self::Anonymous => return Ok(RegistryAuth::Anonymous),
            Self::File(path) => (path.clone(), true),
            Self::User => match default_file() {
                Some(path) => (path, false),
                None => return Ok(RegistryAuth::Anonymous),
            },
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && !required => return Ok(RegistryAuth::Anonymous),
            Err(error) => return Err(error).with_context(|| format!("could not read {}", path.display())),
        };
        let key = if registry == "docker.io" { DOCKER_HUB } else { registry };
        let found = found(get_credential_from_reader(file, key), registry);
        found.with_context(|| format!("the credentials for {registry} in {}", path.display()))
    }
}

fn default_file() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("DOCKER_CONFIG").or_else(|| Some(set("HOME")?.join(".docker")));
    Some(folder?.join("config.json"))
}

fn found(
    answer: std::result::Result<DockerCredential, CredentialRetrievalError>,
    registry: &str,
) -> Result<RegistryAuth> {
    match answer {
        Ok(DockerCredential::UsernamePassword(user, password)) => Ok(RegistryAuth::Basic(user, password)),
        Ok(DockerCredential::IdentityToken(_)) => bail!(
            "an identity token cannot be used here: log in with a user name and an access token, `docker login {registry}`"
        ),
        Err(CredentialRetrievalError::NoCredentialConfigured) => Ok(RegistryAuth::Anonymous),
        // The text by which every helper says so; it is a part of their protocol.
        Err(CredentialRetrievalError::HelperFailure { stdout, .. }) if stdout.contains("credentials not found") => {
            Ok(RegistryAuth::Anonymous)
        }
        // What a helper prints to its standard output may contain a secret.
        Err(CredentialRetrievalError::HelperFailure { helper, stderr, .. }) => {
            bail!("{helper} failed: {}", stderr.trim_end())
        }
        Err(other) => Err(anyhow!("{other}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// "user:secret" and "hub:secret" in base64.
    const CONFIG: &str = r#"{"auths": {
        "ghcr.io": {"auth": "dXNlcjpzZWNyZXQ="},
        "https://index.docker.io/v1/": {"auth": "aHViOnNlY3JldA=="},
        "token.example.com": {"identitytoken": "abc"},
        "broken.example.com": {"auth": "%"}
    }}"#;

    fn of(config: &str, registry: &str) -> Result<RegistryAuth> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(config.as_bytes()).unwrap();
        Credentials::File(file.path().to_owned()).of(registry)
    }

    fn basic(user: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.to_owned(), "secret".to_owned())
    }

    #[test]
    fn password_belongs_to_one_registry() {
        assert_eq!(of(CONFIG, "ghcr.io").unwrap(), basic("user"));
        assert_eq!(of(CONFIG, "docker.io").unwrap(), basic("hub"));
        for other in ["quay.io", "ghcr.io:5000", "evil-ghcr.io"] {
            assert_eq!(of(CONFIG, other).unwrap(), RegistryAuth::Anonymous, "{other}");
        }
        assert_eq!(of("{}", "ghcr.io").unwrap(), RegistryAuth::Anonymous);
    }

    #[test]
    fn unusable_credentials_are_an_error() {
        let token = format!("{:#}", of(CONFIG, "token.example.com").unwrap_err());
        assert!(token.contains("docker login token.example.com") && !token.contains("abc"), "{token}");
        assert!(of(CONFIG, "broken.example.com").is_err());
        assert!(of("no JSON", "ghcr.io").is_err());
        let missing = Credentials::File("/nowhere/config.json".into()).of("ghcr.io").unwrap_err();
        assert!(missing.to_string().contains("/nowhere/config.json"), "{missing}");
    }

    #[test]
    fn helper_without_credentials_means_anonymous_and_its_output_stays_secret() {
        let failure = |stdout: &str| CredentialRetrievalError::HelperFailure {
            helper: "docker-credential-x".to_owned(),
            stdout: stdout.to_owned(),
            stderr: "locked".to_owned(),
        };
        let none = found(Err(failure("credentials not found in native keychain\n")), "ghcr.io");
        assert_eq!(none.unwrap(), RegistryAuth::Anonymous);
        let error = found(Err(failure("a password")), "ghcr.io").unwrap_err().to_string();
        assert_eq!(error, "docker-credential-x failed: locked");
    }
}
