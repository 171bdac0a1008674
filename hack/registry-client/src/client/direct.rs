//! Requests that `oci-client` lacks: whether a push is allowed, and what refers to a manifest.

use anyhow::Result;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, LINK, LOCATION};
use http::{Method, StatusCode};
use images::Digest;
use oci_client::client::ClientProtocol;
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE;
use oci_client::token_cache::RegistryTokenType;
use oci_client::{Reference, RegistryOperation};
use reqwest::{RequestBuilder, Response, Url};

use super::{AGENT, ANSWER, CONNECT, Client, Options, protocol};
use crate::error::Error;

/// The most pages of a list. A registry whose pages never end gives more.
const MAX_PAGES: usize = 1000;

impl Client {
    /// Begins an upload. Returns where its content would go, if the registry says so.
    pub(super) async fn begin_upload(&self, reference: &Reference) -> Result<Option<Url>, Error> {
        let url = self.url(reference, "blobs/uploads/")?;
        let begin = self.request(Method::POST, url, reference, RegistryOperation::Push).await;
        let answer = begin.header(CONTENT_LENGTH, 0).send().await.map_err(OciDistributionError::from)?;
        if !answer.status().is_success() {
            return Err(unexpected(answer).await.into());
        }
        let location = answer.headers().get(LOCATION).and_then(|location| location.to_str().ok());
        Ok(location.and_then(|location| answer.url().join(location).ok()))
    }

    /// The manifests that refer to this one, in one index for each page; `None` if the registry has no API for it.
    pub(super) async fn ask_for_referrers(
        &self,
        reference: &Reference,
        subject: &Digest,
    ) -> Result<Option<Vec<Bytes>>, Error> {
        let registry = Url::parse(&self.address(reference)).map(|address| address.origin());
        let is_of_registry = |url: &Url| registry.as_ref().is_ok_and(|registry| *registry == url.origin());
        let mut pages = Vec::new();
        let mut next = Some(self.url(reference, &format!("referrers/{subject}"))?);
        while let Some(url) = next {
            if pages.len() == MAX_PAGES || !is_of_registry(&url) {
                let page = pages.len() + 1;
                let what = format!("page {page} of what refers to {subject}, on another host or without an end: {url}");
                return Err(OciDistributionError::SpecViolationError(what).into());
            }
            let list = self.request(Method::GET, url, reference, RegistryOperation::Pull).await;
            let answer =
                list.header(ACCEPT, OCI_IMAGE_INDEX_MEDIA_TYPE).send().await.map_err(OciDistributionError::from)?;
            // GHCR has no such API. It sends clients to pages of its site, which answer as they like. But a registry that has
            // given one page has the API.
            let (of_registry, may_lack_api) = (is_of_registry(answer.url()), pages.is_empty());
            match answer.status() {
                _ if may_lack_api && !of_registry => return Ok(None),
                StatusCode::OK if of_registry => {
                    let mut links = answer.headers().get_all(LINK).iter().filter_map(|link| link.to_str().ok());
                    let target = links.find_map(next_page).map(|target| answer.url().join(target)).transpose();
                    let unreadable = |error| OciDistributionError::UrlParseError(format!("the next page: {error}"));
                    next = target.map_err(unreadable)?;
                    pages.push(answer.bytes().await.map_err(OciDistributionError::from)?);
                }
                status if may_lack_api && means_no_referrers_api(status) => return Ok(None),
                _ => return Err(unexpected(answer).await.into()),
            }
        }
        Ok(Some(pages))
    }

    /// The address of something in the repository.
    fn url(&self, reference: &Reference, path: &str) -> Result<Url, OciDistributionError> {
        let url = format!("{}/v2/{}/{path}", self.address(reference), reference.repository());
        Url::parse(&url).map_err(|error| OciDistributionError::UrlParseError(format!("{url}: {error}")))
    }

    /// The address of the registry, such as `https://ghcr.io`.
    pub(super) fn address(&self, reference: &Reference) -> String {
        let scheme = match protocol(&self.registry, self.options.plain_http) {
            ClientProtocol::Http => "http",
            ClientProtocol::Https | ClientProtocol::HttpsExcept(_) => "https",
        };
        format!("{scheme}://{}", reference.resolve_registry())
    }

