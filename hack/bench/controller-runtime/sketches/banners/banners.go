// Package banners shows a text of a ConfigMap in the colour of a Theme, on controller-runtime. A server on each node serves it, behind
// an Ingress if the ConfigMap names a host. It does what shared/manager/examples/example-operators/src/banners.rs does. Only the lines
// are compared: nothing runs it.
package banners

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Banner is a text in the colour of a theme.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
type Banner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BannerSpec   `json:"spec"`
	Status BannerStatus `json:"status,omitempty"`
}

type BannerSpec struct {
	// The ConfigMap with the text, under the key text, and perhaps with a host.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Config string `json:"config"`
	// The Theme with the colour.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Theme string `json:"theme"`
}

type BannerStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// +kubebuilder:object:root=true
type BannerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Banner `json:"items"`
}

// Theme is a colour. Users write it.
// +kubebuilder:object:root=true
type Theme struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ThemeSpec `json:"spec"`
}

type ThemeSpec struct {
	// +kubebuilder:validation:MaxLength=20
	Colour string `json:"colour"`
}

// +kubebuilder:object:root=true
type ThemeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Theme `json:"items"`
}

var GroupVersion = schema.GroupVersion{Group: "examples.example.com", Version: "v1"}

func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Banner{}, &BannerList{}, &Theme{}, &ThemeList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

const (
	configField = "spec.config"
	themeField  = "spec.theme"
)

type Reconciler struct{ client.Client }

// +kubebuilder:rbac:groups=examples.example.com,resources=banners;themes,verbs=get;list;watch
// +kubebuilder:rbac:groups=examples.example.com,resources=banners/status,verbs=patch
// +kubebuilder:rbac:groups=examples.example.com,resources=banners/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps;services,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch;create;update;delete
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	fields := map[string]func(*Banner) string{
		configField: func(banner *Banner) string { return banner.Spec.Config },
		themeField:  func(banner *Banner) string { return banner.Spec.Theme },
	}
	for name, field := range fields {
		values := func(object client.Object) []string { return []string{field(object.(*Banner))} }
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &Banner{}, name, values); err != nil {
			return err
		}
	}
	if err := ctrl.NewWebhookManagedBy(mgr, &Theme{}).WithValidator(&guard{r.Client}).Complete(); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&Banner{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&corev1.Service{}).
		Owns(&appsv1.DaemonSet{}).
		Owns(&networkingv1.Ingress{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.bannersBy(configField))).
		Watches(&Theme{}, handler.EnqueueRequestsFromMapFunc(r.bannersBy(themeField))).
		Complete(r)
}

// bannersBy returns the Banners that name an object in this field.
func (r *Reconciler) bannersBy(field string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		banners := &BannerList{}
		in, by := client.InNamespace(object.GetNamespace()), client.MatchingFields{field: object.GetName()}
		if err := r.List(ctx, banners, in, by); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot list Banners")
			return nil
		}
		var requests []reconcile.Request
		for i := range banners.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&banners.Items[i])})
		}
		return requests
	}
}

// designers is the group of the users who may change the colour of a Theme that a Banner shows.
const designers = "designers"

// guard protects a Theme as long as a Banner shows it: only designers change its colour, and no user deletes it.
// +kubebuilder:webhook:path=/validate-examples-example-com-v1-theme,mutating=false,failurePolicy=fail,sideEffects=None,groups=examples.example.com,resources=themes,verbs=update;delete,versions=v1,name=theme.examples.example.com,admissionReviewVersions=v1
type guard struct{ client.Reader }

func (*guard) ValidateCreate(context.Context, *Theme) (admission.Warnings, error) { return nil, nil }

func (g *guard) ValidateUpdate(ctx context.Context, old, theme *Theme) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	if err != nil || old.Spec.Colour == theme.Spec.Colour || theme.DeletionTimestamp != nil {
		return nil, err
	}
	banner, err := g.shows(ctx, theme)
	if err != nil || banner == "" {
		return nil, err
	}
	if !slices.Contains(request.UserInfo.Groups, designers) {
		return nil, fmt.Errorf("Banner %q shows it, and %s is no designer", banner, request.UserInfo.Username)
	}
	if ptr.Deref(request.DryRun, false) {
		return nil, nil
	}
	return admission.Warnings{fmt.Sprintf("Banner %q changes its colour", banner)}, nil
}

func (g *guard) ValidateDelete(ctx context.Context, theme *Theme) (admission.Warnings, error) {
	request, err := admission.RequestFromContext(ctx)
	// A namespace that is deleted takes its Themes with it.
	if err != nil || request.UserInfo.Username == "system:serviceaccount:kube-system:namespace-controller" {
		return nil, err
	}
	banner, err := g.shows(ctx, theme)
	if err == nil && banner != "" {
		err = fmt.Errorf("Banner %q shows this theme", banner)
	}
	return nil, err
}

