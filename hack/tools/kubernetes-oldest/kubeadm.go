package main

import (
	"os"

	"github.com/spf13/cobra"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app/cmd"
)

// kubeadm sets up the nodes of kind. It is in this binary, because its own module would pin all of this once more.
func init() {
	components["kubeadm"] = func() *cobra.Command { return kubeadm.NewKubeadmCommand(os.Stdin, os.Stdout, os.Stderr) }
}
