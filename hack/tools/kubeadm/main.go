// kubeadm, which kind runs in its nodes. Upstream's command behind a main of this module, so that go.mod pins it.
package main

import (
	"k8s.io/kubernetes/cmd/kubeadm/app"
	utilerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
)

func main() { utilerrors.HandleError(app.Run()) }
