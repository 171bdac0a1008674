# Builds the image of the operators with Docker. `cargo xtask image build` makes the same image without Docker, and releases are built
# by it. The digest fixes the image with the compiler, for all platforms, because its owner can move the tag. A new compiler in
# rust-toolchain.toml needs a new tag and digest here; `docker pull` prints the digest.
FROM rust:1.95.0-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
WORKDIR /workspace
COPY . .
# A release passes its commit: docker build --build-arg OPERATORS_COMMIT=$(git rev-parse HEAD)
ARG OPERATORS_COMMIT=unknown
# Link statically, so that the image needs no C library. Naming the target keeps the flag away from procedural macros, which
# cannot be static. Keep this equal to testing/images/src/operator.rs.
ENV RUSTFLAGS="-C target-feature=+crt-static"
# The version of the Kubernetes API, which the library of metrics-proxy leaves to its users.
ENV K8S_OPENAPI_ENABLED_VERSION=1.36
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/workspace/target \
    target="$(uname -m)-unknown-linux-gnu" && \
    for package in controller-manager operators-metrics-proxy booking-server; do \
      program="${package#operators-}" && \
      cargo build --release --locked --package "$package" --bin "$program" --target "$target" && \
      install -D "target/$target/release/$program" "/image/$program" || exit 1; \
    done
RUN mkdir -m 1777 /image/tmp && mkdir /image/etc && \
    echo "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin" >/image/etc/passwd && \
    echo "root:x:0:\nnonroot:x:65532:" >/image/etc/group

FROM scratch
COPY --from=build /image /
# Keep this equal to testing/images/src/operator.rs.
ENV MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072
USER 65532:65532
ENTRYPOINT ["/controller-manager"]
ARG OPERATORS_COMMIT=unknown
LABEL org.opencontainers.image.revision="${OPERATORS_COMMIT}"
LABEL org.opencontainers.image.title="controller-manager" org.opencontainers.image.licenses="Apache-2.0"
