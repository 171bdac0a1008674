// CoreDNS with what test clusters need: the plugins that a cluster of this repository uses, which answers for names of the cluster
// alone, and those that kubeadm configures, for the nodes of kind.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func init() {
	// The order in which a query passes them.
	dnsserver.Directives = []string{
		"reload", "bind", "health", "ready", "prometheus", "errors", "log", "cache", "loadbalance", "kubernetes", "loop", "forward",
	}
}

func main() { coremain.Run() }
