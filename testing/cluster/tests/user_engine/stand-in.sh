#!/bin/sh
# Stands in for Docker, Podman, kind and kubectl, which are links to this file. It notes each call, and beside itself keeps which engine
# runs, the names of clusters, and the image of their nodes.
set -eu
here=$(dirname "$0")
name=$(basename "$0")
provider=
[ "$name" != kind ] || provider=" ($KIND_EXPERIMENTAL_PROVIDER)"
echo "$name$provider $*" >>"$here/calls"
for last; do :; done
case "$name $*" in
  "docker info" | "podman info") [ "$name" = "$(cat "$here/engine")" ] ;;
  "kind get clusters") cat "$here/clusters" ;;
  "kind create cluster --name "*) echo "$4" >"$here/clusters" && echo "$last" >"$here/image" ;;
  "kind export kubeconfig --name "*) echo '{}' >"$last" ;;
  "kind get nodes --name "*)
    if grep -qx "$4" "$here/clusters"; then
      printf '%s\n' "$4-control-plane" "$4-worker" "$4-worker2"
    fi
    ;;
  "kind load image-archive --name "*) ;;
  "kind delete cluster --name "*) : >"$here/clusters" ;;
  *" inspect --format={{.Config.Image}} "*) cat "$here/image" ;;
  *" inspect --format={{.State.Pid}} {{.Id}} "*) echo '4194305 on-another-machine' ;;
  "kubectl config view "*)
    echo '{"current-context": "kind-dev", "clusters": [{"cluster": {"server": "https://127.0.0.1:6443"}}]}'
    ;;
  "kubectl version "*) echo '{"serverVersion": {"gitVersion": "v1.31.14"}}' ;;
  *) echo "this call has no answer: $name $*" >&2 && exit 1 ;;
esac
