package main

import (
	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// This version takes no context.
func newKubelet() *cobra.Command { return kubelet.NewKubeletCommand() }
