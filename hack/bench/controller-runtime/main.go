// The peer for the comparison in runtime-bench: a Memcached operator on Go's controller-runtime, tuned as its community advises.
// It accepts the flags that runtime-bench passes to the operators of this repository.
package main

import (
	"flag"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "run" {
		return fmt.Errorf("usage: %s run [flags]", os.Args[0])
	}
	elects := flag.Bool("leader-elect", false, "wait for the lease before working")
	namespace := flag.String("leader-election-namespace", "", "where the lease is")
	probes := flag.String("health-probe-bind-address", ":8081", "where /healthz and /readyz are")
	metrics := flag.String("metrics-bind-address", ":8080", "where /metrics is")
	_ = flag.String("operators", "memcached", "taken for the sake of runtime-bench; there is only one")
	_ = flag.Bool("enable-webhooks", false, "taken for the sake of runtime-bench; there are none")
	if err := flag.CommandLine.Parse(arguments[1:]); err != nil {
		return err
	}
	ctrl.SetLogger(zap.New()) // as in production: JSON, sampled, info

	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := addToScheme(scheme); err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	ours := cache.ByObject{Label: k8slabels.SelectorFromSet(k8slabels.Set{managedBy: peer})}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: *metrics},
		HealthProbeBindAddress:        *probes,
		LeaderElection:                *elects,
		LeaderElectionID:              "controller-runtime-peer",
		LeaderElectionNamespace:       *namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			// The cache has only children of this operator, without their managedFields.
			ByObject: map[client.Object]cache.ByObject{
				&appsv1.Deployment{}: ours, &corev1.Service{}: ours, &policyv1.PodDisruptionBudget{}: ours,
			},
			DefaultTransform: cache.TransformStripManagedFields(),
		},
	})
	if err != nil {
		return err
	}
	for _, add := range []func(string, healthz.Checker) error{manager.AddHealthzCheck, manager.AddReadyzCheck} {
		if err := add("ping", healthz.Ping); err != nil {
			return err
		}
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Memcached{}).Owns(&appsv1.Deployment{}).Owns(&corev1.Service{}).Owns(&policyv1.PodDisruptionBudget{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, EnableWarmup: ptr.To(true)}).
		Complete(&reconciler{Client: manager.GetClient(), events: manager.GetEventRecorder("memcached")})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
