package certificates

// These functions are what controller-gen makes of the types, so they are not counted.

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func (in *Certificate) DeepCopy() *Certificate {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.DNSNames = append([]string(nil), in.Spec.DNSNames...)
	out.Status.Conditions = append([]metav1.Condition(nil), in.Status.Conditions...)
	out.Status.NotAfter = in.Status.NotAfter.DeepCopy()
	return &out
}

func (in *Certificate) DeepCopyObject() runtime.Object { return in.DeepCopy() }

func (in *CertificateList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Certificate, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return &out
}

func (in *Issuer) DeepCopyObject() runtime.Object {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (in *IssuerList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Issuer, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopyObject().(*Issuer)
	}
	return &out
}