    /// A request that the library lacks. Only the registry itself gets the token, not another host that it names.
    pub(super) async fn request(
        &self,
        method: Method,
        url: Url,
        reference: &Reference,
        operation: RegistryOperation,
    ) -> RequestBuilder {
        let is_registry = Url::parse(&self.address(reference)).is_ok_and(|registry| registry.origin() == url.origin());
        let request = self.direct.request(method, url);
        let tokens = self.tokens.lock().await;
        let token = tokens.get(&(reference.repository().to_owned(), operation)).and_then(Option::as_ref);
        match token.filter(|_| is_registry) {
            Some(RegistryTokenType::Bearer(token)) => request.bearer_auth(token.token()),
            Some(RegistryTokenType::Basic(user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }
}

/// The client for requests that the library lacks, with the settings of `configuration`.
pub(super) fn client(options: &Options) -> Result<reqwest::Client> {
    let certificate = |pem: &Vec<u8>| reqwest::Certificate::from_pem(pem);
    let authorities = options.authorities.iter().map(certificate).collect::<Result<Vec<_>, _>>()?;
    let client = reqwest::Client::builder().tls_certs_merge(authorities).user_agent(AGENT);
    Ok(client.connect_timeout(CONNECT).read_timeout(ANSWER).build()?)
}

/// The error for an answer that is none to the request.
async fn unexpected(answer: Response) -> OciDistributionError {
    let (url, code) = (answer.url().to_string(), answer.status().as_u16());
    match answer.text().await {
        Ok(message) => OciDistributionError::ServerError { code, url, message },
        Err(error) => error.into(),
    }
}

/// The address of the next page in a header `Link`, such as `</v2/app/referrers/sha256:…?last=…>; rel="next"`.
fn next_page(links: &str) -> Option<&str> {
    let (target, rest) = links.trim_start().strip_prefix('<')?.split_once('>')?;
    // One header may have several links with commas between them.
    let (parameters, others) = rest.split_at(rest.find('<').unwrap_or(rest.len()));
    let is_next = |parameter: &str| matches!(parameter.trim(), "rel=\"next\"" | "rel=next");
    let parameters = parameters.trim_end().trim_end_matches(',');
    if parameters.split(';').any(is_next) { Some(target) } else { next_page(others) }
}

/// Whether a registry that answers so has no API for referrers. The specification prescribes 404. Registries that are older than the
/// API also answer 400, 405 or 501, and Artifactory answers 406; the request itself gives no reason for any of these. A registry
/// in trouble (429, 5xx) may have the API, and a refusal (401, 403) says nothing about it.
fn means_no_referrers_api(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_FOUND
            | StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::NOT_IMPLEMENTED
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_to_the_next_page_leads_there() {
        for link in [
            "</v2/a?n=1,2&last=b>; rel=\"next\"",
            " </v2/a?n=1,2&last=b>;title=x;rel=next",
            "</v2/a?n=1,2&last=b>; rel=\"next\", </v2/a>; rel=\"prev\"",
            "</v2/a>; rel=\"prev\" , </v2/a?n=1,2&last=b>; rel=\"next\"",
        ] {
            assert_eq!(next_page(link), Some("/v2/a?n=1,2&last=b"), "{link}");
        }
        for link in ["</v2/a>; rel=\"prev\"", "</v2/a>", "/v2/a; rel=\"next\"", "</v2/a; rel=\"next\"", ""] {
            assert_eq!(next_page(link), None, "{link}");
        }
    }

    #[test]
    fn only_an_answer_about_the_request_itself_means_no_referrers_api() {
        let means = |code| means_no_referrers_api(StatusCode::from_u16(code).unwrap());
        for code in [400, 404, 405, 406, 501] {
            assert!(means(code), "{code}");
        }
        for code in [200, 401, 403, 408, 429, 500, 502, 503, 504] {
            assert!(!means(code), "{code}");
        }
    }
}
