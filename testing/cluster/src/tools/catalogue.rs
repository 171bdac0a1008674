//! The tools and their recipes: one for each Go module under `hack/tools`.

/// Flags of every build. Without a version control stamp, the same sources give the same program in every checkout.
pub(crate) const FLAGS: [&str; 3] = ["-mod=readonly", "-trimpath", "-buildvcs=false"];

/// A tool of clusters or of their tests. Each tool is one upstream project, and its own `go.mod` pins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The store of the API server.
    Etcd,
    /// Changes etcd's data while etcd is stopped. Built only on request.
    Etcdutl,
    /// kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy and kubectl.
    Kubernetes,
    /// The same programs of the newest minor version that the chart supports. Built only by the nightly run.
    KubernetesNewest,
    /// The same programs, and kubeadm, of the oldest minor version that the chart supports. Built only by the nightly run.
    KubernetesOldest,
    /// The container runtime.
    Containerd,
    /// Starts containers for containerd.
    Runc,
    /// Plugins for pod networks.
    Cni,
    /// DNS for pods.
    Coredns,
    /// Simulates nodes and pods.
    Kwok,
    /// Helm 4.
    Helm,
    /// Helm 3.
    Helm3,
    /// The sync engine of Argo CD, as its own agent. Built only by its test.
    ArgoCd,
    /// Applies and prunes manifests as Flux does. Built only by its test.
    Flux,
    /// A registry for images. Built only by the tests that push to one.
    Distribution,
    /// Signs what a release consists of, and verifies it. Built only by `cargo xtask release` and its tests.
    Cosign,
    /// Finds what is attached to an image in a registry. Built only by a test of releases.
    Oras,
    /// Creates clusters whose nodes are Docker containers. Built only on request.
    Kind,
    /// Sets up the nodes of kind. Built only for node images of this repository.
    Kubeadm,
    /// Checks workflows of GitHub. Built only by that check.
    Actionlint,
    /// The other proxy that the chart can put in front of metrics. Built only by its test.
    KubeRbacProxy,
    /// Programs the kernel for kube-proxy. It comes from the host, or from the host's packages, and is never built.
    Nft,
}

/// All tools that the tests need, in the best order for building: tools that more tests need come first.
pub const TOOLS: [Tool; 10] = [
    Tool::Etcd,
    Tool::Kubernetes,
    Tool::Kwok,
    Tool::Containerd,
    Tool::Runc,
    Tool::Cni,
    Tool::Coredns,
    Tool::Nft,
    Tool::Helm,
    Tool::Helm3,
];

/// How a tool is built.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// The folder under `hack/tools`.
    pub(crate) module: &'static str,
    /// The module whose version is the tool's version; `None` for programs of this repository.
    pub(crate) upstream: Option<&'static str>,
    /// The programs to compile.
    pub(crate) outputs: &'static [Output],
    /// Symbolic links to the first output.
    pub(crate) links: &'static [&'static str],
    /// Whether the build needs a C compiler and libseccomp.
    pub(crate) seccomp: bool,
}

/// One program to compile.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) binary: &'static str,
    pub(crate) package: &'static str,
    pub(crate) tags: &'static str,
    /// Linker flags in addition to `-s -w`. `{version}`, `{major}` and `{minor}` are the upstream version and its numbers;
    /// `{kube-minor}` is the minor version of client-go.
    pub(crate) ldflags: &'static str,
}

