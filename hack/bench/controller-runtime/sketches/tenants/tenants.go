// Package tenants is a cluster-scoped kind that makes namespaces with quotas, accounts, roles and bindings, on controller-runtime. It
// does what shared/manager/examples/example-operators/src/tenants.rs does. Only the lines are compared: nothing runs it.
package tenants

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
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

// Tenant is namespaces with a quota and an account.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec"`
	Status TenantStatus `json:"status,omitempty"`
}

type TenantSpec struct {
	// The greatest number of pods in each namespace.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Pods int64 `json:"pods"`
}

type TenantStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tenant `json:"items"`
}

var GroupVersion = schema.GroupVersion{Group: "examples.example.com", Version: "v1"}

func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Tenant{}, &TenantList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

const (
	// Users add a namespace to a tenant by this label.
	tenantLabel = "examples.example.com/tenant"
	// Our children have this label.
	ownerLabel = "examples.example.com/made-for"
)

type Reconciler struct{ client.Client }

// +kubebuilder:rbac:groups=examples.example.com,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups=examples.example.com,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups=examples.example.com,resources=tenants/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups="",resources=resourcequotas;serviceaccounts,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	tenantOf := func(_ context.Context, namespace client.Object) []reconcile.Request {
		tenant, is := namespace.GetLabels()[tenantLabel]
		if !is {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: tenant}}}
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Tenant{}).
		Owns(&corev1.Namespace{}).
		Owns(&corev1.ResourceQuota{}).
		Owns(&corev1.ServiceAccount{}).
		Owns(&rbacv1.Role{}).
		Owns(&rbacv1.RoleBinding{}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(tenantOf)).
		Complete(r)
}

func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	tenant := &Tenant{}
	if err := r.Get(ctx, request.NamespacedName, tenant); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Name}}
	if err := r.keep(ctx, tenant, own, func() {}); err != nil {
		return ctrl.Result{}, err
	}
	labelled := &corev1.NamespaceList{}
	if err := r.List(ctx, labelled, client.MatchingLabels{tenantLabel: tenant.Name}); err != nil {
		return ctrl.Result{}, err
	}
	namespaces := sets.New(tenant.Name)
	for i := range labelled.Items {
		if labelled.Items[i].DeletionTimestamp.IsZero() {
			namespaces.Insert(labelled.Items[i].Name)
		}
	}
	kinds := []client.ObjectList{
		&corev1.ResourceQuotaList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleBindingList{}, &rbacv1.RoleList{},
	}
	for _, kind := range kinds {
		if err := r.leave(ctx, tenant, kind, namespaces); err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, namespace := range sets.List(namespaces) {
		if err := r.furnish(ctx, tenant, namespace); err != nil {
			return ctrl.Result{}, err
		}
	}
	says := fmt.Sprintf("%d namespaces with %d pods each", namespaces.Len(), tenant.Spec.Pods)
	return ctrl.Result{}, r.report(ctx, tenant, says)
}

// furnish writes the children in one namespace.
func (r *Reconciler) furnish(ctx context.Context, tenant *Tenant, namespace string) error {
	within := metav1.ObjectMeta{Namespace: namespace, Name: tenant.Name}
	quota := &corev1.ResourceQuota{ObjectMeta: within}
	if err := r.keep(ctx, tenant, quota, func() {
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(tenant.Spec.Pods, resource.DecimalSI)}
	}); err != nil {
		return err
	}
	if err := r.keep(ctx, tenant, &corev1.ServiceAccount{ObjectMeta: within}, func() {}); err != nil {
		return err
	}
	role := &rbacv1.Role{ObjectMeta: within}
	if err := r.keep(ctx, tenant, role, func() {
		role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch"}}}
	}); err != nil {
		return err
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: within}
	return r.keep(ctx, tenant, binding, func() {
		binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: tenant.Name}
		binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: tenant.Name, Namespace: namespace}}
	})
}

// keep creates the child, or changes what mutate changes.
func (r *Reconciler) keep(ctx context.Context, tenant *Tenant, child client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		labels := child.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[ownerLabel] = tenant.Name
		child.SetLabels(labels)
		mutate()
		return controllerutil.SetControllerReference(tenant, child, r.Scheme())
	})
	return err
}

// leave deletes the children of a kind that are in none of these namespaces.
func (r *Reconciler) leave(ctx context.Context, tenant *Tenant, list client.ObjectList, namespaces sets.Set[string]) error {
	if err := r.List(ctx, list, client.MatchingLabels{ownerLabel: tenant.Name}); err != nil {
		return err
	}
	return apimeta.EachListItem(list, func(item runtime.Object) error {
		child := item.(client.Object)
		if namespaces.Has(child.GetNamespace()) || !metav1.IsControlledBy(child, tenant) {
			return nil
		}
		return client.IgnoreNotFound(r.Delete(ctx, child))
	})
}

func (r *Reconciler) report(ctx context.Context, tenant *Tenant, says string) error {
	before := tenant.DeepCopy()
	tenant.Status.ObservedGeneration = tenant.Generation
	apimeta.SetStatusCondition(&tenant.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: says, ObservedGeneration: tenant.Generation,
	})
	if equality.Semantic.DeepEqual(before.Status, tenant.Status) {
		return nil
	}
	return r.Status().Patch(ctx, tenant, client.MergeFrom(before))
}