// shows returns the name of a Banner that shows the Theme, or nothing.
func (g *guard) shows(ctx context.Context, theme *Theme) (string, error) {
	banners := &BannerList{}
	in, by := client.InNamespace(theme.Namespace), client.MatchingFields{themeField: theme.Name}
	if err := g.List(ctx, banners, in, by); err != nil || len(banners.Items) == 0 {
		return "", err
	}
	return banners.Items[0].Name, nil
}

func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	banner := &Banner{}
	if err := r.Get(ctx, request.NamespacedName, banner); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	config, theme := &corev1.ConfigMap{}, &Theme{}
	err := r.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: banner.Spec.Config}, config)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	text, is := config.Data["text"]
	if !is {
		return ctrl.Result{}, r.report(ctx, banner, "NoText", fmt.Sprintf("ConfigMap %q has no text", banner.Spec.Config))
	}
	err = r.Get(ctx, client.ObjectKey{Namespace: request.Namespace, Name: banner.Spec.Theme}, theme)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil {
		return ctrl.Result{}, r.report(ctx, banner, "NoTheme", fmt.Sprintf("Theme %q is not there", banner.Spec.Theme))
	}
	meta := metav1.ObjectMeta{Namespace: banner.Namespace, Name: banner.Name + "-page"}
	page := &corev1.ConfigMap{ObjectMeta: meta}
	if err := r.keep(ctx, banner, page, func() {
		html := fmt.Sprintf("<body style=\"color: %s\">%s</body>", theme.Spec.Colour, text)
		page.Data = map[string]string{"index.html": html}
	}); err != nil {
		return ctrl.Result{}, err
	}
	labels := map[string]string{"page": meta.Name}
	service := &corev1.Service{ObjectMeta: meta}
	if err := r.keep(ctx, banner, service, func() {
		service.Spec.Selector = labels
		service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}}
	}); err != nil {
		return ctrl.Result{}, err
	}
	servers := &appsv1.DaemonSet{ObjectMeta: meta}
	if err := r.keep(ctx, banner, servers, func() { serve(servers, labels) }); err != nil {
		return ctrl.Result{}, err
	}
	ingress := &networkingv1.Ingress{ObjectMeta: meta}
	if host, is := config.Data["host"]; is {
		err = r.keep(ctx, banner, ingress, func() { route(ingress, host) })
	} else {
		err = r.drop(ctx, banner, ingress)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	ready, wanted := servers.Status.NumberReady, servers.Status.DesiredNumberScheduled
	switch {
	case servers.Status.ObservedGeneration != servers.Generation || servers.Generation == 0:
		err = r.report(ctx, banner, "StillStarting", "The servers are not scheduled yet")
	case ready < wanted:
		err = r.report(ctx, banner, "StillStarting", fmt.Sprintf("%d of %d servers are ready", ready, wanted))
	default:
		err = r.report(ctx, banner, "Ready", fmt.Sprintf("%d characters are shown", len([]rune(text))))
	}
	return ctrl.Result{}, err
}

// serve sets what we want of the servers, and leaves what the API server has defaulted.
func serve(set *appsv1.DaemonSet, labels map[string]string) {
	set.Spec.MinReadySeconds = 5
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels = labels
	pod := &set.Spec.Template.Spec
	if len(pod.Containers) != 1 {
		pod.Containers = make([]corev1.Container, 1)
	}
	web := &pod.Containers[0]
	web.Name, web.Image = "web", "nginx:1"
	web.VolumeMounts = []corev1.VolumeMount{{Name: "page", MountPath: "/usr/share/nginx/html"}}
	source := &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: set.Name}, DefaultMode: ptr.To(corev1.ConfigMapVolumeSourceDefaultMode),
	}
	pod.Volumes = []corev1.Volume{{Name: "page", VolumeSource: corev1.VolumeSource{ConfigMap: source}}}
}

func route(ingress *networkingv1.Ingress, host string) {
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: ingress.Name, Port: networkingv1.ServiceBackendPort{Name: "http"},
	}}
	path := networkingv1.HTTPIngressPath{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: backend}
	rule := networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{path}}
	ingress.Spec.Rules = []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &rule}}}
}

// keep creates the child, or changes what mutate changes.
func (r *Reconciler) keep(ctx context.Context, banner *Banner, child client.Object, mutate func()) error {
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		mutate()
		return controllerutil.SetControllerReference(banner, child, r.Scheme())
	})
	return err
}

// drop deletes a child that is no longer wanted.
func (r *Reconciler) drop(ctx context.Context, banner *Banner, child client.Object) error {
	if err := r.Get(ctx, client.ObjectKeyFromObject(child), child); err != nil || !metav1.IsControlledBy(child, banner) {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(r.Delete(ctx, child))
}

func (r *Reconciler) report(ctx context.Context, banner *Banner, reason, message string) error {
	before := banner.DeepCopy()
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: banner.Generation,
	}
	if reason == "Ready" {
		condition.Status = metav1.ConditionTrue
	}
	banner.Status.ObservedGeneration = banner.Generation
	apimeta.SetStatusCondition(&banner.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(before.Status, banner.Status) {
		return nil
	}
	return r.Status().Patch(ctx, banner, client.MergeFrom(before))
}