impl Tool {
    /// The name on the command line, which is also the folder under `hack/tools`.
    pub fn name(self) -> &'static str {
        self.recipe().map_or("nft", |recipe| recipe.module)
    }

    /// The names of the tool's programs.
    pub fn binaries(self) -> Vec<&'static str> {
        match self.recipe() {
            None => vec!["nft"],
            Some(recipe) if !recipe.links.is_empty() => recipe.links.to_vec(),
            Some(recipe) => recipe.outputs.iter().map(|output| output.binary).collect(),
        }
    }

    /// How to build the tool; `None` if it is never built.
    pub(crate) fn recipe(self) -> Option<&'static Recipe> {
        Some(match self {
            Self::Etcd => &ETCD,
            Self::Etcdutl => &ETCDUTL,
            Self::Kubernetes => &KUBERNETES,
            Self::KubernetesNewest => &KUBERNETES_NEWEST,
            Self::KubernetesOldest => &KUBERNETES_OLDEST,
            Self::Containerd => &CONTAINERD,
            Self::Runc => &RUNC,
            Self::Cni => &CNI,
            Self::Coredns => &COREDNS,
            Self::Kwok => &KWOK,
            Self::Helm => &HELM,
            Self::Helm3 => &HELM3,
            Self::ArgoCd => &ARGOCD,
            Self::Flux => &FLUX,
            Self::Distribution => &DISTRIBUTION,
            Self::Cosign => &COSIGN,
            Self::Oras => &ORAS,
            Self::Kind => &KIND,
            Self::Kubeadm => &KUBEADM,
            Self::Actionlint => &ACTIONLINT,
            Self::KubeRbacProxy => &KUBE_RBAC_PROXY,
            Self::Nft => return None,
        })
    }
}

static ETCD: Recipe = Recipe {
    module: "etcd",
    upstream: Some("go.etcd.io/etcd/server/v3"),
    outputs: &[Output { binary: "etcd", package: "go.etcd.io/etcd/server/v3", tags: "", ldflags: "" }],
    links: &[],
    seccomp: false,
};

static ETCDUTL: Recipe = Recipe {
    module: "etcdutl",
    upstream: Some("go.etcd.io/etcd/etcdutl/v3"),
    outputs: &[Output { binary: "etcdutl", package: "go.etcd.io/etcd/etcdutl/v3", tags: "", ldflags: "" }],
    links: &[],
    seccomp: false,
};

static KUBERNETES: Recipe = Recipe {
    module: "kubernetes",
    upstream: Some("k8s.io/kubernetes"),
    outputs: &[Output { binary: "kubernetes", package: ".", tags: "", ldflags: KUBERNETES_VERSION }],
    links: COMPONENTS,
    seccomp: false,
};

static KUBERNETES_NEWEST: Recipe = Recipe {
    module: "kubernetes-newest",
    upstream: Some("k8s.io/kubernetes"),
    outputs: &[Output { binary: "kubernetes", package: ".", tags: "", ldflags: KUBERNETES_VERSION }],
    links: COMPONENTS,
    seccomp: false,
};

static KUBERNETES_OLDEST: Recipe = Recipe {
    module: "kubernetes-oldest",
    upstream: Some("k8s.io/kubernetes"),
    outputs: &[Output { binary: "kubernetes", package: ".", tags: "", ldflags: KUBERNETES_VERSION }],
    links: &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
        "kube-proxy",
        "kubectl",
        "kubeadm",
    ],
    seccomp: false,
};

const COMPONENTS: &[&str] =
    &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"];
const KUBERNETES_VERSION: &str = "-X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor={major} \
     -X k8s.io/component-base/version.gitMinor={minor} -X k8s.io/component-base/version.gitTreeState=clean \
     -X k8s.io/client-go/pkg/version.gitVersion={version} -X k8s.io/client-go/pkg/version.gitMajor={major} \
     -X k8s.io/client-go/pkg/version.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitTreeState=clean";

static CONTAINERD: Recipe = Recipe {
    module: "containerd",
    upstream: Some("github.com/containerd/containerd/v2"),
    outputs: &[
        Output {
            binary: "containerd",
            package: "github.com/containerd/containerd/v2/cmd/containerd",
            tags: "no_btrfs no_zfs no_devmapper",
            ldflags: "-X github.com/containerd/containerd/v2/version.Version={version}",
        },
        Output {
            binary: "containerd-shim-runc-v2",
            package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            tags: "no_grpc", // a third less memory for each pod
            ldflags: "-X github.com/containerd/containerd/v2/version.Version={version}",
        },
        Output {
            binary: "ctr",
            package: "github.com/containerd/containerd/v2/cmd/ctr",
            tags: "",
            ldflags: "-X github.com/containerd/containerd/v2/version.Version={version}",
        },
    ],
    links: &[],
    seccomp: false,
};

