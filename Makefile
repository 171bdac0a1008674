# The targets have the names that users of other operators know. Each only calls a task; the logic is in hack/xtask.

.DEFAULT_GOAL := help
# The URL at which the API server calls the webhooks of `make run`.
WEBHOOK_URL ?= https://127.0.0.1:9443
export ENABLE_WEBHOOKS ?= true
# The image that docker-build, docker-push, deploy, dist, image and package use.
IMG ?= localhost/operators/controller-manager:dev
# Set to false to deploy no booking server beside the operators.
BOOKING_SERVER ?= true
# What a release needs, for its error messages.
RELEASE = make release VERSION=1.2.3 REGISTRY=ghcr.io/team KEY=cosign.key
# What `make demo` needs, beside its Go programs: the task itself, what runs a cluster, and the programs of the image.
DEMO = xtask cluster-supervisor controller-manager metrics-proxy booking-server
# The folders of its Go programs in hack/tools, the largest first.
DEMO_TOOLS = kubernetes etcd containerd runc cni coredns helm
CRDS = $(wildcard charts/operators/files/*/crd-*.yaml)
VALUES = --image $(IMG) $(if $(filter false,$(BOOKING_SERVER)),--set bookingServer.enabled=false)

##@ General

.PHONY: help
help: ## Show this help
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try

# One call of cargo compiles everything, each crate once, and gives two processors work nearly all the time: while one compiles a
# large crate or links, the other compiles C and small crates. Go uses both as well. So compiling Kubernetes at the same time would
# save little, would need the memory of both, and would mix their progress. Only a download waits for the network. So in a fresh
# clone, Go downloads meanwhile. It prints nothing and keeps each complete module, and its build reports what failed.
.PHONY: demo
demo: ## Start a cluster, install the operators and a sample of each kind, and show the result
	@echo "The first time, this compiles the operators and then Kubernetes, which takes a quarter of an hour. It begins with the operators:"
	@if ! test -d "$${CARGO_TARGET_DIR:-target}"; then \
	  for tool in $(DEMO_TOOLS); do (cd hack/tools/$$tool && GOFLAGS= GOWORK=off go mod download); done >/dev/null 2>&1 & fi
	cargo build --locked --workspace $(DEMO:%=--bin %)
	cargo xtask demo

.PHONY: cluster-up
cluster-up: ## Start a cluster whose node runs pods, or use the one that runs already
	cargo xtask cluster up --nodes real

.PHONY: cluster-down
cluster-down: ## Stop that cluster
	cargo xtask cluster down

##@ Develop

.PHONY: test
test: ## Run every check, from format to end-to-end tests; installs what it needs
	cargo xtask test

.PHONY: nightly
nightly: ## Run the checks that take hours, such as all interferences, random worlds, mutants, releases, kind and benchmarks; ONLY=kind, SKIP=mutants
	cargo xtask nightly $(if $(ONLY),--only $(ONLY)) $(if $(SKIP),--skip $(SKIP))

.PHONY: mutants
mutants: ## Make small changes to the code and check that tests fail; a random sample, SEED=7 repeats one, SHARD=3/150 selects a part
	cargo xtask mutants $(if $(SHARD),--shard $(SHARD),$(if $(SEED),--seed $(SEED)))

.PHONY: test-e2e
test-e2e: ## Run the end-to-end tests only; E2E_CLUSTER=local, existing (your kubeconfig, with E2E_IMAGE=…) or kind; E2E_PROFILE=release
	cargo xtask test --only tools,images,tests --test e2e,chart --filter 'package(e2e)'

.PHONY: cleanup-test-e2e
cleanup-test-e2e: ## Remove what the end-to-end tests left on your own cluster, or in kind
	cargo xtask test --only clean-up

.PHONY: soak
soak: image ## Run the operators under random faults, and check memory and lost objects; MINUTES=120, SEED=7
	cargo run --package runtime-bench -- soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: generate
generate: ## Write the files that follow from the Rust types: CRDs, permissions, tables
	cargo xtask generate

.PHONY: manifests
manifests: generate ## Same as generate, under its usual name

##@ Build

.PHONY: image
image: ## Build the image without a daemon, and its bill of materials
	cargo xtask image build --tag $(IMG)

.PHONY: docker-build
docker-build: ## Build the image with Docker; IMG=name:tag
	docker build --tag $(IMG) .

.PHONY: docker-push
docker-push: ## Push the image with Docker; IMG=name:tag
	docker push $(IMG)

.PHONY: kubectl-plugin
kubectl-plugin: ## Build the plugin `kubectl operators` into dist, on Linux as one static program, and its completion for kubectl
	host="$$(rustc --version --verbose | sed -n 's/^host: //p')" && \
	  RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --package kubectl-operators --target "$$host" && \
	  mkdir -p dist && \
	  install "target/$$host/release/kubectl-operators" shared/kubectl-operators/kubectl_complete-operators dist/

.PHONY: dist
dist: ## Write plain manifests for kubectl into dist: install.yaml, and the same as six files; IMG=name:tag
	cargo xtask chart dist $(VALUES)

.PHONY: package
package: ## Package the chart alone into dist, for an image in a registry; VERSION=1.2.3 IMG=name:tag
	cargo xtask chart package --version $(or $(VERSION),$(error VERSION is missing: make package VERSION=1.2.3 IMG=name:tag)) --image $(IMG)

.PHONY: release
release: ## Release a version: image, chart, manifests, signed; VERSION=1.2.3 REGISTRY=ghcr.io/team KEY=cosign.key, DRY_RUN=true, PLATFORMS=linux/amd64
	cargo xtask release --version $(or $(VERSION),$(error VERSION is missing: $(RELEASE))) \
	  --registry $(or $(REGISTRY),$(error REGISTRY is missing: $(RELEASE))) \
	  --key $(or $(KEY),$(error KEY is missing: $(RELEASE); `cosign generate-key-pair` makes a key)) \
	  $(if $(PLATFORMS),--platforms $(PLATFORMS)) $(if $(DRY_RUN),--dry-run)

##@ On the cluster of your kubeconfig

.PHONY: install
install: ## Install the CRDs of all kinds
	kubectl apply --server-side $(CRDS:%=--filename=%)

.PHONY: uninstall
uninstall: ## Remove the CRDs, and with them every object of these kinds
	kubectl delete --ignore-not-found $(CRDS:%=--filename=%)

.PHONY: deploy
deploy: ## Install the chart and wait until it is ready; IMG=name:tag, BOOKING_SERVER=false
	cargo xtask chart install $(VALUES)

.PHONY: undeploy
undeploy: ## Uninstall the chart; CRDs and objects stay
	cargo xtask chart uninstall

.PHONY: run
run: ## Run the operators on this machine; ENABLE_WEBHOOKS=false or WEBHOOK_URL=… if the API server cannot reach it
	cargo run --package controller-manager -- run --log-format text --webhook-client-url $(WEBHOOK_URL)
