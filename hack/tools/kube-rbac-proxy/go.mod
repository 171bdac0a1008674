module tools/kube-rbac-proxy

go 1.26.0

tool github.com/brancz/kube-rbac-proxy/cmd/kube-rbac-proxy

require github.com/brancz/kube-rbac-proxy v0.21.0 // indirect
