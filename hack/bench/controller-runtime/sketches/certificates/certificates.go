// Package certificates is the Certificate of cert-manager, with an Issuer that is an authority in a Secret, on controller-runtime. It
// does what hack/bench/sketches/src/certificates.rs does. Only the lines are compared: nothing runs it.
package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Certificate is a certificate in a Secret.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   CertificateSpec   `json:"spec"`
	Status CertificateStatus `json:"status,omitempty"`
}

type CertificateSpec struct {
	// The Secret with the certificate and its key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
	// The Issuer that signs it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Issuer string `json:"issuer"`
	// The names that it is for.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	DNSNames []string `json:"dnsNames"`
	// How long it is valid.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=87600
	DurationHours int32 `json:"durationHours"`
	// How long before its end it is renewed.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=87600
	RenewBeforeHours int32 `json:"renewBeforeHours"`
}

type CertificateStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	// When the certificate ends.
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

// +kubebuilder:object:root=true
type CertificateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Certificate `json:"items"`
}

// Issuer is an authority that signs certificates.
// +kubebuilder:object:root=true
type Issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IssuerSpec `json:"spec"`
}

type IssuerSpec struct {
	// The Secret with the certificate of the authority and its key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SecretName string `json:"secretName"`
}

// +kubebuilder:object:root=true
type IssuerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Issuer `json:"items"`
}

var GroupVersion = schema.GroupVersion{Group: "sketches.example.com", Version: "v1"}

func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Certificate{}, &CertificateList{}, &Issuer{}, &IssuerList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Pair is a certificate and its key, in PEM. The code that makes and reads certificates is not counted.
type Pair struct{ Certificate, Key []byte }

type Reconciler struct {
	client.Client
	// Parse returns nil for what is no certificate.
	Parse func(Pair) *x509.Certificate
	Sign  func(authority Pair, name string, dnsNames []string, from time.Time, lifetime time.Duration) (Pair, error)
}

const (
	issuerField = "spec.issuer"
	// How soon to look again for a Secret that is missing.
	again = time.Minute
)

// +kubebuilder:rbac:groups=sketches.example.com,resources=certificates;issuers,verbs=get;list;watch
// +kubebuilder:rbac:groups=sketches.example.com,resources=certificates/status,verbs=patch
// +kubebuilder:rbac:groups=sketches.example.com,resources=certificates/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	byIssuer := func(object client.Object) []string { return []string{object.(*Certificate).Spec.Issuer} }
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &Certificate{}, issuerField, byIssuer); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Certificate{}).
		Owns(&corev1.Secret{}).
		Watches(&Issuer{}, handler.EnqueueRequestsFromMapFunc(r.certificatesOf)).
		Complete(r)
}

func (r *Reconciler) certificatesOf(ctx context.Context, issuer client.Object) []reconcile.Request {
	certificates := &CertificateList{}
	in, by := client.InNamespace(issuer.GetNamespace()), client.MatchingFields{issuerField: issuer.GetName()}
	if err := r.List(ctx, certificates, in, by); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list Certificates")
		return nil
	}
	var requests []reconcile.Request
	for i := range certificates.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&certificates.Items[i])})
	}
	return requests
}

func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	certificate := &Certificate{}
	if err := r.Get(ctx, request.NamespacedName, certificate); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	spec := certificate.Spec
	if spec.RenewBeforeHours >= spec.DurationHours {
		says := "spec.renewBeforeHours must be less than durationHours"
		return ctrl.Result{}, r.report(ctx, certificate, "InvalidSpec", says, certificate.Status.NotAfter)
	}
	issuer := &Issuer{}
	err := r.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: spec.Issuer}, issuer)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.report(ctx, certificate, "NoIssuer", fmt.Sprintf("Issuer %q is not there", spec.Issuer), nil)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	stored := &corev1.Secret{}
	err = r.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: issuer.Spec.SecretName}, stored)
	authority := pairOf(stored)
	signer := r.Parse(authority)
	if client.IgnoreNotFound(err) == nil && signer == nil {
		return ctrl.Result{RequeueAfter: again}, r.report(ctx, certificate, "NoAuthority", "the Issuer cannot sign", nil)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	before := time.Duration(spec.RenewBeforeHours) * time.Hour
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace, Name: spec.SecretName}}
	var end time.Time
	_, err = controllerutil.CreateOrUpdate(ctx, r.Client, secret, func() error {
		pair := pairOf(secret)
		if parsed := r.Parse(pair); parsed == nil || !isGood(parsed, signer, spec.DNSNames, before) {
			lifetime := time.Duration(spec.DurationHours) * time.Hour
			renewed, err := r.Sign(authority, certificate.Name, spec.DNSNames, time.Now(), lifetime)
			if err != nil {
				return err
			}
			pair = renewed
		}
		end = r.Parse(pair).NotAfter
		secret.Type = corev1.SecretTypeTLS
		secret.Data = map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key}
		return controllerutil.SetControllerReference(certificate, secret, r.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	notAfter := metav1.NewTime(end)
	err = r.report(ctx, certificate, "Ready", "the certificate is valid", &notAfter)
	return ctrl.Result{RequeueAfter: time.Until(end.Add(-before))}, err
}

func pairOf(secret *corev1.Secret) Pair {
	return Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]}
}

func isGood(certificate, signer *x509.Certificate, names []string, before time.Duration) bool {
	return sets.New(certificate.DNSNames...).Equal(sets.New(names...)) &&
		certificate.CheckSignatureFrom(signer) == nil &&
		time.Until(certificate.NotAfter) > before
}

func (r *Reconciler) report(ctx context.Context, certificate *Certificate, reason, message string, end *metav1.Time) error {
	before := certificate.DeepCopy()
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: certificate.Generation,
	}
	if reason == "Ready" {
		condition.Status = metav1.ConditionTrue
	}
	certificate.Status.ObservedGeneration, certificate.Status.NotAfter = certificate.Generation, end
	apimeta.SetStatusCondition(&certificate.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(before.Status, certificate.Status) {
		return nil
	}
	return r.Status().Patch(ctx, certificate, client.MergeFrom(before))
}