static RUNC: Recipe = Recipe {
    module: "runc",
    upstream: Some("github.com/opencontainers/runc"),
    outputs: &[Output {
        binary: "runc",
        package: "github.com/opencontainers/runc",
        tags: "seccomp netgo osusergo", // without seccomp no pod with the RuntimeDefault profile starts
        ldflags: "-extldflags=-static",
    }],
    links: &[],
    seccomp: true,
};

static CNI: Recipe = Recipe {
    module: "cni",
    upstream: Some("github.com/containernetworking/plugins"),
    outputs: &[
        Output {
            binary: "ptp",
            package: "github.com/containernetworking/plugins/plugins/main/ptp",
            tags: "",
            ldflags: CNI_VERSION,
        },
        Output {
            binary: "loopback",
            package: "github.com/containernetworking/plugins/plugins/main/loopback",
            tags: "",
            ldflags: CNI_VERSION,
        },
        Output {
            binary: "host-local",
            package: "github.com/containernetworking/plugins/plugins/ipam/host-local",
            tags: "",
            ldflags: CNI_VERSION,
        },
    ],
    links: &[],
    seccomp: false,
};
const CNI_VERSION: &str = "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={version}";

static COREDNS: Recipe = Recipe {
    module: "coredns",
    upstream: Some("github.com/coredns/coredns"),
    outputs: &[Output { binary: "coredns", package: ".", tags: "", ldflags: "" }],
    links: &[],
    seccomp: false,
};

static KWOK: Recipe = Recipe {
    module: "kwok",
    upstream: Some("sigs.k8s.io/kwok"),
    outputs: &[Output {
        binary: "kwok",
        package: "sigs.k8s.io/kwok/cmd/kwok",
        tags: "",
        ldflags: "-X sigs.k8s.io/kwok/pkg/consts.Version={version}",
    }],
    links: &[],
    seccomp: false,
};

static HELM: Recipe = Recipe {
    module: "helm",
    upstream: Some("helm.sh/helm/v4"),
    outputs: &[Output {
        binary: "helm",
        package: "helm.sh/helm/v4/cmd/helm",
        tags: "",
        ldflags: "-X helm.sh/helm/v4/internal/version.version={version}",
    }],
    links: &[],
    seccomp: false,
};

static HELM3: Recipe = Recipe {
    module: "helm3",
    upstream: Some("helm.sh/helm/v3"),
    outputs: &[Output {
        binary: "helm3",
        package: "helm.sh/helm/v3/cmd/helm",
        tags: "",
        // Without the last four, `helm template` assumes Kubernetes 1.20.
        ldflags: "-X helm.sh/helm/v3/internal/version.version={version} \
                  -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={kube-minor} \
                  -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor={kube-minor}",
    }],
    links: &[],
    seccomp: false,
};

static ARGOCD: Recipe = Recipe {
    module: "argocd",
    upstream: Some("github.com/argoproj/gitops-engine"),
    outputs: &[Output {
        binary: "gitops-agent",
        package: "github.com/argoproj/gitops-engine/agent",
        tags: "",
        ldflags: "",
    }],
    links: &[],
    seccomp: false,
};

static FLUX: Recipe = Recipe {
    module: "flux",
    upstream: Some("github.com/fluxcd/pkg/ssa"),
    outputs: &[Output { binary: "flux-apply", package: ".", tags: "", ldflags: "" }],
    links: &[],
    seccomp: false,
};

