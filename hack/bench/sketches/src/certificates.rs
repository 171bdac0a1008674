//! The Certificate of cert-manager, with an Issuer that is an authority in a Secret: it keeps a certificate in another Secret, and
//! renews it in time.

use std::sync::Arc;

use certificates::{Certificate as Parsed, Pair, Validity};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{Action, Context, Controller, Error, Health, Manager, Operator, Report, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{Viewed, Whole, schemas};

/// A certificate in a Secret.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "sketches.example.com", version = "v1", kind = "Certificate", namespaced, status = "CertificateStatus")]
#[serde(rename_all = "camelCase")]
pub struct CertificateSpec {
    /// The Secret with the certificate and its key.
    #[schemars(length(min = 1, max = 253))]
    secret_name: String,
    /// The Issuer that signs it.
    #[schemars(length(min = 1, max = 253))]
    issuer: String,
    /// The names that it is for.
    #[schemars(length(min = 1, max = 50), inner(length(min = 1, max = 253)))]
    dns_names: Vec<String>,
    /// How long it is valid.
    #[schemars(range(min = 1, max = 87_600))]
    duration_hours: u32,
    /// How long before its end it is renewed.
    #[schemars(range(min = 0, max = 87_600))]
    renew_before_hours: u32,
}

/// The state of a Certificate.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct CertificateStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_handled_reconcile_at: Option<String>,
    #[schemars(schema_with = "schemas::conditions")]
    conditions: Vec<Condition>,
    /// When the certificate ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    not_after: Option<Timestamp>,
}
manager::standard_status!(CertificateStatus);

/// An authority that signs certificates.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "sketches.example.com", version = "v1", kind = "Issuer", namespaced)]
#[serde(rename_all = "camelCase")]
pub struct IssuerSpec {
    /// The Secret with the certificate of the authority and its key.
    #[schemars(length(min = 1, max = 253))]
    secret_name: String,
}

/// The part of an Issuer that the reconciler reads.
#[derive(Debug, PartialEq, Deserialize)]
pub struct IssuerView {
    spec: IssuerSpecView,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IssuerSpecView {
    secret_name: String,
}

impl Viewed for Issuer {
    type View = IssuerView;
}

/// The keys of a certificate and of its key in a Secret.
const KEYS: [&str; 2] = ["tls.crt", "tls.key"];

/// The operator of [`Certificate`].
#[derive(Debug)]
pub struct Certificates;

impl Operator for Certificates {
    fn name(&self) -> &'static str {
        "certificates"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Certificate::crd(), Issuer::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: sketches.example.com/v1, kind: Certificate, metadata: {name: shop}, spec: {secretName: shop,
          issuer: own, dnsNames: [shop.example.com], durationHours: 2160, renewBeforeHours: 720}}"
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(
            Controller::of::<Certificate>()
                .owns::<Whole<Secret>>()
                .watches_referenced::<Issuer>(|certificate| vec![certificate.spec.issuer.clone()])
                .reads::<Secret>()
                .reconcile(reconcile),
        );
    }
}

async fn reconcile(certificate: Arc<Certificate>, ctx: Context<Certificate>) -> Result<Action, Error> {
    let spec = &certificate.spec;
    if spec.renew_before_hours >= spec.duration_hours {
        let why = "must be less than durationHours".to_owned();
        return Err(Error::Invalid { field: "spec.renewBeforeHours".to_owned(), why });
    }
    let Some(issuer) = ctx.get::<Issuer>(&spec.issuer) else {
        let says = format!("Issuer \"{}\" is not there", spec.issuer);
        ctx.apply_status(Health::of(Verdict::no("NoIssuer", says)).into()).await?;
        return Ok(Action::Done);
    };
    let Some(values) = ctx.secret(&issuer.spec.secret_name, &KEYS).await? else {
        // The Context has recorded what is missing, and says it in the status.
        ctx.apply_status(Health::of(Verdict::no("NoAuthority", "the Issuer cannot sign")).into()).await?;
        return Ok(Action::Done);
    };
    let authority = pair(|key| values.get(key).map(<[u8]>::to_vec));
    let signer = Parsed::read(&authority.certificate).map_err(|error| Error::Other(error.into()))?;
    let stored = ctx.get::<Whole<Secret>>(&spec.secret_name);
    let data = stored.as_ref().and_then(|secret| secret.data.as_ref());
    let present = pair(|key| Some(data?.get(key)?.0.clone()));
    let (now, before) = (ctx.now(), SignedDuration::from_hours(spec.renew_before_hours.into()));
    let is_good = |it: &Parsed| {
        it.covers(&spec.dns_names)
            && it.names.len() == spec.dns_names.len()
            && it.is_of(&signer)
            && it.not_after.duration_since(now) > before
    };
    let pair = if present.read().is_some_and(|it| is_good(&it)) {
        present
    } else {
        let validity = Validity { from: now, lifetime: SignedDuration::from_hours(spec.duration_hours.into()) };
        let renewed = authority.sign(&certificate.name_any(), &spec.dns_names, validity);
        renewed.map_err(|error| Error::Other(error.into()))?
    };
    let end = Parsed::read(&pair.certificate).map_err(|error| Error::Other(error.into()))?.not_after;
    let child = ctx.apply(Whole::from(secret(&spec.secret_name, pair))).await?;
    let (not_after, verdict) = if child.is_some_and(|it| ctx.is_in_sync::<Whole<Secret>>(&it)) {
        ctx.requeue_at(end.checked_sub(before).unwrap_or(end));
        (Some(end), Verdict::yes("Ready", "the certificate is valid"))
    } else {
        // The next reconcile may sign another pair. Until one is written, the status keeps the end of the last one.
        let stored = certificate.status.as_ref().and_then(|status| status.not_after);
        (stored, Verdict::no("NotWritten", "the Secret is not written"))
    };
    let status = CertificateStatus { not_after, ..CertificateStatus::default() };
    ctx.apply_status(Report { status, health: Health::of(verdict) }).await?;
    Ok(Action::Done)
}

/// The certificate and the key that a Secret has under [`KEYS`].
fn pair(value: impl Fn(&str) -> Option<Vec<u8>>) -> Pair {
    let [certificate, key] = KEYS.map(|key| String::from_utf8_lossy(&value(key).unwrap_or_default()).into_owned());
    Pair { certificate, key }
}

fn secret(name: &str, pair: Pair) -> Secret {
    let values = [pair.certificate, pair.key].map(|text| ByteString(text.into_bytes()));
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(KEYS.map(str::to_owned).into_iter().zip(values).collect()),
        ..Secret::default()
    }
}
