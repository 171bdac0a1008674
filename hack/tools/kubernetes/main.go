// Every Kubernetes component in one binary: the name it is called by (a symlink), or else its first argument, picks one.
//
// This is upstream's code behind one main instead of six: each command is built by upstream's own constructor at the
// version that go.mod pins, and does what upstream's binary of that name does. One link instead of six saves time and
// 350 MB.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

var components = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 newKubelet,
}

func main() {
	name := filepath.Base(os.Args[0])
	if components[name] == nil && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	component := components[name]
	if component == nil {
		fmt.Fprintln(os.Stderr, "usage: kubernetes COMPONENT [FLAGS], where COMPONENT is one of:")
		for name := range components {
			fmt.Fprintln(os.Stderr, " ", name)
		}
		os.Exit(2)
	}
	if name == "kubectl" { // as upstream's kubectl does it: its errors need no wrapping
		if err := cli.RunNoErrOutput(component()); err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(cli.Run(component()))
}
