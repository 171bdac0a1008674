# The names that users of other operators know. Each is one line; what it does is in hack/xtask.

.DEFAULT_GOAL := help
# Where the API server calls the webhooks of `make run`.
WEBHOOK_URL ?= https://127.0.0.1:9443
export ENABLE_WEBHOOKS ?= true
# The image of docker-build, docker-push, deploy and dist.
IMG ?= localhost/operators/controller-manager:dev
# false: deploy no booking server beside the operators.
BOOKING_SERVER ?= true
CRDS = $(wildcard charts/operators/files/*/crd-*.yaml)
VALUES = --image $(IMG) $(if $(filter false,$(BOOKING_SERVER)),--set bookingServer.enabled=false)

##@ General

.PHONY: help
help: ## Show this
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Try

.PHONY: demo
demo: ## Start a cluster, run the operators on it and show what they do
	cargo xtask demo

.PHONY: cluster-up
cluster-up: ## Start a cluster whose node runs pods, or join it
	cargo xtask cluster up --nodes real

.PHONY: cluster-down
cluster-down: ## Take that cluster down
	cargo xtask cluster down

##@ Develop

.PHONY: test
test: ## Check everything, from format to end to end; installs what it needs
	cargo xtask test

.PHONY: nightly
nightly: ## Check what takes hours: every interference and fault plan, the model API server, random worlds, races
	cargo xtask nightly

.PHONY: mutants
mutants: ## Change the code in small ways and see whether tests notice: a sample; SHARD=3/150 for the same again
	cargo xtask mutants $(if $(SHARD),--shard $(SHARD))

.PHONY: test-e2e
test-e2e: ## The end-to-end tests alone; E2E_CLUSTER=local, existing (your kubeconfig, with E2E_IMAGE=…) or kind
	cargo xtask test --only tools,images,tests --filter 'package(e2e) & (binary(e2e) | binary(chart))'

.PHONY: cleanup-test-e2e
cleanup-test-e2e: ## Remove what they have left on a cluster of yours, or in kind
	cargo xtask test --only clean-up

.PHONY: soak
soak: image ## Let the operators work under random faults, and see that they stay small and lose nothing; MINUTES=120, SEED=7
	cargo run --package runtime-bench -- soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

.PHONY: generate
generate: ## Write what is derived from the Rust types: definitions, permissions, tables
	cargo xtask generate

.PHONY: manifests
manifests: generate ## The same, under its usual name

##@ Build

.PHONY: image
image: ## Build the image without a daemon, and its bill of materials
	cargo xtask image build --tag $(IMG)

.PHONY: docker-build
docker-build: ## Build the image with Docker; IMG=name:tag
	docker build --tag $(IMG) .

.PHONY: docker-push
docker-push: ## Push it; IMG=name:tag
	docker push $(IMG)

.PHONY: dist
dist: ## Write plain manifests for kubectl into dist: install.yaml, and the same in six files; IMG=name:tag
	cargo xtask chart dist $(VALUES)

.PHONY: package
package: ## Package the chart into dist; VERSION=1.2.3
	cargo xtask chart package --version $(or $(VERSION),$(error VERSION is missing: make package VERSION=1.2.3))

##@ On the cluster of your kubeconfig

.PHONY: install
install: ## Install the definitions of all kinds
	kubectl apply --server-side $(CRDS:%=--filename=%)

.PHONY: uninstall
uninstall: ## Remove them, and with them every object of these kinds
	kubectl delete --ignore-not-found $(CRDS:%=--filename=%)

.PHONY: deploy
deploy: ## Install the chart and wait; IMG=name:tag, BOOKING_SERVER=false
	cargo xtask chart install $(VALUES)

.PHONY: undeploy
undeploy: ## Remove it; definitions and objects stay
	cargo xtask chart uninstall

.PHONY: run
run: ## Run the operators outside of the cluster; ENABLE_WEBHOOKS=false, or WEBHOOK_URL=… if it cannot call this machine
	cargo run --package controller-manager -- run --log-format text --webhook-client-url $(WEBHOOK_URL)