static DISTRIBUTION: Recipe = Recipe {
    module: "distribution",
    upstream: Some("github.com/distribution/distribution/v3"),
    outputs: &[Output {
        binary: "registry",
        package: "github.com/distribution/distribution/v3/cmd/registry",
        tags: "",
        ldflags: "-X github.com/distribution/distribution/v3/version.version={version}",
    }],
    links: &[],
    seccomp: false,
};

static COSIGN: Recipe = Recipe {
    module: "cosign",
    upstream: Some("github.com/sigstore/cosign/v3"),
    outputs: &[Output {
        binary: "cosign",
        package: "github.com/sigstore/cosign/v3/cmd/cosign",
        tags: "",
        ldflags: "-X sigs.k8s.io/release-utils/version.gitVersion={version}",
    }],
    links: &[],
    seccomp: false,
};

static ORAS: Recipe = Recipe {
    module: "oras",
    upstream: Some("oras.land/oras"),
    outputs: &[Output {
        binary: "oras",
        package: "oras.land/oras/cmd/oras",
        tags: "",
        ldflags: "-X oras.land/oras/internal/version.Version={version}",
    }],
    links: &[],
    seccomp: false,
};

static KIND: Recipe = Recipe {
    module: "kind",
    upstream: Some("sigs.k8s.io/kind"),
    outputs: &[Output { binary: "kind", package: "sigs.k8s.io/kind", tags: "", ldflags: "" }],
    links: &[],
    seccomp: false,
};

static KUBEADM: Recipe = Recipe {
    module: "kubeadm",
    upstream: Some("k8s.io/kubernetes"),
    outputs: &[Output { binary: "kubeadm", package: ".", tags: "", ldflags: KUBERNETES_VERSION }],
    links: &[],
    seccomp: false,
};

static ACTIONLINT: Recipe = Recipe {
    module: "actionlint",
    upstream: Some("github.com/rhysd/actionlint"),
    outputs: &[Output {
        binary: "actionlint",
        package: "github.com/rhysd/actionlint/cmd/actionlint",
        tags: "",
        ldflags: "",
    }],
    links: &[],
    seccomp: false,
};

static KUBE_RBAC_PROXY: Recipe = Recipe {
    module: "kube-rbac-proxy",
    upstream: Some("github.com/brancz/kube-rbac-proxy"),
    outputs: &[Output {
        binary: "kube-rbac-proxy",
        package: "github.com/brancz/kube-rbac-proxy/cmd/kube-rbac-proxy",
        tags: "",
        ldflags: "-X k8s.io/component-base/version.gitVersion={version}",
    }],
    links: &[],
    seccomp: false,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_pinned_version() {
        for recipe in TOOLS
            .iter()
            .chain(&[
                Tool::Kind,
                Tool::Kubeadm,
                Tool::KubernetesNewest,
                Tool::KubernetesOldest,
                Tool::Actionlint,
                Tool::Etcdutl,
                Tool::ArgoCd,
                Tool::Flux,
                Tool::Distribution,
                Tool::Cosign,
                Tool::Oras,
                Tool::KubeRbacProxy,
            ])
            .filter_map(|tool| tool.recipe())
        {
            let file = super::super::sources().join(recipe.module).join("go.mod");
            let go_mod = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            if let Some(upstream) = recipe.upstream {
                assert!(super::super::key::version_of(&go_mod, upstream).is_some(), "{upstream} in {}", file.display());
            }
        }
    }

    #[test]
    fn tools_of_one_project_have_same_version() {
        let version = |recipe: &Recipe| {
            let go_mod = std::fs::read_to_string(super::super::sources().join(recipe.module).join("go.mod")).unwrap();
            super::super::key::version_of(&go_mod, recipe.upstream.unwrap()).unwrap().to_owned()
        };
        assert_eq!(version(&ETCDUTL), version(&ETCD));
        assert_eq!(version(&KUBEADM), version(&KUBERNETES));
    }
}
