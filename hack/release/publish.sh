#!/usr/bin/env bash
# Publishes a release that `cargo xtask release --layout LAYOUT` has built: by digest, then signatures, and the tags last.
#
#   IMAGE=ghcr.io/team/controller-manager@sha256:… CHART=ghcr.io/team/charts/operators@sha256:… VERSION=1.2.3 COMMIT=… \
#     hack/release/publish.sh LAYOUT dist/1.2.3 [FLAG OF COSIGN]...
#
# It needs oras, cosign and jq, and compiles nothing: the build scripts of crates would have the rights to push and to sign. Of the
# build it takes only what these digests name, and a provenance with exactly this commit and these digests. In a workflow, RUN is the
# beginning of the address of the run, and BUILDER stands for its machines. The provenance has to name both too; without BUILDER, it
# has to name a machine of a maintainer, as `hack/release/src/statement.rs` does.
set -euo pipefail
export LC_ALL=C # the order of names, as in the provenance

layout=$1
files=$2
shift 2
builder=${BUILDER:-urn:operators:maintainer}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$*" >&2
  exit 1
}

for reference in "$IMAGE" "$CHART"; do
  [[ $reference =~ ^[^@]+@sha256:[0-9a-f]{64}$ ]] || fail "$reference is not a repository with a digest"
done
# As the command itself, it speaks HTTP without encryption only with this machine.
plain=false
if [[ $IMAGE =~ ^(localhost|127\.[0-9.]+)(:[0-9]+)?/ ]]; then plain=true; fi
# Clients keep the list of what is attached, as for GHCR, which has no API for it. A registry with this API makes its own list, too.
spec=v1.1-referrers-tag

# oras checks digests, too, but what it has pushed until then would stay.
(cd "$layout/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --check --strict --quiet >&2) ||
  fail "a blob in $layout does not have the digest of its name"

# What the provenance has to be about: the image, the chart, and each file that the page of the release gets.
subjects() {
  printf '%s  %s\n' "${IMAGE#*@sha256:}" "${IMAGE%@*}" "${CHART#*@sha256:}" "${CHART%@*}"
  (cd "$files" && for file in *; do [[ $file == provenance.json || $file == SHA256SUMS ]] || sha256sum -- "$file" || exit 1; done)
}
expected=$(subjects | jq --raw-input --null-input '[inputs | split("  ") | {name: .[1], digest: {sha256: .[0]}}]')
jq --exit-status --argjson subjects "$expected" --arg version "$VERSION" --arg commit "$COMMIT" --arg run "${RUN:-}" \
  --arg builder "$builder" '
  .subject == $subjects
  and .predicateType == "https://slsa.dev/provenance/v1"
  and .predicate.buildDefinition.externalParameters.version == $version
  and (.predicate.buildDefinition.resolvedDependencies[0] |
    .digest == {gitCommit: $commit} and ($run == "" or .uri == "git+\($run | split("/actions/runs/")[0])@\($commit)"))
  and .predicate.runDetails.builder == {id: $builder}
  and (.predicate.runDetails.metadata.invocationId // "" | startswith($run))
' "$files/provenance.json" >"$work/is_expected" || fail "$files/provenance.json names another release than $IMAGE and $CHART, \
made of the commit $COMMIT by $builder, with the files in $files"

(cd "$files" && sha256sum --check --strict --quiet SHA256SUMS >&2) ||
  fail "a file in $files does not have the checksum that SHA256SUMS has"

# oras copies whatever the layout names as attached to these manifests. Only the bills of materials may be.
images=$(jq --compact-output '[.manifests[].digest]' "$layout/blobs/sha256/${IMAGE#*@sha256:}")
jq --raw-output '.manifests[].digest' "$layout/index.json" >"$work/entries"
while read -r digest; do
  [[ $digest == "${IMAGE#*@}" || $digest == "${CHART#*@}" ]] ||
    jq --exit-status --argjson images "$images" \
      '.artifactType == "application/vnd.cyclonedx+json" and (.subject.digest | IN($images[]))' \
      "$layout/blobs/sha256/${digest#sha256:}" >"$work/is_bill" || fail "$layout names $digest, which is no bill of an image"
done <"$work/entries"

# A released version never changes.
for reference in "$IMAGE" "$CHART"; do
  tagged=${reference%@*}:$VERSION
  if digest=$(oras resolve --plain-http="$plain" "$tagged" 2>"$work/said"); then
    [[ $digest == "${reference#*@}" ]] || fail "$tagged was released before, with the digest $digest instead of \
${reference#*@}: a released version never changes, so choose the next one"
  else
    grep --quiet ': not found' "$work/said" || fail "$(cat "$work/said")"
  fi
done

# With the images that the index names, and their bills of materials.
for reference in "$IMAGE" "$CHART"; do
  oras cp --recursive --from-oci-layout --to-plain-http="$plain" --to-distribution-spec "$spec" \
    "$layout@${reference#*@}" "${reference%@*}"
done

# attach_signed REFERENCE STATEMENT PREDICATE_TYPE [FLAG OF COSIGN]...
attach_signed() {
  local reference=$1 statement=$2 predicate_type=$3 kind=application/vnd.dev.sigstore.bundle.v0.3+json
  shift 3
  cosign attest-blob --yes --statement "$statement" --bundle "$work/bundle.json" "$@"
  (cd "$work" && oras attach --plain-http="$plain" --distribution-spec "$spec" --artifact-type "$kind" \
    --annotation dev.sigstore.bundle.content=dsse-envelope --annotation "dev.sigstore.bundle.predicateType=$predicate_type" \
    "$reference" "bundle.json:$kind")
}

signed=https://sigstore.dev/cosign/sign/v1
for reference in "$IMAGE" "$CHART"; do
  printf '{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"%s"}}],"predicateType":"%s","predicate":{}}' \
    "${reference#*@sha256:}" "$signed" >"$work/signature.json"
  attach_signed "$reference" "$work/signature.json" "$signed" "$@"
  attach_signed "$reference" "$files/provenance.json" https://slsa.dev/provenance/v1 "$@"
done

for reference in "$IMAGE" "$CHART"; do
  oras tag --plain-http="$plain" "$reference" "$VERSION"
done
