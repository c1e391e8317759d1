use super::{ApiResource, Scale};

/// A built-in resource: group, version, plural, kind, options, and selectable fields. Each letter
/// of the options stands for one: `c` cluster-scoped, `s` status subresource, `g` generation, `o`
/// DELETE returns the object, `r` scale subresource, `v` an update needs a resourceVersion.
type BuiltIn = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// The resources that every server has, with the groups in the order of discovery.
const BUILT_IN: &[BuiltIn] = &[
    (
        "",
        "v1",
        "namespaces",
        "Namespace",
        "cso",
        &["status.phase"],
    ),
    (
        "",
        "v1",
        "pods",
        "Pod",
        "sgo",
        &[
            "spec.nodeName",
            "spec.host",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
    ),
    ("", "v1", "configmaps", "ConfigMap", "", &[]),
    ("", "v1", "secrets", "Secret", "", &["type"]),
    (
        "",
        "v1",
        "services",
        "Service",
        "so",
        &["spec.clusterIP", "spec.type"],
    ),
    ("", "v1", "serviceaccounts", "ServiceAccount", "o", &[]),
    ("", "v1", "endpoints", "Endpoints", "", &[]),
    ("", "v1", "nodes", "Node", "cs", &["spec.unschedulable"]),
    (
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        "cso",
        &[],
    ),
    (
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        "so",
        &[],
    ),
    (
        "",
        "v1",
        "replicationcontrollers",
        "ReplicationController",
        "sgr",
        &["status.replicas"],
    ),
    ("", "v1", "resourcequotas", "ResourceQuota", "so", &[]),
    ("", "v1", "limitranges", "LimitRange", "", &[]),
    (
        "",
        "v1",
        "events",
        "Event",
        "",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
    ("apps", "v1", "deployments", "Deployment", "sgr", &[]),
    ("apps", "v1", "replicasets", "ReplicaSet", "sgr", &[]),
    ("apps", "v1", "statefulsets", "StatefulSet", "sgr", &[]),
    ("apps", "v1", "daemonsets", "DaemonSet", "sg", &[]),
    (
        "apps",
        "v1",
        "controllerrevisions",
        "ControllerRevision",
        "",
        &[],
    ),
    (
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        "",
        &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
    ),
    (
        "autoscaling",
        "v2",
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
        "s",
        &[],
    ),
    ("batch", "v1", "jobs", "Job", "sg", &["status.successful"]),
    ("batch", "v1", "cronjobs", "CronJob", "sg", &[]),
    ("networking.k8s.io", "v1", "ingresses", "Ingress", "sg", &[]),
    (
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        "NetworkPolicy",
        "g",
        &[],
    ),
    (
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        "sg",
        &[],
    ),
    ("rbac.authorization.k8s.io", "v1", "roles", "Role", "", &[]),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "rolebindings",
        "RoleBinding",
        "",
        &[],
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "ClusterRole",
        "c",
        &[],
    ),
    (
        "rbac.authorization.k8s.io",
        "v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        "c",
        &[],
    ),
    (
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        "c",
        &[],
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "csg",
        &[],
    ),
    ("coordination.k8s.io", "v1", "leases", "Lease", "v", &[]),
    (
        "discovery.k8s.io",
        "v1",
        "endpointslices",
        "EndpointSlice",
        "g",
        &[],
    ),
];

/// The short names of built-in resources, and whether the resources belong to the category `all`.
const NAMES: &[(&str, &[&str], bool)] = &[
    ("configmaps", &["cm"], false),
    ("cronjobs", &["cj"], true),
    ("customresourcedefinitions", &["crd", "crds"], false),
    ("daemonsets", &["ds"], true),
    ("deployments", &["deploy"], true),
    ("endpoints", &["ep"], false),
    ("events", &["ev"], false),
    ("horizontalpodautoscalers", &["hpa"], true),
    ("ingresses", &["ing"], false),
    ("jobs", &[], true),
    ("limitranges", &["limits"], false),
    ("namespaces", &["ns"], false),
    ("networkpolicies", &["netpol"], false),
    ("nodes", &["no"], false),
    ("persistentvolumeclaims", &["pvc"], false),
    ("persistentvolumes", &["pv"], false),
    ("poddisruptionbudgets", &["pdb"], false),
    ("pods", &["po"], true),
    ("replicasets", &["rs"], true),
    ("replicationcontrollers", &["rc"], true),
    ("resourcequotas", &["quota"], false),
    ("serviceaccounts", &["sa"], false),
    ("services", &["svc"], true),
    ("statefulsets", &["sts"], true),
    ("storageclasses", &["sc"], false),
];

/// Returns the built-in resources.
pub(super) fn resources() -> impl Iterator<Item = ApiResource> {
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    BUILT_IN
        .iter()
        .map(move |&(group, version, plural, kind, options, fields)| {
            let names = NAMES.iter().find(|names| names.0 == plural);
            let (short_names, is_in_all) =
                names.map_or((&[][..], false), |&(_, short, all)| (short, all));
            let categories: &[&str] = match plural {
                "customresourcedefinitions" => &["api-extensions"],
                _ if is_in_all => &["all"],
                _ => &[],
            };
            ApiResource {
                short_names: owned(short_names),
                categories: owned(categories),
                namespaced: !options.contains('c'),
                fields: owned(fields),
                status: options.contains('s'),
                generation: options.contains('g'),
                custom: false,
                delete_returns_object: options.contains('o'),
                versioned_updates: options.contains('v'),
                scale: options.contains('r').then(|| Scale {
                    spec: ".spec.replicas".to_owned(),
                    status: ".status.replicas".to_owned(),
                    selector: ".spec.selector".to_owned(),
                }),
                ..ApiResource::new(group, version, plural, kind)
            }
        })
}
