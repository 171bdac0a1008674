//! Writes kubeconfigs: the address of a cluster and the credentials of one user.

use serde_json::json;

use crate::pki::Pair;

/// A kubeconfig with one cluster, one user and one context, all with this name. It is JSON, which is valid YAML.
pub(crate) fn render(name: &str, server: &str, authority: &str, user: &Pair) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": base64(authority)}}],
        "users": [{"name": name, "user": {
            "client-certificate-data": base64(&user.certificate),
            "client-key-data": base64(&user.key),
        }}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    });
    format!("{config:#}\n")
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bytes = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)];
        let bits = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        for n in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_standard_with_padding() {
        for (text, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(text), expected);
        }
    }

    #[test]
    fn current_context_points_to_server() {
        let user = Pair { certificate: "C".into(), key: "K".into() };
        let config: serde_json::Value =
            serde_json::from_str(&render("dev", "https://127.0.0.1:1", "A", &user)).unwrap();
        assert_eq!(config["current-context"], config["contexts"][0]["name"]);
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
    }
}
