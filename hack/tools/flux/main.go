// Applies a folder of manifests as the kustomize-controller of Flux does, and then prunes what an earlier folder had and this one
// lacks: with Flux's own library, and with the exclusions of that controller.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"
)

// The API group of the kustomize-controller, the prefix of its labels and annotations.
const group = "kustomize.toolkit.fluxcd.io"

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: flux MANIFESTS [EARLIER-MANIFESTS]   (in the cluster of KUBECONFIG)")
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

func run(manifests string, earlier []string) error {
	crlog.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	ctx, owner := context.Background(), ssa.Owner{Field: "kustomize-controller", Group: group}
	manager := ssa.NewResourceManager(api, nil, owner)
	wanted, err := read(manifests)
	if err != nil {
		return err
	}
	manager.SetOwnerLabels(wanted, "operators", "flux-system")
	for _, object := range wanted { // without waiting for health, which would need nodes
		if _, err := manager.Apply(ctx, object, ssa.DefaultApplyOptions()); err != nil {
			return err
		}
	}
	for _, file := range earlier {
		former, err := read(file)
		if err != nil {
			return err
		}
		options := ssa.DefaultDeleteOptions()
		options.Inclusions = manager.GetOwnerLabels("operators", "flux-system")
		options.Exclusions = map[string]string{group + "/prune": "disabled", group + "/reconcile": "disabled"}
		changes, err := manager.DeleteAll(ctx, without(former, wanted), options)
		if err != nil {
			return err
		}
		for _, entry := range changes.Entries {
			fmt.Println(entry.String())
		}
	}
	return nil
}

func read(path string) ([]*unstructured.Unstructured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return utils.ReadObjects(file)
}

// The objects of `former` that are not in `wanted`: what the inventory of a Kustomization lists as stale.
func without(former, wanted []*unstructured.Unstructured) []*unstructured.Unstructured {
	known := map[string]bool{}
	for _, object := range wanted {
		known[utils.FmtUnstructured(object)] = true
	}
	var stale []*unstructured.Unstructured
	for _, object := range former {
		if !known[utils.FmtUnstructured(object)] {
			stale = append(stale, object)
		}
	}
	return stale
}
