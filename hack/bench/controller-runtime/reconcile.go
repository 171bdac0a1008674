package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type reconciler struct {
	client.Client
	events events.EventRecorder
}

// Reconcile creates the three children, corrects those that differ, and writes the status.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	memcached := &Memcached{}
	if err := r.Get(ctx, request.NamespacedName, memcached); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	current := deployment(memcached)
	differs := func(live, wanted *appsv1.Deployment) bool {
		return !equality.Semantic.DeepDerivative(wanted.Spec, live.Spec)
	}
	correct := func(live, wanted *appsv1.Deployment) { live.Spec = wanted.Spec }
	if err := ensure(ctx, r, memcached, current, differs, correct); err != nil {
		return ctrl.Result{}, err
	}
	if err := ensure(ctx, r, memcached, service(memcached),
		func(live, wanted *corev1.Service) bool {
			return !equality.Semantic.DeepDerivative(wanted.Spec, live.Spec)
		},
		func(live, wanted *corev1.Service) {
			live.Spec.Ports, live.Spec.Selector = wanted.Spec.Ports, wanted.Spec.Selector
		},
	); err != nil {
		return ctrl.Result{}, err
	}
	if err := ensure(ctx, r, memcached, disruptionBudget(memcached),
		func(live, wanted *policyv1.PodDisruptionBudget) bool {
			return !equality.Semantic.DeepDerivative(wanted.Spec, live.Spec)
		},
		func(live, wanted *policyv1.PodDisruptionBudget) { live.Spec = wanted.Spec },
	); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, memcached, current)
}

// ensure creates or corrects the child, and copies the live object to wanted.
func ensure[T client.Object](ctx context.Context, r *reconciler, owner *Memcached, wanted T, differs func(live, wanted T) bool, correct func(live, wanted T)) error {
	live := wanted.DeepCopyObject().(T)
	err := r.Get(ctx, client.ObjectKeyFromObject(wanted), live)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err != nil {
		if err := ctrl.SetControllerReference(owner, wanted, r.Scheme()); err != nil {
			return err
		}
		if err := r.Create(ctx, wanted); err != nil {
			return err
		}
		r.events.Eventf(owner, wanted, corev1.EventTypeNormal, "Created", "Create", "Created %T %q", wanted, wanted.GetName())
		return nil
	}
	if !metav1.IsControlledBy(live, owner) {
		return fmt.Errorf("%T %q has another owner", live, live.GetName())
	}
	if differs(live, wanted) {
		patch := client.MergeFrom(live.DeepCopyObject().(T))
		correct(live, wanted)
		if err := r.Patch(ctx, live, patch); err != nil {
			return err
		}
	}
	if deployment, is := any(wanted).(*appsv1.Deployment); is {
		any(live).(*appsv1.Deployment).DeepCopyInto(deployment)
	}
	return nil
}

func (r *reconciler) report(ctx context.Context, memcached *Memcached, deployment *appsv1.Deployment) error {
	before := memcached.DeepCopy()
	status := &memcached.Status
	status.ObservedGeneration = memcached.Generation
	status.Replicas, status.ReadyReplicas = deployment.Status.Replicas, deployment.Status.ReadyReplicas
	condition := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "Progressing", ObservedGeneration: memcached.Generation,
		Message: fmt.Sprintf("%d of %d nodes are ready", status.ReadyReplicas, memcached.Spec.Size),
	}
	isCurrent := deployment.Status.ObservedGeneration == deployment.Generation
	if isCurrent && deployment.Status.AvailableReplicas == memcached.Spec.Size {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Ready"
	}
	apimeta.SetStatusCondition(&status.Conditions, condition)
	if equality.Semantic.DeepEqual(before.Status, memcached.Status) {
		return nil
	}
	return r.Status().Patch(ctx, memcached, client.MergeFrom(before))
}
